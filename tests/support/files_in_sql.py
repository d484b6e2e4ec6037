"""Pipeline files written in SQL."""

from typing import Any


def in_sql(document: dict[str, Any]) -> str:
    """A file in YAML as one in SQL: views as they are, all other sections by their keys."""
    made = [
        f"CREATE PIPELINE {name_in_sql(document['pipeline'])} "
        f"WITH {value_in_sql({k: v for k, v in document.items() if k not in STATED})};"
    ]
    for name, section in document.get("inputs", {}).items():
        made.append(f"CREATE SOURCE {name_in_sql(name)} FROM KAFKA {value_in_sql(section)};")
    for name, section in document.get("operators", {}).items():
        if section.keys() == {"sql"}:
            made.append(f"CREATE VIEW {name_in_sql(name)} AS {section['sql']};")
        else:
            made.append(f"CREATE OPERATOR {name_in_sql(name)} WITH {value_in_sql(section)};")
    for name, section in document.get("outputs", {}).items():
        rest = {key: value for key, value in section.items() if key != "from"}
        source = name_in_sql(section["from"])
        made.append(
            f"CREATE SINK {name_in_sql(name)} FROM {source} INTO KAFKA {value_in_sql(rest)};"
        )
    return "\n".join(made)


STATED = ("pipeline", "inputs", "operators", "outputs")


def name_in_sql(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def value_in_sql(value: Any) -> str:
    match value:
        case dict():
            pairs = (f"{name_in_sql(name)} = {value_in_sql(each)}" for name, each in value.items())
            return f"({', '.join(pairs)})"
        case list():
            return f"({', '.join(map(value_in_sql, value))})"
        case bool():
            return str(value).upper()
        case int() | float():
            return str(value)
        case _:
            return "'" + str(value).replace("'", "''") + "'"

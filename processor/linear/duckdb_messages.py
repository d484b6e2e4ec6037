"""DuckDB's messages about a query or an expression in ikebana's words: the fact, and a remedy.

Error records keep DuckDB's own words (`database.without_data`): they are data, which the
retraction of a row repeats.
"""

import re
from collections.abc import Callable, Mapping

from ikebana.processor.base.texts import hint, suggestion
from ikebana.processor.linear.database import first_line
from ikebana.processor.linear.scope import is_ours
from ikebana.processor.linear.sql_functions import with_short_names
from ikebana.processor.linear.syntax import TextPart, items

TableTypes = Mapping[str, Mapping[str, str]]
"""The types of columns, by the tables' names."""


def in_words(error: Exception | str, tables: TableTypes | None = None) -> str:
    """What is wrong, and what to write instead; `tables` have the columns that there are.

    >>> in_words("Conversion Error: Unimplemented type for cast (BIGINT -> DATE)")
    'BIGINT cannot be cast to DATE'
    >>> in_words("Binder Error: Subquery returns 2 columns - expected 1")
    'a subquery for one value must select 1 column; it selects 2'
    """
    line, whole = first_line(error), with_short_names(str(error))
    if (column := _NO_COLUMN.search(line)) is not None:
        return _no_column(column, whole, tables or {})
    for pattern, words in _WORDS:
        if (match := pattern.search(line)) is not None:
            return match.expand(words) if isinstance(words, str) else words(match, whole)
    return _CLASS.sub("", line)


def names_in(error: Exception | str) -> list[str]:
    """The names that a message quotes, one of which may be where the fault is."""
    return [one or other for one, other in _NAMES.findall(first_line(error))]


def _no_column(match: re.Match[str], error: str, tables: TableTypes) -> str:
    name = next(each for each in match.group("name", "own", "unquoted") if each is not None)
    of = match["table"]
    whose = "" if of is None else f' of "{of}"'
    names = {n for c in tables.values() for n in c} if of is None else set(tables.get(of, ()))
    # A column of that name may be in a table that is not read there.
    close = _nearest(name, error) if not names or name in names else suggestion(name, names)
    return f'there is no column "{name}"{whose}{close}'


def _nearest(word: str, error: str) -> str:
    """Suggest the names that DuckDB lists in an error, which are not all that there are."""
    listed = error.partition("Candidate")[2].partition("LINE")[0]
    names = [each for each in re.findall(r'"([^"]*)"', listed) if not is_ours(each)]
    return hint(word, names) or (f"; the nearest are {', '.join(sorted(names))}" if names else "")


def _no_function(match: re.Match[str], error: str) -> str:
    fact = f"there is no function {match[1]}()"
    if (same := ELSEWHERE.get(match[1].lower())) is not None:
        return f"{fact}; write {same}"
    meant = re.search(r'Did you mean "(.+?)"', error)
    return f"{fact}{f'; did you mean {meant[1]}()?' if meant else ''}"


def _no_such(match: re.Match[str], error: str) -> str:
    meant = re.search(r'Did you mean "(?:main\.)?(.+?)"', error)
    close = hint(match[2].lower(), [meant[1].lower()] if meant else [], "{}")
    return f"there is no {match[1].lower()} {match[2]}{close}"


def _refused_types(match: re.Match[str], error: str) -> str:
    """A call or an operation with arguments for which it does not exist."""
    name = match[1].strip('"')
    kinds = _parts(_of_literals(match[2]))
    if name in ("+", "-") and "LINE " not in error:
        # DuckDB makes these of the distances of a frame.
        return f"a RANGE frame has no distance for {' and '.join(kinds)}; write ROWS or GROUPS"
    call = f"{name}()" if name.isidentifier() else _OPERATORS.get(name, name)
    forms = dict.fromkeys(
        re.sub(r', /|"' if name.isidentifier() else r', /|"?\b[a-z_]+"? ', "", each)
        for each in re.findall(r"^\t\S+?\((.*)\) -> ", error, re.MULTILINE)
    )
    same = [each for each in forms if len(_parts(each)) == len(kinds) and "*" not in each]
    usual = [each for each in same or forms if not _UNUSUAL.search(each)] or same or [*forms]

    def likeness(form: str) -> int:
        return sum(map(str.endswith, _parts(form), kinds))

    listed = " or ".join(f"({each})" for each in sorted(usual, key=likeness, reverse=True)[:3])
    takes = f"; it takes {listed.replace('()', 'nothing')}" if usual else ""
    return f"{call} does not take ({', '.join(kinds)}){takes}{'; cast' * bool(same)}"


def _of_literals(kinds: str) -> str:
    return kinds.replace("STRING_LITERAL", "VARCHAR").replace("INTEGER_LITERAL", "INTEGER")


def _parts(listed: str) -> list[str]:
    """The parts between commas that are in no parentheses.

    >>> _parts("DECIMAL(10,2), STRUCT(a INTEGER, b INTEGER)")
    ['DECIMAL(10,2)', 'STRUCT(a INTEGER, b INTEGER)']
    """
    return [text for part in items(TextPart(listed, 0)) if (text := part.text.strip())]


def _ambiguous(match: re.Match[str], _: str) -> str:
    places = dict.fromkeys(each.rpartition("main.")[2] for each in re.findall("'(.*?)'", match[2]))
    if len(places) == 1:
        return f'"{match[1]}" is in several tables of one name; give one another name with AS'
    return f'"{match[1]}" is a column of several tables; write {" or ".join(places)}'


def _of_one_type(match: re.Match[str], _: str) -> str:
    """Values that are compared or combined have no common type."""
    one, other = _of_literals(match[2]), _of_literals(match[3])
    where = f" in {match[4]}" if match[4] else ""
    verb = "compare" if match[1] == "compare" else "combine"
    return f"cannot {verb} {one} and {other}{where}; cast one of them, as in x::{one}"


def _no_value(match: re.Match[str], _: str) -> str:
    return f"'{match[1]}' is no {_KINDS.get(match[2], match[2])}"


_WINDOWS = "FROM tumble(orders, placed, INTERVAL '1 hour'), which adds window_start and window_end"
ELSEWHERE = {
    "add_months": "placed + INTERVAL 1 MONTH",
    "approx_percentile": "approx_quantile(x, 0.5)",
    "array_join": "array_to_string(items, ',')",
    "array_size": "len(items)",
    "charindex": "strpos(text, 'part')",
    "collect_list": "list(x)",
    "collect_set": "list(DISTINCT x)",
    "date_bin": "time_bucket(INTERVAL 1 HOUR, placed)",
    "date_format": "strftime(placed, '%Y-%m-%d')",
    "dateadd": "placed + INTERVAL 1 DAY",
    "day_of_week": "dayofweek(placed)",
    "div": "x // y",
    "every": "bool_and(x > 0)",
    "explode": "unnest(items)",
    "from_unixtime": "make_timestamp(x * 1000000)",
    "get_json_object": "document ->> '$.field'",
    "hop_end": _WINDOWS.replace("tumble", "hop"),
    "hop_start": _WINDOWS.replace("tumble", "hop"),
    "iff": "if(x > 0, 'a', 'b')",
    "isnull": "x IS NULL",
    "json_agg": "list(x)",
    "json_build_object": "struct_pack(a := x)",
    "json_query": "document -> '$.field'",
    "jsonb_agg": "list(x)",
    "jsonb_build_object": "struct_pack(a := x)",
    "jsonb_extract_path_text": "document ->> '$.field'",
    "locate": "strpos(text, 'part')",
    "months_between": "date_diff('month', placed, paid)",
    "named_struct": "struct_pack(a := x)",
    "nvl": "coalesce(x, 0)",
    "nvl2": "if(x IS NULL, 'b', 'a')",
    "parse_json": "text::JSON",
    "percentile": "quantile_cont(x, 0.5)",
    "percentile_approx": "approx_quantile(x, 0.5)",
    "pmod": "(x % y + y) % y",
    "proctime": "FROM orders WHERE placed > now() - INTERVAL 1 HOUR",
    "regexp_like": "regexp_matches(text, 'pattern')",
    "regexp_substr": "regexp_extract(text, 'pattern')",
    "rlike": "regexp_matches(text, 'pattern')",
    "safe_cast": "TRY_CAST(text AS BIGINT)",
    "sha2": "sha256(text)",
    "size": "len(items)",
    "space": "repeat(' ', x)",
    "struct": "struct_pack(a := x)",
    "substring_index": "split_part(text, ',', 1)",
    "timestampdiff": "date_diff('day', placed, paid)",
    "to_char": "strftime(placed, '%Y-%m-%d')",
    "to_date": "strptime(text, '%Y-%m-%d')::DATE",
    "to_number": "text::DECIMAL(18, 2)",
    "tumble": _WINDOWS,
    "tumble_end": _WINDOWS,
    "tumble_start": _WINDOWS,
    "unix_timestamp": "epoch(placed)",
    "zeroifnull": "coalesce(x, 0)",
}
"""Functions of other systems, and what does the same here."""

_NO_COLUMN = re.compile(
    r'Referenced column "(?P<name>.*)" (?:not found in FROM clause!|was not found because)'
    r'|Table "(?P<table>.*)" does not have a column named "(?P<own>.*)"'
    r"|Referenced column (?P<unquoted>\S+) not found in FROM clause and"
)
_CLASS = re.compile(r"^(?:Binder|Catalog|Conversion|Invalid Input|Parser|Out of Range) Error: ")
_NAMES = re.compile(r"\"([^\"']+)\"|'(\w+)'")
_OPERATORS = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE", "~~~": "GLOB"}
# Types that a remedy had better not name where a usual one will do.
_UNUSUAL = re.compile(r"TINYINT|SMALLINT|HUGEINT|UINTEGER|UBIGINT|BIGNUM|FLOAT|_NS|TIME ZONE")
_KINDS = {
    "BOOL": "BOOLEAN",
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INTEGER",
    "INT64": "BIGINT",
}
_WORDS: list[tuple[re.Pattern[str], str | Callable[[re.Match[str], str], str]]] = [
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r'Referenced table "(.*)" not found!',
            lambda match, error: f'FROM names no "{match[1]}"{_nearest(match[1], error)}',
        ),
        (r"Function with name (\S+) does not exist!", _no_function),
        (r"(Type|Collation|Sequence) with name (\S+) does not exist!", _no_such),
        (r"argument types '(\"?[^(]+?)\((.*)\)'\. You might", _refused_types),
        (r'for the function call "([^(]+?)\((.*)\)"\. In order', _refused_types),
        (
            r"(\S+) is not an aggregate function",
            r"\1() is no aggregate and no window function; leave out OVER",
        ),
        (
            "Window functions are not supported here",
            "a window function stands in the select list or QUALIFY, with OVER (…) behind it; "
            "aggregates are first(x ORDER BY y) and last(x ORDER BY y)",
        ),
        (r'Ambiguous reference to column name "(.*)" \(use: (.*)\)', _ambiguous),
        (
            r'Ambiguous reference to table "(.*?)"',
            r'several tables of FROM are named "\1"; give each a name of its own with AS',
        ),
        (
            r"Cannot (compare) values of type (.*) and (?:type )?(.*?)(?: in (.*))? - an",
            _of_one_type,
        ),
        (
            r"Cannot (mix|combine) (?:values of type|types of) (.*) and (.*?)(?: in (.*))? - an",
            _of_one_type,
        ),
        (
            r"Cannot deduce template type '.*' in function: '(.*?)\((.*)\) -> .*'",
            r"the arguments of \1(\2) do not have fitting types; cast",
        ),
        (r"Unimplemented type for cast \((.*) -> (.*)\)", r"\1 cannot be cast to \2"),
        (r"Could not convert string '(.*)' to (\w+)", _no_value),
        (
            r'Could not find key "(.*)" in struct',
            lambda match, error: f'there is no field "{match[1]}"{_nearest(match[1], error)}',
        ),
        (
            r"Cannot extract field '(.*)' from expression \"(.*)\"",
            r'"\2" has no field "\1": it is no struct, and no JSON',
        ),
        (
            r'Cannot extract field from expression "(.*)\.\*"',
            r'"\1.*" is the fields of a struct, or the columns of a table; \1 is neither',
        ),
        (
            r"(WHERE|GROUP BY) clause cannot contain aggregates!",
            r"\1 has no aggregates; put a condition on groups into HAVING, or aggregate in a "
            "query in FROM",
        ),
        (
            r"(WHERE|GROUP BY|HAVING) clause cannot contain window functions!",
            r"\1 has no window functions; put a condition on them into QUALIFY, or compute them "
            "in a query in FROM",
        ),
        (
            r"(aggregate|window) function calls cannot (?:be nested|contain (?:window|aggregate))",
            r"\1 functions cannot have such a function as an argument; compute the inner one in a "
            "query in FROM",
        ),
        (
            r'column "(.*)" must appear in the GROUP BY clause',
            r'"\1" is neither in GROUP BY nor in an aggregate; group by it, or write '
            r"any_value(\1)",
        ),
        (
            r"(GROUP|ORDER)(?: BY)? term out of range - should be between 1 and (\d+)",
            r"a number in \1 BY names a column of the select list, from 1 to \2",
        ),
        (
            "at least one window function must appear",
            "QUALIFY is for window functions; write the condition in WHERE",
        ),
        (
            r'Column "(.*)" does not exist on (left|right) side of join!',
            r'USING needs a column of both sides; there is no "\1" on the \2 side',
        ),
        (
            "Set operations can only apply to expressions with the same number",
            "the queries of UNION, EXCEPT and INTERSECT must select as many columns as each other",
        ),
        (
            r"Subquery returns (\d+) columns - expected (\d+)",
            lambda match, _: (
                f"a subquery for one value must select {match[2]} "
                f"column{'s' * (match[2] != '1')}; it selects {match[1]}"
            ),
        ),
        (
            r'Column "(.*)" in (EXCLUDE|REPLACE) list not found',
            lambda match, error: (
                f'{match[2]} is of columns that * has; it has no "{match[1]}"'
                f"{_nearest(match[1], error)}"
            ),
        ),
        (
            "No columns found to join on in NATURAL JOIN",
            "the sides of the NATURAL JOIN have no column in common; write JOIN … ON",
        ),
        (
            r'Unknown ordered aggregate "(.*)"',
            r"\1() has no WITHIN GROUP, as quantile_cont(0.5) has; others take an order within "
            "the call, as in string_agg(x, ',' ORDER BY y)",
        ),
        (
            "Missing ASOF JOIN inequality",
            "ASOF JOIN needs an inequality in ON, as in o.placed >= p.since",
        ),
        (
            "RANGE frames must have only one ORDER BY",
            "a RANGE frame with a distance has one expression in ORDER BY; write ROWS or GROUPS",
        ),
        (
            r'The "(.*)" argument in function "(.*)" must be a constant',
            r"the argument \1 of \2() must be a constant",
        ),
        (
            "STAR expression is only allowed as the root",
            "* stands for columns in a select list; name the columns here",
        ),
        (
            r'Circular reference to CTE "(.*?)"',
            r'"\1" reads itself in its first part; read it in the part behind UNION',
        ),
        (
            r'GROUPING child ""?(.*?)""? must be',
            r'grouping() is of columns of GROUP BY; "\1" is none',
        ),
        ("GROUPING statement cannot be used without", "grouping() needs a GROUP BY"),
    )
]

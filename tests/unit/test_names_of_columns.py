"""A name is a name: columns may be called anything that SQL can quote, wherever names stand."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import ikebana as ik
from ikebana.errors import ConfigError, IkebanaError

Rows = list[tuple[Any, Any]]


def loaded(operators: Any, columns: dict[str, str], path: Path, **source: Any) -> ik.Pipeline:
    """A pipeline file with the input `t`, and the last operator as its output."""
    made = {"c": {"upsert": "t"}, **operators}
    document = {
        "pipeline": "p",
        "inputs": {"t": {"topic": "t", "columns": columns, **source}},
        "operators": made,
        "outputs": {"out": {"from": [*made][-1], "topic": "out"}},
        "kafka": {"bootstrap.servers": "nowhere:9092"},
        "run": {"checkpoint": "nowhere"},
    }
    file = path / "p.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return ik.load(file)


def rows(pipeline: ik.Pipeline, *records: Any) -> Rows:
    """The data of the output; there are no errors."""
    found = pipeline.evaluate(t=records)
    assert found["errors"] == []
    return [update.data for update in found["out"]]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


NAMES = [
    *("key", "value", "Key", "VALUE", "__op", "__row", "__field0", "__c0"),
    *("a b", "a.b", 'q"q', "it's", "\\", "$x", "/x", "ü", "full", "order", "group", "select"),
    *("k0", "there", "n", "of_key", "left", "[x]", "{x}", "%", "?", "null", "key_2"),
]


def uses(name: str) -> dict[str, tuple[Any, Rows]]:
    """Operators over a column of this name, with what they make of the value 5 under the key 7."""
    c = quoted(name)
    both = {"l": "c", "r": "c"}
    one: Rows = [(7, {name: 5})]
    of_group: Rows = [(5, {name: 5})]
    return {
        "linear": (
            {"x": {"linear": "c", "where": f"{c} > 4", "select": {name: f"{c} + 1"}, "key": c}},
            [(5, {name: 6})],
        ),
        "another step": (
            {
                "s": {"linear": "c", "select": {name: f"{c} + 1"}},
                "x": {"linear": "s", "where": f"{c} = 6", "select": {"y": c}},
            },
            [(7, {"y": 6})],
        ),
        "flat_map": (
            {"x": {"linear": "c", "flat_map": {name: f"[{c}]"}, "select": {"y": c}}},
            [(7, {"y": 5})],
        ),
        "the whole key and value": (
            {
                "x": {
                    "linear": "c",
                    "select": {
                        "k": "ikebana_key",
                        "v": f"(ikebana_value->>{path(name)})::BIGINT",
                    },
                }
            },
            [(7, {"k": 7, "v": 5})],
        ),
        "reduce": (
            {"x": {"reduce": "c", "by": c, "aggregates": {name: f"sum({c})"}}},
            [(5, {name: 5})],
        ),
        "join": (
            {
                "x": {
                    "delta_join": both,
                    "where": f"l.{c} = r.{c} AND l.{c} > 4",
                    "select": {name: f"l.{c}", "k": "r.ikebana_key"},
                    "key": f"r.{c}",
                }
            },
            [(5, {name: 5, "k": 7})],
        ),
        "as-of join": (
            {
                "x": {
                    "as_of_join": both,
                    "on": f"l.{c} = r.{c}",
                    "select": {name: f"r.{c}"},
                    "retract": "locked",
                    "locked_by": [name],
                }
            },
            one,
        ),
        "outer join": (
            {"x": {"left_join": both, "on": f"l.{c} = r.{c}", "select": {name: f"r.{c}"}}},
            one,
        ),
        "anti-join": ({"x": {"anti_join": both, "on": f"l.{c} < r.{c}"}}, [(7, {name: 5})]),
        "first": ({"x": {"first": "c", "order": f"{c} DESC", "partition": [name]}}, of_group),
        "distinct": ({"x": {"distinct": "c", "select": [name]}}, of_group),
        "view": (
            {"x": {"sql": f"SELECT {c}, ikebana_key::BIGINT + 1 AS k FROM c WHERE {c} > 4"}},
            [(7, {name: 5, "k": 8})],
        ),
        "star": ({"x": {"sql": f"SELECT * FROM c WHERE {c} = 5"}}, one),
        "groups": (
            {"x": {"sql": f"SELECT {c}, count(*) AS count FROM c GROUP BY {c}"}},
            [(5, {name: 5, "count": 1})],
        ),
        "view over a join": (
            {"x": {"sql": f"SELECT l.{c}, r.{c} AS other FROM c l JOIN c r ON l.{c} = r.{c}"}},
            [(7, {name: 5, "other": 5})],
        ),
        "using": ({"x": {"sql": f"SELECT {c} FROM c JOIN c AS d USING ({c})"}}, one),
        "exists": (
            {"x": {"sql": f"SELECT * FROM c WHERE EXISTS (FROM c d WHERE d.{c} = c.{c})"}},
            one,
        ),
    }


def path(name: str) -> str:
    """The text by which `->>` finds a field."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return text(name if name.isidentifier() else f'$."{escaped}"')


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_any_name_works_wherever_names_stand(name: str, tmp_path: Path) -> None:
    """In every section of a pipeline file, in views, and in keys."""
    for where, (operators, expected) in uses(name).items():
        made = loaded(operators, {name: "BIGINT"}, tmp_path)
        found = rows(made, (7, {name: 5}, 0))
        assert [data for _, data in found] == [data for _, data in expected], where
        if where in ("linear", "reduce", "join", "the whole key and value", "flat_map"):
            assert found == expected, where


@pytest.mark.parametrize("name", ["key", "value", "__op", "a.b", "order", "it's"])
def test_a_column_of_any_name_works_in_python_and_in_sql_files(name: str, tmp_path: Path) -> None:
    """The rules of names are those of SQL, not of a file's form."""
    c = quoted(name)
    shop = ik.Pipeline("shop")
    read = shop.topic("t", columns=[ik.Column(name, "BIGINT")]).upsert()
    read.where(f"{c} > 4").select(name, columns_by={"more": f"{c} + 1"}).to("out")
    file = tmp_path / "p.sql"
    file.write_text(
        "CREATE PIPELINE p WITH (kafka = (bootstrap.servers = 'n'), run = (checkpoint = 'c'));\n"
        f"CREATE SOURCE t ({c} BIGINT) FROM KAFKA (topic = 't');\n"
        f"CREATE VIEW v AS SELECT {c}, {c} + 1 AS more FROM t WHERE {c} > 4;\n"
        "CREATE SINK out FROM v INTO KAFKA (topic = 'out');\n"
    )
    expected = [(7, {name: 5, "more": 6})]

    assert rows(shop, (7, {name: 5}, 0)) == expected
    assert rows(ik.load(file), (7, {name: 5}, 0)) == expected


def test_key_is_the_whole_key_unless_a_column_has_the_name(tmp_path: Path) -> None:
    """A declared column comes first; `ikebana_key` is the whole key in any case."""
    select = {"x": {"linear": "c", "select": {"k": "key", "whole": "ikebana_key"}}}
    view = {"x": {"sql": "SELECT key::VARCHAR AS k, ikebana_key::VARCHAR AS whole FROM c"}}

    assert rows(loaded(select, {"a": "BIGINT"}, tmp_path), (7, {"a": 1}, 0)) == [
        (7, {"k": 7, "whole": 7})
    ]
    assert rows(loaded(select, {"key": "BIGINT"}, tmp_path), (7, {"key": 1}, 0)) == [
        (7, {"k": 1, "whole": 7})
    ]
    assert rows(loaded(view, {"a": "BIGINT"}, tmp_path), (7, {"a": 1}, 0)) == [
        (7, {"k": "7", "whole": "7"})
    ]
    assert rows(loaded(view, {"key": "BIGINT"}, tmp_path), (7, {"key": 1}, 0)) == [
        (7, {"k": "1", "whole": "7"})
    ]


def test_key_beside_a_column_that_differs_in_case_is_refused_with_both_ways(
    tmp_path: Path,
) -> None:
    """SQL would take `key` for the column "Key": so it means neither for sure."""
    with pytest.raises(ConfigError, match='there is no column "key", but "Key"; the whole key is'):
        loaded({"x": {"linear": "c", "select": {"k": "key"}}}, {"Key": "BIGINT"}, tmp_path)
    for way, expected in (('"Key"', 1), ("ikebana_key", 7)):
        operators = {"x": {"linear": "c", "select": {"k": way}}}
        made = loaded(operators, {"Key": "BIGINT"}, tmp_path)
        assert rows(made, (7, {"Key": 1}, 0)) == [(7, {"k": expected})]


def test_a_join_by_a_column_named_key_is_no_join_by_the_key(tmp_path: Path) -> None:
    """The state of an upsert is looked up by the whole key alone."""
    columns = {"key": "BIGINT"}
    operators = {
        "x": {
            "delta_join": {"l": "c", "r": "c"},
            "where": "l.key = r.key",
            "select": {"l": "l.ikebana_key", "r": "r.ikebana_key"},
        }
    }
    found = rows(loaded(operators, columns, tmp_path), (1, {"key": 5}, 0), (2, {"key": 5}, 0))

    pairs = sorted((value["l"], value["r"]) for _, value in found)
    assert pairs == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_names_of_ours_are_refused_with_a_way_that_works(tmp_path: Path) -> None:
    """Columns that begin with ikebana_ stand for what is no column; their fields can be read."""
    way = "ikebana_value->>'ikebana_x'"
    with pytest.raises(ConfigError, match="no column can be named so; leave it out: a field of"):
        loaded({}, {"ikebana_x": "BIGINT"}, tmp_path)
    with pytest.raises(ConfigError) as refused:
        loaded({"x": {"linear": "c", "select": {"x": "ikebana_x"}}}, {}, tmp_path)
    assert f'no column can be named "ikebana_x"; a field of it is {way}' in str(refused.value)

    for columns in ({}, {"a": "BIGINT"}):
        made = loaded({"x": {"linear": "c", "select": {"x": way}}}, columns, tmp_path)
        assert rows(made, (7, {"ikebana_x": 5}, 0)) == [(7, {"x": "5"})]


# Of each kind that a terminal does not show: controls, formats, line ends, private characters.
UNSEEN = "\t\n\r\x01\x1b\x7f\x85\xad\u200e\u202e\u2028\ue000\U000e0001\U0010ffff"


@pytest.mark.parametrize("character", [*UNSEEN, "\\\t", "'\t", '"\n'], ids=ascii)
def test_the_way_to_a_name_with_characters_that_nobody_sees_can_be_copied(
    character: str, tmp_path: Path
) -> None:
    """The refusal is one line that can be seen, and what it says to write is taken."""
    name = f"ikebana_{character}x"
    with pytest.raises(ConfigError) as refused:
        loaded({}, {name: "BIGINT"}, tmp_path)
    _, _, last = str(refused.value).partition("a field of it is ")
    way = last.rpartition(" (")[0]
    assert way.isprintable()

    made = loaded({"x": {"linear": "c", "select": {"x": way}}}, {}, tmp_path)
    assert rows(made, (7, {name: 5}, 0)) == [(7, {"x": "5"})]


def test_columns_that_differ_in_case_are_read_by_the_way_that_is_told(tmp_path: Path) -> None:
    """SQL does not see the case of a name: linear steps and joins tell how to read both."""
    columns = {"id": "BIGINT", "ID": "BIGINT"}
    row = (7, {"id": 1, "ID": 2}, 0)
    both = {"x": {"linear": "c", "select": {"a": "id", "b": '"ID"'}}}
    with pytest.raises(ConfigError, match="one of them is value->>'ID', as text"):
        loaded(both, columns, tmp_path)
    joined = {
        "x": {
            "delta_join": {"l": "c", "r": "c"},
            "where": "l.id = r.id",
            "select": {"a": "l.id", "b": 'concat(l.id, l."ID")'},
        }
    }
    with pytest.raises(ConfigError, match=r"one of them is l\.value->>'ID', as text"):
        loaded(joined, columns, tmp_path)

    way = {"x": {"linear": "c", "select": {"a": "id", "b": "(value->>'ID')::BIGINT"}}}
    assert rows(loaded(way, columns, tmp_path), row) == [(7, {"a": 1, "b": 2})]
    joined["x"]["select"] = {"a": "l.id", "b": "concat(l.id, l.value->>'ID')"}
    assert rows(loaded(joined, columns, tmp_path), row) == [(7, {"a": 1, "b": "12"})]


def test_a_view_reads_beside_columns_that_differ_in_case(tmp_path: Path) -> None:
    """What it does not read is no problem; the way that it tells for the others works."""
    columns = {"id": "BIGINT", "ID": "BIGINT", "x": "BIGINT"}
    row = (7, {"id": 1, "ID": 2, "x": 3}, 0)
    made = loaded({"v": {"sql": "SELECT x FROM c"}}, columns, tmp_path)
    assert rows(made, row) == [(7, {"x": 3})]

    for query in ("SELECT * FROM c", "SELECT id FROM c", 'SELECT "ID" FROM c'):
        with pytest.raises(ConfigError) as refused:
            loaded({"v": {"sql": query}}, columns, tmp_path)
        assert '"id" and "ID" of "c" differ in case alone' in str(refused.value)
        assert "select: {id: id, other: value->>'ID'} in its place" in str(refused.value)
    told = {
        "s": {"linear": "c", "select": {"id": "id", "other": "value->>'ID'"}},
        "v": {"sql": "SELECT * FROM s"},
    }
    assert rows(loaded(told, columns, tmp_path), row) == [(7, {"id": 1, "other": "2"})]


FLAT = {"id": 1, "v": "a", "__op": "c", "__source_ts_ms": 99, "__deleted": "false"}


def test_fields_that_a_transform_adds_are_columns_once_they_are_declared(tmp_path: Path) -> None:
    """Those of Debezium's ExtractNewRecordState: in a select, in a view, and as event time."""
    columns = {"id": "BIGINT", "v": "VARCHAR", "__op": "VARCHAR", "__source_ts_ms": "BIGINT"}
    source = {"format": "debezium-flat-json", "event_time": {"of": "__source_ts_ms"}}
    select = {"x": {"linear": "c", "select": {"v": "v", "op": "__op"}}}
    view = {"x": {"sql": "SELECT v, __op AS op FROM c WHERE __source_ts_ms = 99"}}

    for operators in (select, view):
        made = loaded(operators, columns, tmp_path, **source)
        found = made.evaluate(t=[({"id": 1}, FLAT, 0)])
        assert found["errors"] == []
        assert found["out"] == [(({"id": 1}, {"op": "c", "v": "a"}), 99, 1)]


ADDED = [
    *("value->>'__op'", "value->'__op'", "value->>'$.__op'", "value->>'$.\"__op\"'", "value.__op"),
    *("value->>'/__op'", "value['__op']", "json_extract_string(value, '$.__op')", "__op::VARCHAR"),
    *("(value).__op", "lower(value->>'__op')", "value->'__op'->>'x'"),
]


@pytest.mark.parametrize("columns", [{}, {"id": "BIGINT", "v": "VARCHAR"}], ids=["none", "some"])
@pytest.mark.parametrize("path", ADDED)
def test_a_field_that_a_transform_adds_is_refused_until_it_is_declared(
    path: str, columns: dict[str, str], tmp_path: Path
) -> None:
    """Wherever it is read, since it would be null in each row; then it has the message's value."""
    source = {"format": "debezium-flat-json"}
    of_join = path.replace("value", "r.value").replace("__op::", "r.__op::")
    select = {"id": "id", "op": path}
    uses: list[Any] = [
        {"linear": "c", "select": select},
        {"linear": "c", "where": f"({path}) IS NOT NULL"},
        {"reduce": "c", "by": path, "aggregates": {"n": "count(*)"}},
        {
            "delta_join": {"l": "c", "r": "c"},
            "where": "l.key::VARCHAR = r.key::VARCHAR",
            "select": {"op": of_join},
        },
    ]
    for use in uses:
        with pytest.raises(
            ConfigError, match=r'"__op".*declare it under inputs\.t\.columns\.__op'
        ):
            loaded({"x": use}, columns, tmp_path, **source)

    known = {"id": "BIGINT", "v": "VARCHAR", "__op": "VARCHAR"}
    for use in uses:
        assert loaded({"x": use}, known, tmp_path, **source).evaluate(t=[])["errors"] == []


def test_a_field_that_a_transform_adds_is_refused_behind_a_filter() -> None:
    """A function that drops rows leaves the others as they are; any other makes rows anew."""
    columns = [ik.Column("id", "BIGINT")]
    shop = ik.Pipeline("p")
    source = shop.topic("t", format="debezium-flat-json", columns=columns).upsert()
    source.filter(lambda _: True).select(op="value->>'__op'").to("out")
    with pytest.raises(ik.PlanError, match='no row has the field "__op"'):
        shop.plan()

    other = ik.Pipeline("p")
    source = other.topic("t", format="debezium-flat-json", columns=columns).upsert()
    mapped = source.map(lambda data: (data[0], {"__op": "mine"}))
    mapped.select(op="value->>'__op'").to("out")
    found = other.evaluate(t=[({"id": 1}, FLAT, 0)])
    assert [update.data[1] for update in found["out"]] == [{"op": "mine"}]


def test_a_field_that_is_declared_is_in_the_whole_value(tmp_path: Path) -> None:
    """By a path as by its name; and so is any other undeclared field of the row."""
    columns = {"id": "BIGINT", "__op": "VARCHAR"}
    select = {"a": "value->>'__op'", "b": "__op", "v": "value->>'v'"}
    operators = {"x": {"linear": "c", "select": select}}
    made = loaded(operators, columns, tmp_path, format="debezium-flat-json")

    assert rows(made, ({"id": 1}, FLAT, 0)) == [({"id": 1}, {"a": "c", "b": "c", "v": "a"})]


@pytest.mark.parametrize("word", ["full", "order", "group", "select", "left"])
def test_a_word_of_sql_without_quotes_is_refused_with_them(word: str, tmp_path: Path) -> None:
    """What is told works where it stands: in a select, in a condition and in a view."""
    columns = {word: "BIGINT"}
    for operators in (
        {"x": {"linear": "c", "select": {"n": word}}},
        {"x": {"linear": "c", "where": f"{word} > 1"}},
        {"x": {"sql": f"SELECT {word} FROM c"}},
    ):
        with pytest.raises(ConfigError) as refused:
            loaded(operators, columns, tmp_path)
        assert f'stand in double quotes, as in "{word}"' in str(refused.value)


@pytest.mark.parametrize("join", ["left_join", "anti_join", "semi_join"])
def test_rows_with_keys_of_bytes_meet_their_matches(join: str, tmp_path: Path) -> None:
    """What a join makes of their keys is what the rows without a match have."""
    operators = {"x": {join: {"l": "c", "r": "c"}, "on": ["l.age = r.age", "l.key <> r.key"]}}
    if join == "left_join":
        operators["x"]["select"] = {"age": "l.age", "r": "decode(r.key)"}
    source = {"format": {"key": "bytes", "value": "json"}}
    made = loaded(operators, {"age": "INTEGER"}, tmp_path, **source)

    found = rows(made, (b"a", {"age": 1}, 0), (b"b", {"age": 1}, 0), (b"c", {"age": 2}, 0))
    assert (
        sorted(str(value) for _, value in found)
        == {
            "left_join": [
                "{'age': 1, 'r': 'a'}",
                "{'age': 1, 'r': 'b'}",
                "{'age': 2, 'r': None}",
            ],
            "anti_join": ["{'age': 2}"],
            "semi_join": ["{'age': 1}", "{'age': 1}"],
        }[join]
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT age, decode(key) AS k FROM c WHERE age >= 20",
        "SELECT decode(key) AS k, sum(age) AS age FROM c GROUP BY key",
        "SELECT l.age, decode(r.key) AS k FROM c l JOIN c r ON l.key = r.key",
        "SELECT l.age, decode(r.key) AS k FROM c l LEFT JOIN c r ON l.key = r.key",
        "SELECT age, decode(key) AS k FROM c WHERE EXISTS (FROM c d WHERE d.key = c.key)",
        "SELECT DISTINCT age, decode(key) AS k FROM c",
        "SELECT age, decode(key) AS k FROM c "
        "QUALIFY row_number() OVER (PARTITION BY age ORDER BY age) = 1",
    ],
)
def test_views_read_inputs_with_keys_of_bytes(query: str, tmp_path: Path) -> None:
    """The key is a column of type BLOB, of which `decode` makes text."""
    source = {"format": {"key": "bytes", "value": "json"}}
    made = loaded({"v": {"sql": query}}, {"age": "INTEGER"}, tmp_path, **source)

    found = rows(made, (b"one", {"age": 21}, 0))
    assert [value for _, value in found] == [{"age": 21, "k": "one"}]


def test_bytes_as_values_have_no_columns_for_a_view(tmp_path: Path) -> None:
    """A linear operator makes columns of them."""
    with pytest.raises(IkebanaError, match='"c" has bytes for values; they must be JSON'):
        loaded({"v": {"sql": "SELECT 1 AS n FROM c"}}, {}, tmp_path, format="bytes")


def test_keys_and_unique_columns_are_declared_where_any_column_is(tmp_path: Path) -> None:
    """A misspelt one is told when the file is read, with the one that is meant."""
    columns = {"id": "BIGINT", "name": "VARCHAR"}
    with pytest.raises(ConfigError, match=r'inputs\.t\.unique: there is no column "nme"; did you'):
        loaded({}, columns, tmp_path, unique=["id", "nme"])
    with pytest.raises(ConfigError, match=r'inputs\.t\.key: there is no column "nope"; there are'):
        loaded({}, columns, tmp_path, format="maxwell", key="nope")

    loaded({}, columns, tmp_path, format="maxwell", key="id", unique="name")
    loaded({}, {}, tmp_path, format="maxwell", key="id", unique="name")


TABLE = {"a": "BIGINT", "s": "VARCHAR", "l": "BIGINT[]", "ts": "TIMESTAMP", "m": "MAP(INT, INT)"}


@pytest.mark.parametrize(
    ("key", "problem"),
    [([], "a list of one column or more"), (["a", "a"], "a list that names each column once")],
)
def test_a_key_names_columns_each_of_them_once(
    key: list[str], problem: str, tmp_path: Path
) -> None:
    """A refusal has the words of the file, not of the expression that a list becomes."""
    with pytest.raises(ConfigError, match=problem):
        loaded({"v": {"sql": "SELECT a FROM c", "key": key}}, TABLE, tmp_path)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT b FROM c", 'column 8: there is no column "b"; there are a, l, m, s, ts'),
        ("SELECT c.sa FROM c", 'there is no column "sa" of "c"; did you mean'),
        ("SELECT d.a FROM c", 'FROM names no "d"; the nearest are c'),
        ("SELECT x.a FROM c x, c y WHERE z.a = 1", 'FROM names no "z"; the nearest are'),
        ("SELECT summ(a) FROM c", "there is no function summ(); did you mean sum()?"),
        (
            "SELECT c.a FROM tumble(c, ts, INTERVAL '1 hour') GROUP BY c.a",
            'tumble(c, …) has no name in the query; write tumble(c, …) AS "c"',
        ),
        ("PIVOT c ON s USING sum(a)", "PIVOT needs the list of its values, as in PIVOT t ON kind"),
        ("SELECT * FROM c ORDER BY a LIMIT 1", '"m" is of type MAP(INTEGER, INTEGER): SQL orders'),
    ],
)
def test_a_view_is_refused_in_the_words_of_its_query(
    query: str, problem: str, tmp_path: Path
) -> None:
    """With the names that there are, and what to write instead."""
    with pytest.raises(ConfigError) as refused:
        loaded({"v": {"sql": query}}, TABLE, tmp_path)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT c.a FROM tumble(c, ts, INTERVAL '1 hour') AS c GROUP BY c.a",
        "SELECT sum(a) FILTER (WHERE s = 'x') AS x FROM c",
        "SELECT a FROM c WHERE EXISTS (SELECT 1 FROM c d WHERE d.a = c.a AND d.s = c.s)",
        "SELECT count(DISTINCT {'a': a, 'b': s}) AS n FROM c",
        "SELECT count(DISTINCT (a, s)) AS n FROM c",
        "SELECT a, unnest(l) AS e FROM c",
        "SELECT a, e FROM c, unnest(c.l) AS u(e)",
        "SELECT a FROM c JOIN (VALUES (1)) AS v(i) ON a = i",
    ],
)
def test_what_a_refusal_tells_to_write_is_taken(query: str, tmp_path: Path) -> None:
    """Each is the remedy of one of the refusals."""
    loaded({"v": {"sql": query}}, TABLE, tmp_path)

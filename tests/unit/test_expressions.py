"""What an expression may be: what it names, what it calls, and what is refused."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.processor.linear.database import connection, rows_of
from ikebana.processor.linear.expressions import parse, type_named
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError, Scope
from ikebana.processor.linear.syntax import (
    call_of,
    column,
    condition_texts,
    select_of,
    text_of,
    tree,
    tree_of,
)
from support.strategies import unhurried

CLOSED = Scope(
    {
        KEY: "JSON",
        VALUE: "JSON",
        "a": "BIGINT",
        "s": "VARCHAR",
        "l": "BIGINT[]",
        "b": "BOOLEAN",
    }
)
OPEN = Scope(CLOSED.types, open=True, declare="inputs.orders.columns")

BEYOND = "depends on more than the datum"
AGGREGATE = "is an aggregate, which has no meaning over one datum"


def refusal(text: str, scope: Scope = OPEN) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text, scope)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("now()", f"now() {BEYOND}"),
        ("NOW()", f"now() {BEYOND}"),
        ("main.now()", f"now() {BEYOND}"),
        ("a.now()", f"now() {BEYOND}"),
        ("current_timestamp", f"current_timestamp {BEYOND}"),
        ("Current_Date", f"Current_Date {BEYOND}"),
        ("localtime", f"localtime {BEYOND}"),
        ("current_localtime()", f"current_localtime() {BEYOND}"),
        ("current_localtimestamp()", f"current_localtimestamp() {BEYOND}"),
        ("ago(INTERVAL 1 DAY)", f"ago() {BEYOND}"),
        ("pg_conf_load_time()", f"pg_conf_load_time() {BEYOND}"),
        ("pg_postmaster_start_time()", f"pg_postmaster_start_time() {BEYOND}"),
        ("age(s::TIMESTAMP)", f"age() of one argument {BEYOND}"),
        ("random()", f"random() {BEYOND}"),
        ("list_transform(l, lambda x: random())", f"random() {BEYOND}"),
        ("[uuid() for x in l]", f"uuid() {BEYOND}"),
        ("CASE WHEN b THEN setseed(0.5) END", f"setseed() {BEYOND}"),
        ("list_aggr(l, 'reservoir_quantile', 0.5)", f"list_aggr() with a sample {BEYOND}"),
        (
            "list_aggregate(l, 'reservoir_' || 'quantile', 0.5)",
            "list_aggregate() needs the aggregate's name as a constant",
        ),
        ("aggregate(l, s)", "aggregate() needs the aggregate's name as a constant"),
        (
            "array_aggr(l, 'sum'::VARCHAR)",
            "array_aggr() needs the aggregate's name as a constant",
        ),
        ("list_aggr(l, 'smu')", 'there is no aggregate "smu"; did you mean "sum"?'),
        ("finalize(a)", f"finalize() {BEYOND}"),
        ("to_aggregate_state(a, 'x', [])", f"to_aggregate_state() {BEYOND}"),
        ("nextval('s')", f"nextval() {BEYOND}"),
        ("currval('s')", f"currval() {BEYOND}"),
        ("current_setting('threads')", f"current_setting() {BEYOND}"),
        ("getvariable('x')", f"getvariable() {BEYOND}"),
        ("current_user", f"current_user {BEYOND}"),
        ("version()", f"version() {BEYOND}"),
        ("pg_get_viewdef(1)", f"pg_get_viewdef() {BEYOND}"),
        ("format_type(1, 2)", f"format_type() {BEYOND}"),
        ("json_serialize_plan('SELECT 1')", f"json_serialize_plan() {BEYOND}"),
        ("getenv('HOME')", "there is no function getenv()"),
        ("'HOME'.getenv()", "there is no function getenv()"),
        ("read_text('/etc/passwd')", "there is no function read_text()"),
        ("read_csv('https://example.com/x')", "there is no function read_csv()"),
        ("query('SELECT 1')", "there is no function query()"),
        ("json_execute_serialized_sql(s)", "there is no function json_execute_serialized_sql()"),
        ("__internal_barrier(a)", "there is no function __internal_barrier()"),
        ("sum(a)", f"sum() {AGGREGATE}"),
        ("sum(a) FILTER (b)", f"sum() {AGGREGATE}"),
        ("count(*)", f"count_star() {AGGREGATE}"),
        ("wavg(a, a)", f"wavg() {AGGREGATE}"),
        ("json_group_array(a)", f"json_group_array() {AGGREGATE}"),
        ("unnest(l)", "unnest() makes several rows; a list does so in flat_map"),
        ("generate_subscripts(l, 1)", "generate_subscripts() makes several rows; a list does so"),
        ("row_number() OVER ()", "a window has no meaning over one datum"),
        ("sum(a) OVER ()", "a window has no meaning over one datum"),
        ("(SELECT 1)", "a subquery has no meaning over one datum"),
        ("EXISTS (SELECT 1)", "a subquery has no meaning over one datum"),
        ("a IN (SELECT 1)", "a subquery has no meaning over one datum"),
        ("(FROM read_text('/etc/passwd'))", "a subquery has no meaning over one datum"),
        ("*", '"*" has no meaning here; name the columns'),
        ("COLUMNS('a')", '"*" has no meaning here; name the columns'),
        ("?", "a parameter has no meaning here"),
        ("$x", "a parameter has no meaning here"),
        ("#1", "a positional reference has no meaning here"),
        ("DEFAULT", "a default has no meaning here"),
        ("a AS z", "an alias has no meaning here"),
        ("a, a", "it is not one expression"),
        ("a; SELECT 2", "it is not one expression"),
        ("a FROM '/etc/passwd'", "it is not one expression"),
        ("a FROM read_text('/etc/passwd')", "it is not one expression"),
        ("a WHERE true", "it is not one expression"),
        ("a LIMIT 1", "it is not one expression"),
        ("a ORDER BY a", "it is not one expression"),
        ("DISTINCT a", "it is not one expression"),
        ("a UNION SELECT 1", "it is not one expression; the updates of several operators"),
        ("a GROUP BY ALL", "it is not one expression; GROUP BY is a reduce operator's by"),
        ("a GROUP BY a", "it is not one expression; GROUP BY is a reduce operator's by"),
        ("a HAVING b", "it is not one expression; HAVING is a where in a linear operator"),
        ("length(s) FILTER (b)", "length() is no aggregate: FILTER has no meaning in it"),
        ("upper(DISTINCT s)", "upper() is no aggregate: DISTINCT has no meaning in it"),
        ("length(s ORDER BY a)", "length() is no aggregate: ORDER BY has no meaning in it"),
        ("uper(s)", "there is no function uper(); did you mean upper()?"),
        ("now() > s AND nam AND vlaue", f"now() {BEYOND}; until when a row counts is its valid_"),
        ("a\0", "it holds a character that SQL cannot"),
        ("'\ud800'", "it holds a character that SQL cannot"),
        ("ikebana_row", 'no column can be named "ikebana_row"; a field of it is ikebana_value->>'),
        (
            "x = 1",
            'the type of "x" is not known here; declare it under inputs.orders.columns.x, '
            "or cast it, as in x::BIGINT",
        ),
        ("x = X", 'the type of "x" is not known here; declare it under inputs.orders.columns.x'),
        ("a::FOO", "there is no type FOO"),
        ("ATTACH '/tmp/x'", "there is no type ATTACH"),
        ("x IS NULL AND X IS NULL", '"X" and "x" differ in case alone, which SQL does not see'),
        ("at", 'syntax error at or near "at"; names that SQL reserves stand in double quotes'),
        (
            "order > 5",
            'syntax error at or near ">"; names that SQL reserves stand in double quotes, '
            'as in "order"',
        ),
        (
            "at > 5",
            'syntax error at or near ">"; names that SQL reserves stand in double quotes, '
            'as in "at"',
        ),
        ("a > and > 5", 'syntax error at or near "and"'),
        ("order.a > and > 5", 'syntax error at or near "and"'),
        ("'order.a' || order", 'syntax error at or near "order"; names that SQL reserves stand'),
        ("1" + "+1" * 400, "it is nested too deeply"),
    ],
)
def test_an_expression_that_must_not_stand_is_refused(text: str, problem: str) -> None:
    """Whatever depends on more than one datum, and whatever is not one expression."""
    assert refusal(text).startswith(problem)


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '/tmp/x'",
        "1; COPY (SELECT 1) TO '/tmp/x'",
        "1; ATTACH '/tmp/x'",
        "ATTACH '/tmp/x'",
        "1; SET threads = 2",
        "1; INSTALL httpfs",
        "1; LOAD httpfs",
        "1; PRAGMA database_list",
        "1; CREATE TABLE t (a INTEGER)",
        "1 INTO t",
        "",
        " ",
        "-- nothing",
        "1)",
        "((1)",
    ],
)
def test_what_is_no_expression_is_refused(statement: str) -> None:
    """A statement is none, neither alone nor behind one."""
    assert refusal(statement)


def test_no_name_that_is_not_declared_is_let_through() -> None:
    """Where columns are declared, a misspelt one is told with those that there are."""
    assert refusal("nam", CLOSED) == 'there is no column "nam"; there are a, b, key, l, s, value'
    assert refusal("A", CLOSED) == 'there is no column "A"; did you mean "a"?'
    assert refusal("vlaue", CLOSED) == 'there is no column "vlaue"; did you mean "value"?'


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("x = 1", "BIGINT"),
        ("1 < x", "BIGINT"),
        ("x > 1.50", "DECIMAL(18,2)"),
        ("x = 'a'", "VARCHAR"),
        ("x IN ('a', 'b')", "VARCHAR"),
        ("x LIKE 'a%'", "VARCHAR"),
        ("x BETWEEN DATE '2020-01-01' AND DATE '2020-12-31'", "DATE"),
        ("x > s::TIMESTAMP", "TIMESTAMP"),
        ("x = a", "BIGINT"),
        ("x + 1 > a", "BIGINT"),
        ("upper(x) = 'A'", "VARCHAR"),
        ("date_trunc('day', x)", "TIMESTAMP"),
        ("x AND b", "BOOLEAN"),
        ("CASE WHEN x THEN 1 END", "BOOLEAN"),
    ],
)
def test_the_cast_that_is_proposed_fits(text: str, type_: str) -> None:
    """By what stands beside the column, and by the function that takes it."""
    assert refusal(text).endswith(f"or cast it, as in x::{type_}")


def test_all_that_is_wrong_with_an_expression_is_told() -> None:
    """Each column and each function once."""
    told = refusal("nam = 1 AND random() > 0.5 AND nam = 2 AND vlaue = 's'", CLOSED)

    assert told == (
        'there is no column "nam"; there are a, b, key, l, s, value; and random() '
        f'{BEYOND}; and there is no column "vlaue"; did you mean "value"?'
    )


def functions(condition: str) -> list[str]:
    rows = rows_of(f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {condition}")
    return sorted(name for (name,) in rows if re.fullmatch(r"[a-zA-Z]\w*", name))


def stands(name: str) -> bool:
    """Whether parse lets a call of the function through, however many arguments it has."""
    for arguments in ("", "s", "s, s", "s, s, s"):
        try:
            parse(f'"{name}"({arguments})', OPEN)
        except ExpressionError:
            continue
        return True
    return False


def test_no_volatile_function_is_let_through() -> None:
    """None whose result DuckDB itself does not call consistent, under any number of arguments."""
    volatile = functions("function_type = 'scalar' AND stability <> 'CONSISTENT'")

    assert {"random", "now", "nextval", "current_setting", "uuidv7"} <= set(volatile)
    assert [name for name in volatile if stands(name)] == []


def test_no_function_of_tables_is_let_through() -> None:
    """Those that read files, the catalog and settings are functions of this kind."""
    kinds = "('table', 'table_macro', 'pragma')"
    both = functions("function_type IN ('scalar', 'macro')")
    tables = [name for name in functions(f"function_type IN {kinds}") if name not in both]

    assert {"read_text", "read_csv", "glob", "duckdb_settings", "query"} <= set(tables)
    assert [name for name in tables if stands(name)] == []


def test_no_aggregate_is_let_through() -> None:
    """Not the windows' functions either."""
    both = functions("function_type IN ('scalar', 'macro')")
    found = functions("function_type IN ('aggregate', 'window')")

    assert {"sum", "count", "first", "string_agg", "lag"} <= set(found)
    assert [name for name in found if name not in both and stands(name)] == []


def test_whatever_is_let_through_gives_the_same_every_time() -> None:
    """A function without arguments that may stand is a constant, in a new database too."""
    found = [
        name
        for name in functions("function_type IN ('scalar', 'macro') AND len(parameters) = 0")
        if stands(name)
    ]
    constant = {"pi"}
    empty = {name for name in found if name.startswith(("list", "array", "map", "json", "struct"))}

    assert constant <= set(found)
    assert sorted(set(found) - constant - empty) == [
        *("add", "inet_client_addr", "inet_client_port", "inet_server_addr"),
        *("inet_server_port", "pg_my_temp_schema", "row", "row_to_json", "to_json"),
        *("union_value", "unpivot_list"),
    ]


def test_the_database_reaches_nothing() -> None:
    """Even what would get past the checks finds no file, no network and no extension."""
    for statement in (
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd.csv'",
        "COPY (SELECT 1) TO '/tmp/ikebana-must-not-be'",
        "ATTACH '/tmp/ikebana-must-not-be'",
        "SET enable_external_access = true",
    ):
        with pytest.raises(Exception, match=r"disabled|locked|Cannot|file system"):
            connection().execute(statement).fetchall()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a -- a comment", {"a"}),
        ("a /* a comment; SELECT */", {"a"}),
        ("'random()'", set()),
        ('"now"', {"now"}),
        ('"x.y"', {"x.y"}),
        ('"q""q"', {'q"q'}),
        ('"sel ect"', {"sel ect"}),
        ('"é😀"', {"é😀"}),
        ("x.y", {"x"}),
        ("x::BIGINT", {"x"}),
        ("X", {"X"}),
        ("x IS NULL", {"x"}),
        ("x->'y'->>'z'", {"x"}),
        ("key->>'a' = s", {KEY, "s"}),
        ("value", {VALUE}),
        ("list_transform(l, lambda x: x + a)", {"l", "a"}),
        ("[x for x in l if x > 1]", {"l"}),
        ("age(s::TIMESTAMP, s::TIMESTAMP)", {"s"}),
        ("list_sum(l) + list_first(l)", {"l"}),
        ("a BETWEEN 1 AND 2 OR s SIMILAR TO 'x.*' OR s COLLATE NOCASE = 'y'", {"a", "s"}),
        ("EXTRACT(year FROM s::DATE) + POSITION('x' IN s)", {"s"}),
        ("TRIM(BOTH ' ' FROM s) || SUBSTRING(s FROM 2) || OVERLAY(s PLACING 'x' FROM 1)", {"s"}),
        ("s::TIMESTAMP AT TIME ZONE 'Europe/Berlin'", {"s"}),
        ("CASE a WHEN 1 THEN l[1] ELSE l[1:2][1] END", {"a", "l"}),
        ("{'a': a, 'b': [s]}", {"a", "s"}),
        ("MAP {'a': a}", {"a"}),
        ("TRY(a // 0)", {"a"}),
        ("TRY_CAST(x AS BIGINT)", {"x"}),
        ("a IS DISTINCT FROM 1 AND s NOT LIKE 'x' AND NOT b", {"a", "s", "b"}),
    ],
)
def test_what_an_expression_reads(text: str, columns: set[str]) -> None:
    """The columns by their names in the data, whatever the SQL calls them."""
    assert parse(text, OPEN).columns == columns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", "INTEGER"),
        ("DECIMAL(38,10)", "DECIMAL(38,10)"),
        ("timestamptz", "TIMESTAMP WITH TIME ZONE"),
        ("struct(a int, b text[])", "STRUCT(a INTEGER, b VARCHAR[])"),
        ("json", "JSON"),
    ],
)
def test_types_have_one_name(text: str, expected: str) -> None:
    """The full name, as DuckDB writes it."""
    assert type_named(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "INT); SELECT (1", "INT) --", "INT) AS x --", "INT) + (1", "INT), (1", "1"],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    """The message quotes it."""
    with pytest.raises(ExpressionError, match=re.escape(f'"{text}" is not a SQL type')):
        type_named(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("DECIMAL(50,2)", "DECIMAL(p,s) has p digits, 38 at most"),
        ("NUMERIC(2,5)", "of which s follow the point; read longer numbers as VARCHAR"),
        ("TINYINT(1)", "TINYINT takes no such number in parentheses"),
        ("BLOB(10)", "BLOB takes no such number in parentheses"),
    ],
)
def test_numbers_that_a_type_does_not_take_are_told(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(why)):
        type_named(text)


def test_a_misspelt_type_is_told_with_what_it_is_like() -> None:
    """Whatever DuckDB calls it."""
    with pytest.raises(ExpressionError, match="did you mean TIMESTAMP"):
        type_named("TIMESTMP")


def test_the_parts_of_a_condition() -> None:
    """AND joins parts, in brackets too; OR does not."""
    assert condition_texts("a = 1 AND (b AND s = 'x OR y') AND (a = 2 OR b)") == [
        "(a = 1)",
        "b",
        "(s = 'x OR y')",
        "((a = 2) OR b)",
    ]
    assert condition_texts("a = 1 OR b") == ["a = 1 OR b"]
    for text in ("a = ", "a AND b, s", "a UNION SELECT b", "a AND b AS c", "a AND b FROM t"):
        assert condition_texts(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unnest(l)", ("unnest", "l")),
        ("UNNEST([1, 2])", ("unnest", "list_value(1, 2)")),
        ("repeat_row(a + 1)", ("repeat_row", "(a + 1)")),
        ("greatest(a, 1)", None),
        ("l", None),
        ("unnest(l); SELECT 1", None),
        ("unnest(", None),
    ],
)
def test_the_call_that_an_expression_is(text: str, expected: tuple[str, str] | None) -> None:
    """Of one function with one argument; anything else is none."""
    assert call_of(text) == expected


LITERALS = ["true", "false", "NULL::BOOLEAN"]


def conditions(depth: int = 3) -> st.SearchStrategy[str]:
    """AND, OR and NOT over true, false and null, nested."""
    return st.recursive(
        st.sampled_from(LITERALS),
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("({} AND {} AND {})".format, inner, inner, inner),
            st.builds("({} OR {} OR {})".format, inner, inner, inner),
            st.builds("(NOT {})".format, inner),
            st.builds("({} IS NULL)".format, inner),
            st.builds("({} IS NOT DISTINCT FROM {})".format, inner, inner),
        ),
        max_leaves=8,
    )


NAMES = st.one_of(
    st.text("aZ_9. $é\"日'-\n", min_size=1, max_size=4),
    st.sampled_from(["select", "Key", "value", "year", "LEFT", "current_date", "abs", "_", "_9"]),
)


@unhurried
@given(st.lists(NAMES, min_size=1, max_size=2), st.lists(st.booleans(), min_size=2, max_size=2))
def test_columns_are_read_and_written_as_duckdb_does_it(
    names: list[str], is_quoted: list[bool]
) -> None:
    """Which is quicker than asking it."""
    node = column(*names)
    statement = {"node": {**select_of("1"), "select_list": [node]}, "named_param_map": []}
    told = canonical.write({"error": False, "statements": [statement]}).decode()
    ((expected,),) = rows_of("SELECT json_deserialize_sql(?)", told)

    assert text_of(node) == expected.removeprefix("SELECT ").removesuffix(";")

    pairs = zip(names, is_quoted, strict=False)
    text = ".".join(f'"{name}"' if quotes else name for name, quotes in pairs)
    answer = tree_of(text)
    if not answer["error"] and len(answer["statements"]) == 1:
        parsed = answer["statements"][0]["node"]["select_list"]
        if parsed[0]["class"] == "COLUMN_REF" and len(parsed) == 1 and not parsed[0]["alias"]:
            assert select_of(text)["select_list"] == parsed
            return
    with suppress(ExpressionError):
        assert tree(text)["class"] != "COLUMN_REF"


@unhurried
@given(st.lists(conditions(), min_size=1, max_size=20))
def test_the_order_of_a_condition_never_changes_what_passes(texts: list[str]) -> None:
    """AND and OR as CASEs are true for exactly the rows that they are true for as they stand."""
    ordered = [parse(text, CLOSED, condition=True).sql for text in texts]
    both = ", ".join(
        f"({made}) IS TRUE, ({text}) IS TRUE" for made, text in zip(ordered, texts, strict=True)
    )
    ((*found,),) = rows_of(f"SELECT {both}")

    assert found[::2] == found[1::2]


def test_the_order_of_two_and_three_conditions_on_all_values() -> None:
    """All 27 rows of true, false and null, under every nesting of AND and OR over three."""
    scope = Scope({"p": "BOOLEAN", "q": "BOOLEAN", "r": "BOOLEAN"})
    shapes = [
        *("p AND q", "p OR q", "p AND q AND r", "p OR q OR r", "p AND (q OR r)", "p OR q AND r"),
        *("(p OR q) AND r", "p AND q OR r", "NOT (p AND q) OR r", "NOT (p OR q) AND r"),
    ]
    rows = " CROSS JOIN ".join(
        f"(VALUES (true), (false), (NULL)) AS {name}({name})" for name in "pqr"
    )
    for shape in shapes:
        made = parse(shape, scope, condition=True).sql
        found = rows_of(f"SELECT ({made}) IS TRUE, ({shape}) IS TRUE FROM {rows}")

        assert len(found) == 27
        assert [row for row in found if row[0] != row[1]] == [], shape

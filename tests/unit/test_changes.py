"""Changes in any form: the words of operations, rows before and after, flags of deleted rows."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from ikebana import Column, Input, Output, Plan, PlanError, Upsert, evaluate
from ikebana.codecs.change import Change, DeclaredColumns, Ignored, Needs
from ikebana.codecs.changes import WORDS, in_json
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.authoring.proposing.proposal import propose
from ikebana.processor.engine.testing.run import Run
from ikebana.processor.planning.checking import checked

KEY, ANN, ANNA = b'{"id":7}', b'{"id":7,"n":"ann"}', b'{"id":7,"n":"anna"}'
ROW, NEW = {"id": 7, "n": "ann"}, {"id": 7, "n": "anna"}


def read(message: Any, of_kafka: bytes | None = None, **wanted: Any) -> Any:
    """The changes of a message; by default the key is the column id."""
    codec = in_json(Needs(**{"key": ("id",), "before": True, **wanted}))
    value = (
        message if message is None or isinstance(message, bytes) else json.dumps(message).encode()
    )
    return codec.changes(of_kafka, value, None)


def refusal(message: Any, **wanted: Any) -> DecodeError:
    """The error of a message."""
    with pytest.raises(DecodeError) as caught:
        read(message, **wanted)
    assert "hunter2" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        *((word, [Change("upsert", KEY, ANNA)]) for word in WORDS["insert"]),
        *((word, [Change("upsert", KEY, ANNA, ANN, replaces=True)]) for word in WORDS["update"]),
        *((word, [Change("delete", KEY, None, ANN, replaces=True)]) for word in WORDS["delete"]),
        *((word, [Change("truncate")]) for word in WORDS["truncate"]),
    ],
)
def test_words_say_what_happens(word: str, changes: list[Change]) -> None:
    """Those of Debezium, GoldenGate and Flink, unless others are named."""
    assert read({"op": word, "before": ROW, "after": NEW}) == changes


@pytest.mark.parametrize(
    ("options", "message", "changes"),
    [
        pytest.param(
            {"op": "kind", "op_insert": "new, copy"},
            {"kind": "copy", "after": ROW},
            [Change("upsert", KEY, ANN)],
            id="own words",
        ),
        pytest.param(
            {"op_insert": "2, 4", "op_delete": "1"},
            {"op": 4, "id": 7, "n": "ann"},
            [Change("upsert", KEY, ANN)],
            id="numbers",
        ),
        pytest.param(
            {"op_delete": "c"},
            {"op": "c", **ROW},
            [Change("delete", KEY, None, ANN, replaces=True)],
            id="a word that is another one by default",
        ),
        pytest.param(
            {"op": "meta.op", "before": "data.old", "after": "data.new"},
            {"meta": {"op": "U"}, "data": {"old": ROW, "new": NEW}},
            [Change("upsert", KEY, ANNA, ANN, replaces=True)],
            id="fields within others",
        ),
        pytest.param(
            {"deleted": "gone"},
            {**ROW, "gone": False},
            [Change("upsert", KEY, ANN)],
            id="a flag that is false",
        ),
        pytest.param(
            {"deleted": "gone"},
            {**ROW, "gone": "true"},
            [Change("delete", KEY, None, ANN)],
            id="a flag that is true",
        ),
        pytest.param(
            {"deleted": "gone", "op": "op"},
            {"op": "u", "after": ROW, "gone": 1},
            [Change("delete", KEY, None, ANN)],
            id="a flag beside an operation",
        ),
        pytest.param({}, {"op": "+I", **ROW}, [Change("upsert", KEY, ANN)], id="a row by itself"),
        pytest.param(
            {},
            {"op": "-U", **ROW},
            [Change("delete", KEY, None, ANN, replaces=True)],
            id="an old row by itself",
        ),
        pytest.param(
            {},
            {"op": "u", "before": {"id": 6, "n": "ann"}, "after": ROW},
            [
                Change("delete", b'{"id":6}', None, b'{"id":6,"n":"ann"}', replaces=True),
                Change("upsert", KEY, ANN),
            ],
            id="another key",
        ),
        pytest.param(
            {},
            {"op": "u", "before": {"id": 7}, "after": ROW},
            [Change("upsert", KEY, ANN, None, replaces=True)],
            id="an old row of the key alone",
        ),
    ],
)
def test_options_name_the_fields_of_a_message(
    options: dict[str, str], message: Any, changes: list[Change]
) -> None:
    """And its words; what is named is no column."""
    assert read(message, options=options) == changes


@pytest.mark.parametrize("message", [{"op": "d"}, {"op": "d", "before": {}}])
def test_a_delete_without_columns_has_no_old_row(message: Any) -> None:
    """Only the Kafka key says which row is gone."""
    assert read(message, KEY, key=()) == [Change("delete", KEY, None, None, replaces=True)]


def test_a_field_that_says_what_happens_is_a_column_if_it_is_declared() -> None:
    """Otherwise it is not in the row."""
    declared = DeclaredColumns({"id": "BIGINT", "op": "VARCHAR"})

    assert read({"op": "I", "id": 7})[0].after == KEY
    assert read({"op": "I", "id": 7}, declared=declared)[0].after == b'{"id":7,"op":"I"}'


def test_minimal_images_lack_what_has_not_changed() -> None:
    """The state has it; a new row has all that it has."""
    wanted: dict[str, Any] = {
        "declared": DeclaredColumns({"id": "BIGINT", "n": "VARCHAR", "m": "VARCHAR"}),
        "options": {"row_image": "minimal"},
    }

    assert read({"op": "u", "after": ROW}, **wanted) == [
        Change("upsert", KEY, ANN, None, ("m",), replaces=True)
    ]
    assert read({"op": "c", "after": ROW}, **wanted) == [Change("upsert", KEY, ANN)]


def test_the_kafka_key_is_the_key_without_columns() -> None:
    """And that of a null value, which deletes."""
    assert read({"op": "c", "after": ROW}, b"7", key=()) == [Change("upsert", b"7", ANN)]
    assert read(None, b"7", key=()) == [Change("delete", b"7")]
    assert read(None, KEY) == [Change("delete", KEY)]
    assert read(None) == Ignored("tombstone")


def test_tables_are_chosen_by_their_field() -> None:
    """A null value names none."""
    wanted: dict[str, Any] = {"tables": r"shop\..*", "options": {"table": "meta.table"}}
    message = {"op": "c", "meta": {"table": "shop.rows"}, "after": ROW}

    assert read(message, **wanted) == [Change("upsert", KEY, ANN)]
    assert read({**message, "meta": {"table": "b.rows"}}, **wanted) == Ignored("table")
    assert read(None, KEY, **wanted) == Ignored("tombstone")
    ignoring = {**wanted, "options": {**wanted["options"], "op_ignore": "mark"}}
    assert read({"op": "mark"}, **ignoring) == Ignored("message")
    assert "field `meta.table` is missing" in refusal({"op": "c"}, **wanted).reason


@pytest.mark.parametrize(
    ("message", "reason", "key"),
    [
        (b"[1]", "expected an object", None),
        (b"{", "", None),
        ({"after": ROW}, "field `op` is missing", KEY),
        ({"op": "hunter2", "after": ROW}, "field `op` is no word of an operation", KEY),
        ({"op": True, "after": ROW}, "field `op` is no word of an operation", KEY),
        ({"op": "u", "after": None}, "field `after` is null or missing", None),
        ({"op": "u", "after": "hunter2"}, "field `after` is no object", None),
        ({"op": "c", "after": {"n": 1}}, "the Kafka key is null", None),
    ],
)
def test_what_is_no_change_is_refused(message: Any, reason: str, key: bytes | None) -> None:
    """With the key, if that can be read."""
    found = refusal(message)

    assert reason in found.reason
    assert found.key == key


def test_a_flag_that_is_neither_true_nor_false_is_refused() -> None:
    """Whatever the operation is."""
    found = refusal({**ROW, "gone": "hunter2"}, options={"deleted": "gone"})

    assert "neither true nor false" in found.reason


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"op_insert": "x", "op_delete": "y, x"}, 'option "op_delete" has "x"'),
        ({"op_insert": "x,"}, 'option "op_insert" has ""'),
        ({"row_image": "minimal"}, "no column is declared"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: dict[str, str], problem: str
) -> None:
    """When the file is read."""
    with pytest.raises(ConfigError, match=problem):
        in_json(Needs(options=options))
    source = Input("rows", ("rows",), "changes", options=tuple(options.items()))
    with pytest.raises(PlanError, match=problem):
        checked(plan_of(source))


def test_tables_need_the_field_of_their_names() -> None:
    """Messages have it under whatever name."""
    with pytest.raises(PlanError, match=r"inputs\.rows\.options\.table"):
        checked(plan_of(Input("rows", ("rows",), "changes", tables="a")))


def plan_of(source: Input) -> Plan:
    """The rows of an input, which are kept by key unless they are diffs."""
    if source.is_collection:
        return Plan("p", (source,), (), (Output("out", source.name, "out"),))
    return Plan("p", (source,), (Upsert("now", source.name),), (Output("out", "now", "out"),))


HISTORY = [
    {"op": "+I", "id": 1, "n": "a"},
    {"op": "-U", "id": 1, "n": "a"},
    {"op": "+U", "id": 2, "n": "b"},
    {"op": "-D", "id": 2, "n": "b"},
]


@pytest.mark.parametrize("mode", ["upsert", "diffs"])
def test_a_retracting_changelog_is_its_collection(mode: Any) -> None:
    """Row by row, also where an update changes the key."""
    columns = (Column("id", "BIGINT"), Column("n", "VARCHAR"))
    source = Input("rows", ("rows",), "changes", mode=mode, key=("id",), columns=columns)

    found = evaluate(
        plan_of(source), {"rows": [(None, row, at) for at, row in enumerate(HISTORY)]}
    )

    assert [(u.data[1]["n"], u.time, u.diff) for u in found["out"]] == [
        ("a", 0, 1),
        ("a", 1, -1),
        ("b", 2, 1),
        ("b", 3, -1),
    ]


def test_a_first_file_proposes_the_format() -> None:
    """Where messages have a word of an operation, and are of no known program."""
    samples = [Sample(b'{"id":7}', json.dumps(row).encode()) for row in HISTORY]

    found = propose("rows", samples)

    assert found.value == "changes"
    assert [column.name for column in found.columns] == ["id", "n"]
    assert propose("rows", [Sample(b"1", b'{"op":"add","n":1}')]).value == "json"


IN_ORDER = {"sequence": "meta.at timestamp, meta.lsn", "op": "meta.op"}


def placed(at: Any, lsn: Any, op: str = "u") -> dict[str, Any]:
    """A message with its place in the order of its source."""
    return {"meta": {"op": op, "at": at, "lsn": lsn}, "after": ROW}


@pytest.mark.parametrize(
    ("options", "message", "sequence"),
    [
        pytest.param(
            IN_ORDER, placed("1970-01-01T00:00:01.5Z", 7), (1_500_000_000, 7), id="two fields"
        ),
        pytest.param(
            IN_ORDER, placed("1970-01-01", "8.5"), (0, Decimal("8.5")), id="a number as a text"
        ),
        pytest.param({"sequence": "v"}, {"op": "c", **ROW, "v": 3}, (3,), id="a row by itself"),
        pytest.param(
            {"sequence": "n text"}, {"op": "c", "after": ROW}, ("ann",), id="a column of a row"
        ),
        pytest.param(
            {"sequence": "n text"}, {"op": "d", "before": ROW}, ("ann",), id="one of an old row"
        ),
        pytest.param(
            {"sequence": "v", "deleted": "gone"},
            {**ROW, "v": 3, "gone": 1},
            (3,),
            id="a row that is marked as deleted",
        ),
    ],
)
def test_a_sequence_is_read_of_a_message_or_its_row(
    options: dict[str, str], message: Any, sequence: tuple[Any, ...]
) -> None:
    """By the kind of each field, numbers unless another is named."""
    assert [change.sequence for change in read(message, options=options)] == [sequence]


def test_both_changes_of_a_changed_key_have_the_sequence() -> None:
    """The old key's row is gone by it, and the new one's is there."""
    old = {"id": 6, "n": "ann"}
    message = {"op": "u", "before": old, "after": ROW, "v": 3}

    assert [c.sequence for c in read(message, options={"sequence": "v"})] == [(3,), (3,)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"op": "c", "after": ROW}, "field `v` of the sequence is null or missing"),
        ({"op": "c", "after": ROW, "v": None}, "field `v` of the sequence is null or missing"),
        ({"op": "c", "after": ROW, "v": True}, "field `v` of the sequence is no number"),
        ({"op": "c", "after": ROW, "v": "hunter2"}, "field `v` of the sequence is no number"),
    ],
)
def test_a_message_without_its_place_is_refused(message: Any, reason: str) -> None:
    """Under its key, so that the next one that is right takes the error back."""
    found = refusal(message, options={"sequence": "v"})

    assert (found.reason, found.key) == (reason, KEY)


def test_what_no_sequence_can_order_is_left_out() -> None:
    """A null value follows a delete that says the same; a truncate is of all keys."""
    options = {"sequence": "v"}

    assert read(None, KEY, options=options) == Ignored("tombstone")
    assert "a truncate has no place" in refusal({"op": "t", "v": 3}, options=options).reason


@pytest.mark.parametrize(
    ("mode", "options", "problem"),
    [
        ("upsert", {"sequence": "a,"}, 'option "sequence" has "", which names no field'),
        ("upsert", {"sequence": "a", "row_image": "minimal"}, '"sequence" needs whole rows'),
        ("diffs", {"sequence": "a"}, '"sequence" needs a state'),
    ],
)
def test_a_sequence_that_could_not_be_kept_is_refused(
    mode: Any, options: dict[str, str], problem: str
) -> None:
    """When the file is read."""
    columns = (Column("id", "BIGINT"),)
    source = Input(
        "rows", ("rows",), "changes", mode=mode, columns=columns, options=tuple(options.items())
    )
    with pytest.raises(PlanError, match=problem):
        checked(plan_of(source))


@pytest.mark.parametrize("time", ["ingest", "offset"])
def test_an_outdated_change_is_counted_and_not_applied(time: Any) -> None:
    """In a later batch, after a restart and in another number of shards as well."""
    columns = (Column("id", "BIGINT"), Column("v", "BIGINT"), Column("gone", "BOOLEAN"))
    options = (("sequence", "v"), ("deleted", "gone"))
    source = Input("rows", ("rows",), "changes", key=("id",), columns=columns, options=options)
    run = Run(replace(plan_of(source), time=time), shards=2)

    def sent(*rows: tuple[int, int, bool]) -> list[Any]:
        for key, number, gone in rows:
            run.send("rows", None, {"id": key, "v": number, "gone": gone})
        run.batch()
        return sorted(row["v"] for _, row in run.collection("out"))

    assert sent((1, 5, False), (2, 5, False), (1, 4, False), (2, 7, True)) == [5]
    run.restart(shards=3)
    assert sent((2, 6, False), (1, 3, True), (1, 10, False)) == [10]
    assert sent((2, 70, False)) == [10, 70]
    assert run.counted["outdated"] == 3


def test_rows_without_what_has_not_changed_keep_it() -> None:
    """As Debezium's ExtractNewRecordState writes them with `drop.fields.header.name`."""
    columns = (Column("id", "BIGINT"), Column("a", "VARCHAR"), Column("b", "VARCHAR"))
    options = (("op", "__op"), ("deleted", "__deleted"), ("row_image", "minimal"))
    source = Input("rows", ("rows",), "changes", key=("id",), columns=columns, options=options)
    run = Run(plan_of(source))
    run.send("rows", None, {"id": 1, "a": "x", "b": "y", "__op": "c", "__deleted": "false"})
    run.send("rows", None, {"id": 1, "b": "z", "__op": "u", "__deleted": "false"})
    run.batch()

    assert [row for _, row in run.collection("out")] == [{"id": 1, "a": "x", "b": "z"}]

"""What the messages of an input come to: upserts, truncates, errors, or updates."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from ikebana import Input, Output, Plan, Upsert, evaluate
from ikebana.codecs.change import Column
from ikebana.codecs.formats import Format
from ikebana.processor.base.rows import NULL_KEY, SOME_ROW, KeyedUpdate, Partial
from ikebana.processor.linear.steps import Step, map_, project, select, where
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Linear
from ikebana.processor.topics.input_codec import codec_of
from ikebana.processor.topics.intake import DecodedUpserts, Intake
from ikebana.processor.topics.messages import Message

HERE = ("t", 0)
PLAIN = Input("in", ("t",))
BYTES = Input("in", ("t",), "bytes", "bytes")


def intake(source: Input, *branches: Sequence[Step]) -> Intake:
    """What takes in an input whose one collection every branch reads; none is all of it."""
    upserts = (Upsert("current", "in"),) if source.mode == "upsert" else ()
    root = "current" if upserts else "in"
    linears = [Linear(f"l{at}", root, tuple(steps)) for at, steps in enumerate(branches)]
    names = [linear.name for linear in linears] or [root]
    outputs = tuple(Output(f"of_{name}", name, f"o.{name}") for name in names)
    plan = Plan("p", (source,), (*upserts, *linears), outputs)
    physical = planner.physical(plan)
    return Intake(source, codec_of(source, physical.readings["in"], None), physical)


def message(offset: int, key: Any, value: Any) -> Message:
    """A message; what is not bytes is JSON."""
    return Message(offset, written(key), written(value))


def written(data: Any) -> bytes | None:
    """Data as a part of a message."""
    return data if data is None or isinstance(data, bytes) else json.dumps(data).encode()


def reasons(decoded: DecodedUpserts) -> dict[int, str]:
    """The reason of every error record that has no key, by offset."""
    return {offset: json.loads(record)["reason"] for offset, record in decoded.errors}


def debezium(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    """A Debezium event."""
    return {"op": op, "before": before, "after": after}


def maxwell(kind: str, data: Any = None, old: Any = None) -> dict[str, Any]:
    """A Maxwell message."""
    message = {"database": "d", "table": "t", "type": kind, "data": data, "old": old}
    return {name: value for name, value in message.items() if value is not None}


def canal(kind: str, *data: dict[str, str], old: Any = None) -> dict[str, Any]:
    """A flat message of Canal."""
    return {
        "database": "d",
        "table": "t",
        "type": kind,
        "isDdl": kind == "TRUNCATE",
        "pkNames": ["id"],
        "mysqlType": {"id": "int", "v": "int"},
        "sqlType": {"id": 4, "v": 4},
        "data": list(data) or None,
        "old": old,
    }


def cdc(value_format: Format, **more: Any) -> Input:
    """An input of change messages whose rows have the columns id, the key, and v."""
    columns = (Column("id", "BIGINT"), Column("v", "BIGINT"))
    key = ("id",) if value_format in ("maxwell", "canal") else ()
    return Input("in", ("t",), value_format, columns=columns, key=key, **more)


DEBEZIUM, MAXWELL, CANAL = cdc("debezium-json"), cdc("maxwell"), cdc("canal")
K1, K2 = b'{"id":1}', b'{"id":2}'
ROW1, ROW2, CHANGED1 = b'{"id":1,"v":1}', b'{"id":2,"v":1}', b'{"id":1,"v":2}'

# The same history in every format: two inserts, an update, a delete, a tombstone perhaps.
HISTORIES: dict[str, list[tuple[Any, Any]]] = {
    "debezium-json": [
        ({"id": 1}, debezium("c", {"id": 1, "v": 1})),
        ({"id": 2}, debezium("r", {"v": 1.0, "id": 2})),
        ({"id": 1}, debezium("u", {"id": 1, "v": 2}, {"id": 1, "v": 1})),
        ({"id": 2}, debezium("d", None, {"id": 2, "v": 1})),
    ],
    "maxwell": [
        (None, maxwell("insert", {"id": 1, "v": 1})),
        (None, maxwell("bootstrap-insert", {"v": 1.0, "id": 2})),
        (None, maxwell("update", {"id": 1, "v": 2}, {"v": 1})),
        (None, maxwell("delete", {"id": 2, "v": 1})),
    ],
    "canal": [
        (None, canal("INSERT", {"id": "1", "v": "1"}, {"id": "2", "v": "1"})),
        (None, canal("UPDATE", {"id": "1", "v": "2"}, old=[{"v": "1"}])),
        (None, canal("DELETE", {"id": "2", "v": "1"})),
    ],
    "json": [
        ({"id": 1}, {"id": 1, "v": 1}),
        ({"id": 2}, {"v": 1.0, "id": 2}),
        ({"id": 1}, {"id": 1, "v": 2}),
        ({"id": 2}, None),
    ],
    "bytes": [(K1, ROW1), (K2, ROW2), (K1, CHANGED1), (K2, None)],
}
SOURCES = {
    "debezium-json": DEBEZIUM,
    "maxwell": MAXWELL,
    "canal": CANAL,
    "json": PLAIN,
    "bytes": BYTES,
}


@pytest.mark.parametrize(
    ("value_format", "offsets"),
    [
        ("debezium-json", [10, 12, 14, 16]),
        ("maxwell", [10, 12, 14, 16]),
        ("canal", [10, 10, 12, 14]),
        ("json", [10, 12, 14, 16]),
        ("bytes", [10, 12, 14, 16]),
    ],
)
def test_every_format_comes_to_the_same_symbols(value_format: str, offsets: list[int]) -> None:
    """In order, several of one message perhaps; updates and deletes say what there was."""
    source = SOURCES[value_format]
    history = HISTORIES[value_format]
    messages = [message(10 + 2 * at, *record) for at, record in enumerate(history)]
    decoded = intake(source).upserts(messages, HERE)

    assert decoded == DecodedUpserts(
        keys=[K1, K2, K1, K2],
        values=[ROW1, ROW2, CHANGED1, None],
        offsets=offsets,
        before={2: crc32(ROW1), 3: SOME_ROW} if source.columns else {},
    )


def test_without_drift_old_images_are_not_read() -> None:
    """Nothing of them is known then, and nothing is compared."""
    decoded = intake(cdc("debezium-json", drift=False)).upserts(
        [message(10, {"id": 1}, debezium("u", {"id": 1, "v": 2}, {"id": 1, "v": 1}))], HERE
    )

    assert (decoded.values, decoded.before) == ([CHANGED1], {})


@pytest.mark.parametrize(
    ("source", "change"),
    [
        pytest.param(
            replace(DEBEZIUM, key=("id",)),
            debezium("u", {"id": 2, "v": 1}, {"id": 1, "v": 1}),
            id="debezium",
        ),
        pytest.param(MAXWELL, maxwell("update", {"id": 2, "v": 1}, {"id": 1}), id="maxwell"),
        pytest.param(CANAL, canal("UPDATE", {"id": "2", "v": "1"}, old=[{"id": "1"}]), id="canal"),
    ],
)
def test_a_changed_key_is_two_symbols_of_one_message(
    source: Input, change: dict[str, Any]
) -> None:
    """The old key is removed first; both have the message's offset."""
    decoded = intake(source).upserts([message(10, None, change)], HERE)

    assert decoded == DecodedUpserts(
        keys=[K1, K2], values=[None, ROW2], offsets=[10, 10], before={0: crc32(ROW1)}
    )


TRUNCATES = [
    pytest.param(DEBEZIUM, debezium("t"), id="debezium"),
    pytest.param(CANAL, canal("TRUNCATE"), id="canal"),
]


@pytest.mark.parametrize(("source", "truncate"), TRUNCATES)
def test_a_truncate_stands_before_the_symbol_that_follows_it(
    source: Input, truncate: dict[str, Any]
) -> None:
    """Its place is an index among the upserts, and the offset of its message."""
    first, second = HISTORIES[source.value_format][:1], HISTORIES[source.value_format][1:2]
    records = [*first, (None, truncate), (None, truncate), *second, (None, truncate)]
    decoded = intake(source).upserts(
        [message(10 + at, *record) for at, record in enumerate(records)], HERE
    )
    count = decoded.offsets.count(10)

    assert decoded.truncates == [(count, 11), (count, 12), (len(decoded.keys), 14)]
    assert (set(decoded.offsets), decoded.errors) == ({10, 13}, [])


@pytest.mark.parametrize(("source", "truncate"), TRUNCATES)
def test_a_truncate_among_several_partitions_is_an_error(
    source: Input, truncate: dict[str, Any]
) -> None:
    """It has no place in their order; nothing is removed."""
    decoded = intake(source).upserts([message(10, None, truncate)], HERE, 3)

    assert (decoded.keys, decoded.truncates) == ([], [])
    assert reasons(decoded) == {
        10: "a truncate has no place in the order of the input's 3 partitions"
    }


@pytest.mark.parametrize(
    ("source", "key", "value", "readable"),
    [
        pytest.param(DEBEZIUM, {"id": 1}, {"op": "c"}, K1, id="debezium, bad value"),
        pytest.param(DEBEZIUM, b"{", debezium("c", {"id": 1}), None, id="debezium, bad key"),
        pytest.param(DEBEZIUM, None, debezium("c", {"id": 1}), None, id="debezium, no key"),
        pytest.param(MAXWELL, None, {**maxwell("insert", {"id": 1}), "type": 5}, K1, id="maxwell"),
        pytest.param(MAXWELL, None, b"{", None, id="maxwell, no JSON"),
        pytest.param(CANAL, None, canal("INSERT", {"id": "1", "v": "x"}), K1, id="canal"),
        pytest.param(
            CANAL,
            None,
            canal("INSERT", {"id": "1", "v": "x"}, {"id": "2", "v": "1"}),
            None,
            id="canal, one of several rows",
        ),
        pytest.param(PLAIN, 1.0, b"{", b"1", id="json, bad value"),
        pytest.param(PLAIN, b"{", b"1", None, id="json, bad key"),
        pytest.param(PLAIN, None, b"1", NULL_KEY, id="json, no key"),
        pytest.param(BYTES, None, b"1", NULL_KEY, id="bytes, no key"),
    ],
)
def test_what_cannot_be_used_is_an_error_under_its_key_if_that_is_readable(
    source: Input, key: Any, value: Any, readable: bytes | None
) -> None:
    """The record says where it is from; the good messages around it are as ever."""
    good = HISTORIES[source.value_format][0]
    messages = [message(10, *good), message(11, key, value), message(12, *good)]
    decoded = intake(source).upserts(messages, HERE)
    records = [*decoded.errors, *((decoded.offsets[at], bad) for at, bad in decoded.bad.items())]

    assert [offset for offset, _ in records] == [11]
    assert {
        name: json.loads(records[0][1])[name] for name in ("topic", "partition", "offset")
    } == {
        "topic": "t",
        "partition": 0,
        "offset": 11,
    }
    assert [decoded.keys[at] for at in decoded.bad] == ([] if readable is None else [readable])
    assert [decoded.values[at] for at in decoded.bad] == ([] if readable is None else [None])
    assert {10, 12} <= set(decoded.offsets)


def test_what_says_nothing_of_a_row_is_counted() -> None:
    """By kind, and it is neither upsert nor error."""
    messages = [message(10, {}, {"ts_ms": 1}), message(11, {}, {"ts_ms": 2})]
    messages.append(message(12, {"id": 1}, debezium("m")))
    decoded = intake(DEBEZIUM).upserts(messages, HERE)

    assert dict(decoded.ignored) == {"heartbeat": 2, "message": 1}
    assert (decoded.keys, decoded.errors) == ([], [])


def test_a_partial_image_is_told_with_what_it_leaves() -> None:
    """The upsert has no value of its own; the record is for the case that there is no row."""
    event = debezium("u", {"id": 1, "v": "__debezium_unavailable_value"})
    decoded = intake(DEBEZIUM).upserts([message(10, {"id": 1}, event)], HERE)
    partial = decoded.partial[0]

    assert (decoded.keys, decoded.values) == ([K1], [None])
    assert partial == Partial(b'{"id":1}', ("v",), partial.record)
    assert json.loads(partial.record)["reason"] == (
        "the message leaves columns as they are, of a row that is not there"
    )


UNREAD = b"\xffnot even JSON"


@pytest.mark.parametrize(
    ("source", "conditions", "key", "other"),
    [
        pytest.param(PLAIN, ("key::BIGINT < 9",), 10, 1, id="json, a number"),
        pytest.param(PLAIN, ("(key->>'id')::BIGINT < 9",), {"id": 10}, {"id": 1}, id="json"),
        pytest.param(BYTES, ("octet_length(key) = 1",), b"ab", b"a", id="bytes"),
        pytest.param(DEBEZIUM, ("key->>'id' = '1'",), {"id": 2}, {"id": 1}, id="debezium"),
    ],
)
def test_a_key_that_does_not_pass_is_dropped_unread(
    source: Input, conditions: Sequence[str], key: Any, other: Any
) -> None:
    """A message whose value is not even JSON is neither upsert nor error nor counted."""
    value = None if source is not DEBEZIUM else debezium("d", None, {"id": 1, "v": 1})
    messages = [message(10, key, UNREAD), message(11, other, value), message(12, key, UNREAD)]
    decoded = intake(source, [where(*conditions)]).upserts(messages, HERE)

    assert (decoded.offsets, decoded.values) == ([11], [None])
    assert (decoded.bad, decoded.errors, decoded.ignored) == ({}, [], {})


def test_a_key_passes_if_any_reader_wants_it() -> None:
    """Each reader has its own condition; a message of no reader is dropped."""
    branches = [where("(key->>'id')::BIGINT < 3")], [where("(key->>'id')::BIGINT > 7")]
    messages = [message(key, {"id": key}, {"v": key}) for key in range(10)]
    decoded = intake(PLAIN, *branches).upserts(messages, HERE)

    assert decoded.offsets == [0, 1, 2, 8, 9]


def test_without_a_condition_of_one_reader_every_key_passes() -> None:
    """Who has no condition reads all."""
    messages = [message(key, {"id": key}, {"v": key}) for key in range(3)]
    decoded = intake(PLAIN, [where("key->>'id' = '1'")], [project("v")]).upserts(messages, HERE)

    assert decoded.offsets == [0, 1, 2]


def test_a_key_that_the_condition_fails_on_passes() -> None:
    """It is an error behind the upsert as it would have been, and not dropped before it."""
    keys = [{"id": "x"}, {"id": 10}, {"id": 1}]
    messages = [message(10 + at, key, {"v": 1}) for at, key in enumerate(keys)]
    branches = [where("(key->>'id')::BIGINT < 9")], [where("(key->>'id')::BIGINT < 5")]
    decoded = intake(PLAIN, *branches).upserts(messages, HERE)

    assert decoded.keys == [b'{"id":"x"}', b'{"id":1}']


def test_where_only_the_row_tells_the_key_it_is_dropped_after_reading() -> None:
    """Rows of one message part ways, truncates and errors without a key stay."""
    records = [
        canal("INSERT", {"id": "1", "v": "1"}, {"id": "2", "v": "1"}),
        canal("TRUNCATE"),
        UNREAD,
        canal("DELETE", {"id": "2", "v": "1"}),
    ]
    messages = [message(10 + at, None, record) for at, record in enumerate(records)]
    decoded = intake(CANAL, [where("id = 1")]).upserts(messages, HERE)

    assert (decoded.keys, decoded.values, decoded.offsets) == ([K1], [ROW1], [10])
    assert (decoded.truncates, [offset for offset, _ in decoded.errors]) == ([(1, 11)], [12])


@pytest.mark.parametrize("source", [PLAIN, DEBEZIUM], ids=["json", "debezium"])
def test_columns_that_nobody_reads_are_not_in_the_value(source: Input) -> None:
    """Of two readers each column that either wants is kept."""
    row = {"v": 1, "w": 2, "id": 3}
    value = row if source is PLAIN else debezium("c", row)
    branches = [project("id")], [select(twice="v::BIGINT * 2")]
    decoded = intake(source, *branches).upserts([message(10, {"id": 3}, value)], HERE)

    assert decoded.values == [b'{"id":3,"v":1}']


def test_steps_that_are_pushed_make_the_value_or_a_tombstone() -> None:
    """What a condition rejects is no value; the upsert stays, to remove what was there."""
    messages = [message(at, at, {"v": at}) for at in range(3)] + [message(3, 1, None)]
    decoded = intake(PLAIN, [where("v::BIGINT <> 1"), select(d="v::BIGINT * 2")]).upserts(
        messages, HERE
    )

    assert decoded == DecodedUpserts(
        keys=[b"0", b"1", b"2", b"1"],
        values=[b'{"d":0}', None, b'{"d":4}', None],
        offsets=[0, 1, 2, 3],
    )


def test_a_row_that_a_pushed_step_fails_on_is_a_failed_symbol() -> None:
    """It has no value and an error record of the operator; the others are as ever."""
    messages = [message(0, 1, {"v": 1}), message(1, 2, {"v": "x"}), message(2, 3, b"{")]
    decoded = intake(PLAIN, [select(d="v::BIGINT * 2")]).upserts(messages, HERE)
    (record,) = map(json.loads, decoded.failed.values())

    assert (decoded.keys, decoded.values) == ([b"1", b"2", b"3"], [b'{"d":2}', None, None])
    assert (list(decoded.failed), list(decoded.bad)) == ([1], [2])
    assert (record["topic"], record["value"]) == (None, None)
    assert record["reason"].startswith("operator l0: ")


def test_steps_that_two_readers_do_not_share_are_not_pushed() -> None:
    """The value stays what both can read."""
    branches = [where("v::BIGINT = 1")], [where("v::BIGINT = 2")]
    decoded = intake(PLAIN, *branches).upserts([message(0, 1, {"v": 3})], HERE)

    assert decoded.values == [b'{"v":3}']


@pytest.mark.parametrize("size", [0, 1, 2])
def test_any_part_of_the_messages_comes_to_its_part_of_the_symbols(size: int) -> None:
    """A message is decoded in by itself: one bad one changes nothing for its neighbours."""
    messages = [message(0, 1, {"v": 1}), message(1, 2, b"{"), message(2, b"{", b"1")]
    whole = intake(PLAIN).upserts(messages, HERE)
    part = intake(PLAIN).upserts(messages[:size], HERE)

    assert (part.keys, part.values) == (whole.keys[:size], whole.values[:size])
    assert list(part.bad) == [at for at in whole.bad if at < size]


def made(source: Input, records: Sequence[tuple[Any, Any]], *steps: Step) -> tuple[Any, Any]:
    """Updates by outputs, and errors as (reason, time, diff); message at has time 100 + at."""
    messages = [message(10 + at, *record) for at, record in enumerate(records)]
    branches = (steps,) if steps else ()
    found = intake(source, *branches).updates(
        messages, HERE, [100 + at for at in range(len(records))]
    )
    return (
        [(branch.outputs, updates) for branch, updates in found.updates],
        [(json.loads(u.value)["reason"], u.time, u.diff) for u in found.errors],
    )


@pytest.mark.parametrize("value_format", ["debezium-json", "maxwell", "canal"])
def test_diffs_are_told_by_old_and_new_images(value_format: str) -> None:
    """- the old image, + the new one, at the message's time; an insert has no old one."""
    source = replace(SOURCES[value_format], mode="diffs")
    times = [100, 100, 101, 102] if value_format == "canal" else [100, 101, 102, 103]
    updates, errors = made(source, HISTORIES[value_format])

    assert errors == []
    assert updates == [
        (
            ("of_in",),
            [
                KeyedUpdate(K1, ROW1, times[0], 1),
                KeyedUpdate(K2, ROW2, times[1], 1),
                KeyedUpdate(K1, ROW1, times[2], -1),
                KeyedUpdate(K1, CHANGED1, times[2], 1),
                KeyedUpdate(K2, ROW2, times[3], -1),
            ],
        )
    ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param(
            debezium("u", {"id": 1, "v": 1}),
            "could not decode old image: it is missing, or lacks columns, "
            "and without state nothing else tells it",
            id="update without an old image",
        ),
        pytest.param(
            debezium("d"),
            "could not decode old image: it is missing, or lacks columns, "
            "and without state nothing else tells it",
            id="delete without an old image",
        ),
        pytest.param(
            debezium("u", {"id": 1, "v": 1}, {"id": 1}),
            "could not decode old image: it is missing, or lacks columns, "
            "and without state nothing else tells it",
            id="an old image that lacks a column",
        ),
        pytest.param(
            debezium("u", {"id": 1, "v": "__debezium_unavailable_value"}, {"id": 1, "v": 1}),
            "could not decode new image: it lacks 1 columns",
            id="a partial new image",
        ),
        pytest.param(
            debezium("t"),
            "could not decode truncate: without state there is nothing to tell what is gone",
            id="truncate",
        ),
    ],
)
def test_diffs_that_images_do_not_tell_are_errors_that_say_so(
    event: dict[str, Any], reason: str
) -> None:
    """Nothing keeps state, so the error stands for ever; nothing of the message is used."""
    source = replace(DEBEZIUM, mode="diffs", columns=())
    good = ({"id": 2}, debezium("c", {"id": 2, "v": 1}))
    ((_, updates),), errors = made(source, [({"id": 1}, event), good])

    assert updates == [KeyedUpdate(K2, ROW2, 101, 1)]
    assert errors == [(reason, 100, 1)]


def test_a_message_of_several_rows_is_used_as_a_whole_or_not_at_all() -> None:
    """One row whose images do not tell all leaves none of the others, whichever keys pass."""
    both = canal(
        "UPDATE",
        {"id": "1", "v": "2"},
        {"id": "2"},
        old=[{"v": "1"}, {}],
    )
    source = replace(CANAL, mode="diffs", options=(("row_image", "minimal"),))
    moved = maxwell("update", {"id": 2, "v": 2}, {"id": 1})
    narrow = replace(MAXWELL, mode="diffs", options=(("output_nulls", "false"),))
    of_key = where("key->>'id' = '2'")

    for input_, message, steps in (
        (source, both, [project("id", "v")]),
        (narrow, moved, [project("id", "v")]),
        (narrow, moved, [of_key, project("id", "v")]),
    ):
        ((_, updates),), errors = made(input_, [(None, message)], *steps)

        assert updates == []
        assert [(time, diff) for _, time, diff in errors] == [(100, 1)]


def test_a_tombstone_after_a_delete_says_nothing_more() -> None:
    """The delete has told the old image; the repeat is neither update nor error."""
    source = replace(DEBEZIUM, mode="diffs")
    records = [({"id": 1}, debezium("d", None, {"id": 1, "v": 1})), ({"id": 1}, None)]

    assert made(source, records) == (
        [(("of_in",), [KeyedUpdate(K1, ROW1, 100, -1)])],
        [],
    )


def test_diffs_go_through_their_branch_at_once() -> None:
    """Steps are applied where the message is decoded; what they fail on is an error."""
    source = replace(DEBEZIUM, mode="diffs")
    records = [
        ({"id": 1}, debezium("u", {"id": 1, "v": 2}, {"id": 1, "v": 1})),
        ({"id": 2}, debezium("c", {"id": 2, "v": 0})),
    ]
    steps = (
        where("v > 0"),
        select(half="CASE WHEN v = 1 THEN CAST('x' || v AS BIGINT) ELSE v // 2 END"),
    )
    updates, errors = made(source, records, *steps)

    assert updates == [(("of_l0",), [KeyedUpdate(K1, b'{"half":1}', 100, 1)])]
    assert [(time, diff) for _, time, diff in errors] == [(100, -1)]


def boom(data: Any) -> Any:
    """Fails on every datum."""
    raise RuntimeError


def test_an_error_of_a_step_leaves_with_its_datum() -> None:
    """- the old image takes back the error that + the same image has given."""
    source = replace(DEBEZIUM, mode="diffs")
    records = [
        ({"id": 1}, debezium("c", {"id": 1, "v": 1})),
        ({"id": 1}, debezium("d", None, {"id": 1, "v": 1})),
    ]
    _, errors = made(source, records, map_(boom))

    assert len({reason for reason, _, _ in errors}) == 1
    assert [(time, diff) for _, time, diff in errors] == [(100, 1), (101, -1)]


@pytest.mark.parametrize("depth", [200, 201, 100_000])
@pytest.mark.parametrize("form", ["json", "debezium-json", "maxwell"])
def test_what_is_nested_too_deeply_is_an_error_wherever_it_is_read(form: str, depth: int) -> None:
    """The limit is one of depth, not of whatever stack a later decoding has left."""
    plan = Plan(
        "p",
        (Input("rows", ("rows",), form),),  # type: ignore[arg-type]
        (Upsert("current", "rows"),),
        (Output("out", "current", "out"),),
    )
    value = b"[" * depth + b"]" * depth

    found = evaluate(plan, {"rows": [({"id": 1}, value, 1)]})

    reasons = [update.data["reason"] for update in found["errors"]]
    deep = "could not decode value as JSON: it is nested more than 200 deep"
    assert (reasons == [deep]) == (depth > 200)
    assert bool(found["out"]) == (form == "json" and depth <= 200)


def test_a_key_that_is_nested_too_deeply_is_an_error_on_its_own() -> None:
    """No key leads to it, and the records beside it go on."""
    plan = Plan(
        "p",
        (Input("rows", ("rows",)),),
        (Upsert("current", "rows"),),
        (Output("out", "current", "out"),),
    )

    found = evaluate(plan, {"rows": [(b"[" * 201 + b"]" * 201, 1, 1), ("a", 2, 1)]})

    assert [update.data["reason"] for update in found["errors"]] == [
        "could not decode key as JSON: it is nested more than 200 deep"
    ]
    assert [update.data for update in found["out"]] == [("a", 2)]

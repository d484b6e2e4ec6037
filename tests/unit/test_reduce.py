"""What reduce gives for literal rows, what it keeps of them, and what it reads."""

import re
from collections.abc import Sequence

import pytest

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.errors import TooMuchError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import reduce
from ikebana.processor.kernels.aggregate_kinds import KINDS
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.planning.aggregates import parsed_aggregate
from support.doc_blocks import ROOT
from support.stores import CountingStore

ROWS = Aggregate("rows", "count")
BOTH = (Aggregate("avg", "avg", "x"), Aggregate("sum", "sum", "x"))


def test_every_kind_is_in_the_table_of_the_docs() -> None:
    """And no other: docs/keyed.md says what each comes to of no values, and what it costs."""
    page = (ROOT / "docs" / "keyed.md").read_text()
    table = page.partition("| aggregate |")[2].partition("\n\n")[0]

    assert set(re.findall(r"`(\w+)\(", table)) == KINDS.keys()


def result_of(arguments: Sequence[str], kind: str, limit: int = 0) -> bytes | None:
    """The result of one aggregate of rows with these arguments, as JSON text."""
    store = MemoryStore()
    updates = [KeyedUpdate(b"k", b'{"x":%b}' % text.encode(), 1, 1) for text in arguments]
    found = reduce.step(store, updates, Interval(0, 2), [Aggregate("r", kind, "x", limit)])

    assert found.errors == []
    ((_, values, _),) = reduce.contents(store)
    return next(iter(values), None)


@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        (["1", "1", "null", '"a"'], "count", b'{"r":3}'),
        (["null"], "count", b'{"r":0}'),
        (["1", "2", "39"], "sum", b'{"r":42}'),
        (["0.1", "0.2"], "sum", b'{"r":0.3}'),
        (["1", "-1"], "sum", b'{"r":0}'),
        (["null"], "sum", b'{"r":null}'),
        (["9007199254740993", "1"], "sum", b'{"r":9007199254740994}'),
        (["1" + "0" * 300, "0.5"], "sum", b'{"r":1' + b"0" * 300 + b".5}"),
        (["1" + "0" * 400, "1"], "sum", b'{"r":1' + b"0" * 399 + b"1}"),
        (["1" + "0" * 400, "0.75"], "sum", b'{"r":1' + b"0" * 399 + b"1}"),
        (["1e-2000"], "sum", b'{"r":1E-2000}'),
        (["9" * 2000, "1"], "sum", b'{"r":1' + b"0" * 2000 + b"}"),
        (["1", "2"], "avg", b'{"r":1.5}'),
        (["1", "null", "3"], "avg", b'{"r":2}'),
        (["0", "0", "1"], "avg", b'{"r":0.333333333333333}'),
        (["1", "1", "0"], "avg", b'{"r":0.666666666666667}'),
        (["1" + "0" * 400], "avg", b'{"r":1' + b"0" * 400 + b"}"),
        (["null"], "avg", b'{"r":null}'),
        (["9007199254740992", "1", "1", "0"], "favg", b'{"r":2251799813685248.5}'),
        (["1", "0", "0"], "favg", b'{"r":0.3333333333333333}'),
        (["1" + "0" * 400], "favg", b'{"r":1' + b"0" * 400 + b"}"),
        (["10", "9", "-10", "-9", "0", "0.5"], "min", b'{"r":-10}'),
        (["10", "9", "-10", "-9", "0", "0.5"], "max", b'{"r":10}'),
        (["-0.5", "-0.25"], "max", b'{"r":-0.25}'),
        (["true", "false", "0", '"a"'], "min", b'{"r":false}'),
        (["true", "0", '"a"'], "min", b'{"r":true}'),
        (["7", '""', "[]"], "min", b'{"r":7}'),
        (["7", '""', "null"], "max", b'{"r":""}'),
        (['"z"', '"\N{GRINNING FACE}"', '"\uffee"'], "max", '{"r":"\N{GRINNING FACE}"}'.encode()),
        (['"a\\u0000"', '"a"'], "min", b'{"r":"a"}'),
        (['"z"', "[1]", '{"a":0.1}'], "max", b'{"r":{"a":0.1}}'),
        (["null"], "min", b'{"r":null}'),
        (["null"], "max", b'{"r":null}'),
        (["1", "1", "2", '"1"', "true", "null"], "distinct", b'{"r":4}'),
        (["null"], "distinct", b'{"r":0}'),
        (["false", "true", "null"], "bool_or", b'{"r":true}'),
        (["false", "null"], "bool_or", b'{"r":false}'),
        (["null"], "bool_or", b'{"r":null}'),
        (["true", "false", "null"], "bool_and", b'{"r":false}'),
        (["true", "null"], "bool_and", b'{"r":true}'),
        (["null"], "bool_and", b'{"r":null}'),
    ],
)
def test_a_kind_of_arguments(arguments: list[str], kind: str, expected: bytes) -> None:
    """Null counts for nothing, numbers are exact, and all values have an order."""
    assert result_of(arguments, kind) == expected


@pytest.mark.parametrize(
    ("arguments", "limit", "expected"),
    [
        (["1", "3", "2", "3"], 3, b'{"r":[3,3,2]}'),
        (["1", "3", "2", "3"], 1, b'{"r":[3]}'),
        (["1", "null"], 3, b'{"r":[1]}'),
        (["null"], 3, b'{"r":[]}'),
        (["1"], 0, b'{"r":[]}'),
        (["-1", "-20", "-3"], 2, b'{"r":[-1,-3]}'),
    ],
)
def test_top_lists_the_greatest_as_often_as_they_are_there(
    arguments: list[str], limit: int, expected: bytes
) -> None:
    """In descending order, and no more than the limit in all."""
    assert result_of(arguments, "top", limit) == expected


def test_results_change_time_by_time() -> None:
    """At each time the old result goes and the new one comes; an equal one does nothing."""
    updates = [
        KeyedUpdate(b"k", b'{"x":7}', 4, -1),
        KeyedUpdate(b"k", b'{"x":5}', 1, 1),
        KeyedUpdate(b"k", b'{"x":7}', 3, 1),
        KeyedUpdate(b"k", b'{"x":5}', 6, -1),
        KeyedUpdate(b"l", b'{"x":null}', 4, 2),
    ]
    found = reduce.step(MemoryStore(), updates, Interval(1, 7), [Aggregate("m", "min", "x"), ROWS])

    assert found == (
        [
            KeyedUpdate(b"k", b'{"m":5,"rows":1}', 1, 1),
            KeyedUpdate(b"k", b'{"m":5,"rows":1}', 3, -1),
            KeyedUpdate(b"k", b'{"m":5,"rows":2}', 3, 1),
            KeyedUpdate(b"k", b'{"m":5,"rows":2}', 4, -1),
            KeyedUpdate(b"k", b'{"m":5,"rows":1}', 4, 1),
            KeyedUpdate(b"l", b'{"m":null,"rows":2}', 4, 1),
            KeyedUpdate(b"k", b'{"m":5,"rows":1}', 6, -1),
        ],
        [],
    )


def record(aggregate: str) -> bytes:
    """The error record of an argument of BOTH under the key k."""
    of = f'{aggregate} \\"{aggregate}\\"'.encode()
    reason = b"operator totals: an argument of %b is no number" % of
    return (
        b'{"key":"aw==","offset":null,"partition":null,"reason":"%b","topic":null,"value":null}'
        % reason
    )


@pytest.mark.parametrize(
    "argument",
    ["true", '"1"', "[1]", "{}", "1E-2001", "1" + "0" * 2000, "1E-999999999999999999"],
)
def test_what_cannot_be_added_is_null_to_a_sum_and_an_error(argument: str) -> None:
    """Each aggregate has an error for the row, which names it and goes when the row goes."""
    store, row = MemoryStore(), b'{"x":%b}' % argument.encode()
    came = reduce.step(
        store,
        [KeyedUpdate(b"k", row, 1, 1), KeyedUpdate(b"k", b'{"x":3}', 1, 1)],
        Interval(0, 2),
        BOTH,
        "totals",
    )
    went = reduce.step(store, [KeyedUpdate(b"k", row, 2, -1)], Interval(2, 3), BOTH, "totals")

    assert came == (
        [KeyedUpdate(b"k", b'{"avg":3,"sum":3}', 1, 1)],
        [KeyedUpdate(None, record(each), 1, 1) for each in ("avg", "sum")],
    )
    assert went == ([], [KeyedUpdate(None, record(each), 2, -1) for each in ("avg", "sum")])


def test_errors_of_one_time_are_summed() -> None:
    """A bad argument in the place of another bad one is the same error."""
    store = MemoryStore()
    reduce.step(store, [KeyedUpdate(b"k", b'{"x":"a"}', 0, 1)], Interval(0, 1), BOTH)
    updates = [KeyedUpdate(b"k", b'{"x":"a"}', 1, -1), KeyedUpdate(b"k", b'{"x":"b"}', 1, 1)]

    assert reduce.step(store, updates, Interval(1, 2), BOTH) == ([], [])


@pytest.mark.parametrize("time", [0, 5])
def test_a_time_outside_the_interval_is_a_broken_invariant(time: int) -> None:
    """It is told, and the store stays as it is."""
    store = MemoryStore()

    with pytest.raises(AssertionError, match=f"time {time} is not in 1 to 5"):
        reduce.step(store, [KeyedUpdate(b"k", b"{}", time, 1)], Interval(1, 5), [ROWS])

    assert list(store.scan(b"")) == []


def test_counts_beyond_64_bits_are_kept() -> None:
    """Neither a count nor a total has a limit."""
    store, kept = (
        MemoryStore(),
        [Aggregate("s", "sum", "x"), Aggregate("d", "distinct", "x"), ROWS],
    )
    for time in range(2):
        update = KeyedUpdate(b"k", b'{"x":2}', time, 1 << 63)
        reduce.step(store, [update], Interval(time, time + 1), kept)

    assert list(reduce.contents(store)) == [
        (b"k", (b'{"d":1,"rows":18446744073709551616,"s":36893488147419103232}',), ())
    ]


@pytest.mark.parametrize(
    ("aggregate", "row", "diff", "asked", "handed_out", "written"),
    [
        (Aggregate("r", "count"), b'{"x":5}', 1, 1, 0, 1),
        (Aggregate("r", "sum", "x"), b'{"x":5}', -1, 1, 0, 1),
        (Aggregate("r", "avg", "x"), b'{"x":5}', 1, 1, 0, 1),
        (Aggregate("r", "distinct", "x"), b'{"x":5}', -1, 2, 0, 2),
        (Aggregate("r", "min", "x"), b'{"x":5}', -1, 2, 1, 2),
        (Aggregate("r", "min", "x"), b'{"x":-5}', 1, 2, 1, 2),
        (Aggregate("r", "min", "x"), b'{"x":0}', -1, 2, 2, 2),
        (Aggregate("r", "max", "x"), b'{"x":5}', -1, 2, 1, 2),
        (Aggregate("r", "max", "x"), b'{"x":9999}', -1, 2, 2, 2),
        (Aggregate("r", "top", "x", 3), b'{"x":10000}', 1, 2, 3, 2),
        (Aggregate("r", "top", "x", 3), b'{"x":9998}', -1, 2, 4, 2),
    ],
)
def test_an_update_reads_no_more_than_its_result_gives(
    aggregate: Aggregate, row: bytes, diff: int, asked: int, handed_out: int, written: int
) -> None:
    """Of 10,000 values those that the result shows, and what has just gone before them."""
    store = CountingStore()
    rows = [KeyedUpdate(b"k", b'{"x":%d}' % at, 0, 1) for at in range(10_000)]
    reduce.step(store, rows, Interval(0, 1), [aggregate])
    store.asked = store.scanned = store.written = 0
    reduce.step(store, [KeyedUpdate(b"k", row, 1, diff)], Interval(1, 2), [aggregate])

    assert (store.asked, store.written) == (asked, written)
    assert store.scanned <= handed_out


def test_a_batch_of_many_times_scans_a_key_once() -> None:
    """A thousand times, each with the least value gone: every value is read once."""
    store, least = CountingStore(), [Aggregate("m", "min", "x")]
    rows = [KeyedUpdate(b"k", b'{"x":%d}' % at, 0, 1) for at in range(10_000)]
    reduce.step(store, rows, Interval(0, 1), least)
    store.scanned = 0
    gone = [KeyedUpdate(b"k", b'{"x":%d}' % at, at + 1, -1) for at in range(1_000)]
    found = reduce.step(store, gone, Interval(1, 2_000), least)

    assert found.updates[-1] == KeyedUpdate(b"k", b'{"m":1000}', 1_000, 1)
    assert store.scanned == 1_001


def test_aggregates_of_one_field_share_its_values() -> None:
    """Min and distinct keep each value once, max and top once in the other order."""
    store = MemoryStore()
    shared = [
        Aggregate("min", "min", "x"),
        Aggregate("distinct", "distinct", "x"),
        Aggregate("max", "max", "x"),
        Aggregate("top", "top", "x", 2),
    ]
    rows = [KeyedUpdate(b"k", b'{"x":%d}' % at, 0, 1) for at in range(5)]
    reduce.step(store, rows, Interval(0, 1), shared)

    ((_, values, _),) = reduce.contents(store)
    assert values == (b'{"distinct":5,"max":4,"min":0,"top":[4,3]}',)
    assert len(list(store.scan(b""))) == 1 + 2 * 5


def test_every_entry_leads_to_its_key() -> None:
    """Whatever bytes keys have, also where one begins another."""
    store, keys = MemoryStore(), [b"", b"\0", b"a", b"a\0", b"a\0\0\0\0", b"v", b"\xff" * 300]
    kept = [Aggregate("m", "max", "x"), ROWS]
    rows = [KeyedUpdate(key, b'{"x":%d}' % at, 0, 1) for at, key in enumerate(keys)]
    reduce.step(store, rows, Interval(0, 1), kept)

    layout = reduce.PART.layout
    owners = [at for entry in store.scan(b"") for at in layout.divided(*entry, keys.index)]
    assert sorted(owners) == sorted([*range(len(keys))] * 2)
    assert {key: values for key, values, _ in reduce.contents(store)} == {
        key: (b'{"m":%d,"rows":1}' % at,) for at, key in enumerate(keys)
    }


@pytest.mark.parametrize(("time", "asked"), [(1, 0), (2, 2)])
def test_what_cancels_within_a_batch_writes_nothing(time: int, asked: int) -> None:
    """Nor does it read anything when it cancels at its own time."""
    store, kept = CountingStore(), [Aggregate("m", "min", "x"), *BOTH]
    reduce.step(store, [KeyedUpdate(b"k", b'{"x":5}', 0, 1)], Interval(0, 1), kept)
    store.asked = store.written = 0
    updates = [KeyedUpdate(b"k", b'{"x":0.1}', 1, 1), KeyedUpdate(b"k", b'{"x":0.1}', time, -1)]
    reduce.step(store, updates, Interval(1, 3), kept)

    assert (store.asked, store.written) == (asked, 0)


@pytest.mark.parametrize(("kind", "limit"), [("list", 0), ("top", 1 << 62)])
@pytest.mark.parametrize("count", [(1 << 63) - 1, 1 << 25])
def test_a_list_that_memory_does_not_hold_is_refused_before_it_is_made(
    kind: str, limit: int, count: int
) -> None:
    """A count may say anything; the operator, the key and the number are told."""
    rows = [KeyedUpdate(b"k", b'{"x":7}', 1, count)]
    aggregates = [Aggregate("r", kind, "x", limit), Aggregate("n", "count", "x")]
    told = 'operator "o" lists [0-9,]{10,} values of the key with the hash 8254c329a928 or more'

    with pytest.raises(TooMuchError, match=told):
        reduce.step(MemoryStore(), rows, Interval(0, 2), aggregates, "o")


def test_few_of_many_values_are_listed() -> None:
    rows = [KeyedUpdate(b"k", b'{"x":7}', 1, (1 << 63) - 1)]

    found = reduce.step(MemoryStore(), rows, Interval(0, 2), [Aggregate("r", "top", "x", 2)])

    assert [update.value for update in found.updates] == [b'{"r":[7,7]}']


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_called_by_its_name(kind: str) -> None:
    """Also one with a digit in it, such as regr_r2."""
    arguments = "2, x" if KINDS[kind].is_limited else "y, x" if KINDS[kind].is_of_pairs else "x"

    assert parsed_aggregate("r", f"{kind}({arguments})").kind == kind

"""Upserts against their definition, through the in-process shell and as a bare kernel."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Input, Output, Plan, Update, Upsert, accumulate, consolidate
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.codecs.change import Column
from ikebana.processor.base.rows import SOME_ROW, KeyedUpdate, Partial, Truncate, Upserts
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.kernels import upsert as kernel
from ikebana.processor.linear.steps import valid_between
from ikebana.processor.planning.plan import Linear
from support import upsert_oracle
from support.stores import entries
from support.strategies import (
    Arrival,
    arrivals,
    cuts,
    history_of,
    kept_values,
    plain_values,
    row_values,
    unhurried,
)
from support.upsert_oracle import (
    ANY,
    GONE,
    BadValue,
    FailedValue,
    KeyedUpsert,
    PartialValue,
    Unseen,
)

PLAN = Plan(
    "names",
    inputs=(Input("names", ("names",)),),
    operators=(Upsert("current", "names"),),
    outputs=(Output("diffs", "current", "diffs"),),
)
Values = list[Update[tuple[bytes, bytes]]]
Errors = list[Update[bytes]]


class Ran:
    """Everything that an evaluation has emitted, as canonical bytes."""

    def __init__(self, evaluation: Evaluation | None = None) -> None:
        self.evaluation = evaluation or Evaluation(PLAN)
        self.values: Values = []
        self.errors: Errors = []

    def advance(self, records: Iterable[tuple[object, object, int]], upper: int) -> None:
        """Give it one batch."""
        found = self.evaluation.advance({"names": records}, upper)
        self.values += [
            Update((canonical.encode(key), canonical.encode(value)), time, diff)
            for (key, value), time, diff in found["diffs"]
        ]
        # Error records are known by their number, in order of arrival.
        self.errors += [
            Update(b"%d" % (record["offset"] - 1), time, diff)
            for record, time, diff in found["errors"]
        ]


def ran(batches: Sequence[Arrival]) -> Ran:
    """All batches, one after the other, and then the end of time."""
    found = Ran()
    for records, upper in batches:
        found.advance(records, upper)
    found.advance([], 1_000)
    return found


@unhurried
@given(arrivals())
def test_updates_accumulate_to_the_fold_of_the_symbols_at_every_time(
    batches: list[Arrival],
) -> None:
    """Incremental is batch: at every time the collection and the errors are the oracle's."""
    found, upserts = ran(batches), history_of(batches)

    for as_of in upsert_oracle.times(upserts):
        assert accumulate(found.values, as_of) == upsert_oracle.collection(upserts, as_of)
        assert accumulate(found.errors, as_of) == upsert_oracle.errors(upserts, as_of)


@unhurried
@given(arrivals())
def test_updates_do_not_depend_on_the_cut_into_batches(batches: list[Arrival]) -> None:
    """Records that arrive all at once give the same updates as records in many batches."""
    at_once = [Arrival([record for batch in batches for record in batch.records], 1_000)]
    cut, whole = ran(batches), ran(at_once)

    assert set(consolidate(cut.values)) == set(consolidate(whole.values))
    assert set(consolidate(cut.errors)) == set(consolidate(whole.errors))


@unhurried
@given(arrivals())
def test_a_batch_holds_the_times_of_its_interval_and_no_others(batches: list[Arrival]) -> None:
    """What waits beyond the upper shows in the batch that closes its time, not before."""
    found, lower = Ran(), 0
    for records, upper in batches:
        seen = len(found.values), len(found.errors)
        found.advance(records, upper)
        fresh = [u.time for u in found.values[seen[0] :]] + [
            u.time for u in found.errors[seen[1] :]
        ]

        assert all(lower <= time < upper for time in fresh)
        lower = upper


@unhurried
@given(arrivals(), arrivals())
def test_a_batch_given_twice_from_one_state_gives_one_output(
    before: list[Arrival], batch: list[Arrival]
) -> None:
    """A replay emits what the attempt before it did, and leaves the same state."""
    state = ran(before).evaluation
    records = [(key, value, time + 1_000) for one in batch for key, value, time in one.records]
    first, second = Ran(state), Ran(deepcopy(state))
    first.advance(records, 1_003)
    second.advance(records, 1_003)

    assert (first.values, first.errors) == (second.values, second.errors)
    assert entries(first.evaluation.stores[0]) == entries(second.evaluation.stores[0])


@unhurried
@given(arrivals())
def test_a_restart_between_any_two_batches_changes_nothing(batches: list[Arrival]) -> None:
    """What goes on from a copy of the state emits what would have been emitted anyway."""
    restarted = Ran()
    for records, upper in batches:
        restarted.evaluation = deepcopy(restarted.evaluation)
        restarted.advance(records, upper)
    restarted.evaluation = deepcopy(restarted.evaluation)
    restarted.advance([], 1_000)
    found = ran(batches)

    assert (restarted.values, restarted.errors) == (found.values, found.errors)


@unhurried
@given(arrivals())
def test_a_key_holds_at_most_one_value_once_and_no_diff_is_zero(batches: list[Arrival]) -> None:
    """At every time the collection has multiplicity 0 or 1 a key."""
    found = ran(batches)

    assert all(update.diff in (-1, 1) for update in found.values + found.errors)
    for as_of in upsert_oracle.times(history_of(batches)):
        held = accumulate(found.values, as_of)
        assert set(held.values()) <= {1}
        assert max(Counter(key for key, _ in held).values(), default=0) <= 1


@unhurried
@given(arrivals())
def test_repeats_emit_nothing(batches: list[Arrival]) -> None:
    """What every key is already, said again later, changes nothing."""
    found = ran(batches)
    held = accumulate(found.values, 1_000)
    seen = len(found.values)
    found.advance([(key, value, 1_001) for key, value in held], 1_002)

    assert found.values[seen:] == []


class Rank(NamedTuple):
    """The order of records of the same key and time: the greatest rank wins."""

    input: int
    partition: int
    offset: int


Row = tuple[Rank, KeyedUpsert]
Said = st.SearchStrategy[bytes | BadValue | FailedValue | PartialValue | None]
SAID: Sequence[Said] = [plain_values, row_values, row_values]


@st.composite
def placed(draw: st.DrawFn, *, truncates: bool = False, said: Said | None = None) -> list[Row]:
    """Upserts of two topics with two partitions each, at times of one of three kinds.

    With truncates there is one partition only, in which alone they have a place.  A
    message may be several upserts, which then have one rank and one time.
    """
    places = st.just(0) if truncates else st.integers(0, 1)
    # Around a truncate a key has to come again to tell anything.
    keys = st.sampled_from([b"", b"a"] if truncates else [b"", b"a", b"\x00"])
    times = st.integers(0, 2 if truncates else 4)
    values = draw(st.sampled_from(SAID)) if said is None else said
    befores = st.none() | st.just(ANY) | kept_values
    # A message that is a truncate is nothing else.
    most = draw(st.integers(1, 2))
    message = st.lists(st.tuples(keys, values, befores), min_size=1, max_size=most)
    if truncates:
        message = st.one_of(message, message, st.just([(None, GONE, None)]))
    # Short lists are drawn most, and tell least.
    least = draw(st.sampled_from([0, 12, 12]))
    messages = draw(
        st.lists(st.tuples(places, places, message, times), min_size=least, max_size=24)
    )
    kind = draw(st.sampled_from(["any", "any", "one time for all", "each its own"]))
    offsets: Counter[tuple[int, int]] = Counter()
    found: list[Row] = []
    for topic, partition, upserts, time in sorted(messages, key=lambda row: row[:2]):
        rank = Rank(topic, partition, offsets[topic, partition])
        offsets[topic, partition] += 1
        when = {"one time for all": 2, "each its own": len(found), "any": time}[kind]
        found += [(rank, KeyedUpsert(key, value, when, before)) for key, value, before in upserts]
    return [(rank, numbered(upsert, at)) for at, (rank, upsert) in enumerate(found)]


def numbered(upsert: KeyedUpsert, at: int) -> KeyedUpsert:
    """The upsert with an error record of its own."""
    if isinstance(upsert.value, BadValue | FailedValue | PartialValue):
        return upsert._replace(value=upsert.value._replace(record=b"record %d" % at))
    return upsert


@st.composite
def chunked(draw: st.DrawFn, rows: Sequence[Row]) -> list[Upserts | Truncate]:
    """Each partition cut into chunks anyhow between messages, and the chunks in any order."""
    found: list[Upserts | Truncate] = []
    # Whether chunks of one time say it once: the kernel has a way of its own if all do.
    said = draw(st.sampled_from([(True,), (False,), (True, False)]))
    for _, partition in groupby(rows, key=lambda row: row[0][:2]):
        messages = [list(message) for _, message in groupby(partition, key=lambda row: row[0])]
        for piece in draw(cuts(messages)):
            for truncates, part in groupby(piece, key=lambda message: message[0][1].value is GONE):
                own = [row for message in part for row in message]
                if truncates:
                    found += [Truncate("in", *rank[:2], s.time, rank.offset) for rank, s in own]
                else:
                    uniform = len({upsert.time for _, upsert in own}) == 1
                    found.append(chunk(own, once=uniform and draw(st.sampled_from(said))))
    if draw(st.booleans()):
        found.append(chunk([], once=False))
    return draw(st.permutations(found))


def chunk(rows: Sequence[Row], *, once: bool) -> Upserts:
    """Rows of one partition as the kernel takes them."""
    ranks, upserts = [rank for rank, _ in rows], [upsert for _, upsert in rows]
    times = [upsert.time for upsert in upserts]
    made = Upserts(
        "in",
        ranks[0].input if ranks else 0,
        ranks[0].partition if ranks else 0,
        times[0] if once else times,
        [upsert.key or b"" for upsert in upserts],
        [s.value if isinstance(s.value, bytes) else None for s in upserts],
        [rank.offset for rank in ranks],
    )
    for at, upsert in enumerate(upserts):
        match upsert.value:
            case BadValue(record):
                made.bad[at] = record
            case FailedValue(record):
                made.failed[at] = record
            case PartialValue():
                made.partial[at] = Partial(*upsert.value)
        if upsert.before is not None:
            made.before[at] = SOME_ROW if upsert.before is ANY else crc32(upsert.before)
    return made


def history(rows: Iterable[Row]) -> list[KeyedUpsert]:
    """The upserts in the order that counts at equal times; sorted() leaves messages whole."""
    return [upsert for _, upsert in sorted(rows, key=lambda row: row[0])]


def pairs(updates: Iterable[KeyedUpdate]) -> Values:
    """Updates of (key, value)."""
    return [Update((u.key or b"", u.value), u.time, u.diff) for u in updates]


def records(updates: Iterable[KeyedUpdate]) -> Errors:
    """Updates of error records."""
    return [Update(u.value, u.time, u.diff) for u in updates]


histories = st.one_of(placed(), placed(truncates=True))


@unhurried
@given(st.data(), histories, st.integers(0, 6))
def test_chunks_may_be_cut_and_arrive_anyhow(
    data: st.DataObject, rows: list[Row], upper: int
) -> None:
    """Rank decides among upserts of one time, not the chunk or the order of arrival."""
    first, second = MemoryStore(), MemoryStore()
    changes = [
        kernel.step(store, data.draw(chunked(rows)), Interval(0, upper))
        for store in (first, second)
    ]
    one, other = changes

    assert Counter(one.updates) == Counter(other.updates)
    assert Counter(one.errors) == Counter(other.errors)
    assert one.drift == other.drift
    # What waits lies in blocks, which may be cut elsewhere.
    assert kernel.waiting_times(first) == kernel.waiting_times(second)
    one, other = (kernel.step(store, [], Interval(upper, 100)) for store in (first, second))
    assert Counter(one.updates) == Counter(other.updates)
    assert Counter(one.errors) == Counter(other.errors)
    assert one.drift == other.drift
    assert entries(first) == entries(second)


@unhurried
@given(st.data(), histories, st.integers(0, 6))
def test_the_kernel_agrees_with_the_oracle_at_every_time(
    data: st.DataObject, rows: list[Row], upper: int
) -> None:
    """Times before the upper are emitted, consolidated; the others with a later interval."""
    store, upserts = MemoryStore(), history(rows)
    early = kernel.step(store, data.draw(chunked(rows)), Interval(0, upper))
    late = kernel.step(store, [], Interval(upper, 100))
    values, errors = pairs([*early.updates, *late.updates]), records(early.errors + late.errors)

    assert all(u.time < upper for u in [*early.updates, *early.errors])
    assert all(u.time >= upper for u in [*late.updates, *late.errors])
    assert len(consolidate(values)) == len(values)
    assert len(consolidate(errors)) == len(errors)
    assert early.drift == upsert_oracle.drift(upserts, upper - 1)
    assert early.drift + late.drift == upsert_oracle.drift(upserts, 100)
    for as_of in upsert_oracle.times(upserts):
        assert accumulate(values, as_of) == upsert_oracle.collection(upserts, as_of)
        assert accumulate(errors, as_of) == upsert_oracle.errors(upserts, as_of)


@unhurried
@given(st.data(), st.sampled_from(SAID))
def test_symbols_of_several_batches_that_wait_for_one_time_count_by_rank(
    data: st.DataObject, said: Said
) -> None:
    """Of what waited and what has just come, with one time, the greater rank wins."""
    first, second = data.draw(placed(said=said)), data.draw(placed(said=said))
    later = [(rank._replace(offset=rank.offset + 100), upsert) for rank, upsert in second]
    store = MemoryStore()
    waited = kernel.step(store, data.draw(chunked(first)), Interval(0, 0))
    found = kernel.step(store, data.draw(chunked(later)), Interval(0, 100))
    upserts = history(first + later)

    assert not any(waited)
    assert found.drift == upsert_oracle.drift(upserts, 100)
    for as_of in upsert_oracle.times(upserts):
        assert accumulate(pairs(found.updates), as_of) == upsert_oracle.collection(upserts, as_of)
        assert accumulate(records(found.errors), as_of) == upsert_oracle.errors(upserts, as_of)


@unhurried
@given(st.data(), histories, st.integers(1, 4))
def test_shards_together_emit_what_one_would(
    data: st.DataObject, rows: list[Row], shards: int
) -> None:
    """The output of a plan is the union over shards, each of which gets every truncate."""
    whole = kernel.step(MemoryStore(), data.draw(chunked(rows)), Interval(0, 100))
    by_shard: Mapping[int, list[Row]] = {
        shard: [row for row in rows if row[1].key is None or shard_of(row[1].key, shards) == shard]
        for shard in range(shards)
    }
    parts = [
        kernel.step(MemoryStore(), data.draw(chunked(own)), Interval(0, 100))
        for own in by_shard.values()
    ]

    assert Counter(u for part in parts for u in part.updates) == Counter(whole.updates)
    assert Counter(u for part in parts for u in part.errors) == Counter(whole.errors)
    assert sum(part.drift for part in parts) == whole.drift


@unhurried
@given(st.data(), histories)
def test_read_gives_the_current_value_of_each_key(data: st.DataObject, rows: list[Row]) -> None:
    """The state is the collection: what is read is what the updates come to."""
    store = MemoryStore()
    kernel.step(store, data.draw(chunked(rows)), Interval(0, 100))
    held = dict(upsert_oracle.collection(history(rows), 100).keys())

    assert kernel.read(store, [b"", b"a", b"b", b"\x00"]) == [
        held.get(key) for key in (b"", b"a", b"b", b"\x00")
    ]


@unhurried
@given(st.data(), histories)
def test_batches_cut_anywhere_emit_what_one_does(data: st.DataObject, rows: list[Row]) -> None:
    """In order of rank, with times that never go back, any cut gives the same, drift too."""
    moved = [
        (rank, upsert._replace(time=5 * rank.input + 2 * rank.partition + upsert.time // 2))
        for rank, upsert in rows
    ]
    ordered = sorted(moved, key=lambda row: (row[1].time, row[0]))
    store, lower = MemoryStore(), 0
    updates: Values = []
    errors: Errors = []
    drift = 0
    by_time = [list(own) for _, own in groupby(ordered, key=lambda row: row[1].time)]
    for piece in data.draw(cuts(by_time)):
        # Within a batch, rows lie by partition.
        batch = sorted((row for own in piece for row in own), key=lambda row: row[0])
        upper = max((upsert.time for _, upsert in batch), default=lower - 1) + 1
        found = kernel.step(store, data.draw(chunked(batch)), Interval(lower, upper))
        updates += pairs(found.updates)
        errors += records(found.errors)
        drift, lower = drift + found.drift, upper
    upserts = history(moved)

    assert drift == upsert_oracle.drift(upserts, 100)
    for as_of in upsert_oracle.times(upserts):
        assert accumulate(updates, as_of) == upsert_oracle.collection(upserts, as_of)
        assert accumulate(errors, as_of) == upsert_oracle.errors(upserts, as_of)


ROWS = Plan(
    "rows",
    inputs=(
        Input(
            "rows",
            ("rows",),
            "debezium-json",
            columns=(Column("a", "BIGINT"), Column("b", "JSON")),
        ),
    ),
    operators=(
        Upsert("current", "rows"),
        Linear("valid", "current", (valid_between("a", "a + 5"),)),
    ),
    outputs=(Output("diffs", "current", "diffs"), Output("valid", "valid", "valid")),
)
DIFFS = replace(
    ROWS,
    inputs=(replace(ROWS.inputs[0], mode="diffs"),),
    operators=(Linear("valid", "rows", (valid_between("a", "a + 5"),)),),
    outputs=(Output("diffs", "rows", "diffs"), Output("valid", "valid", "valid")),
)
images = st.fixed_dictionaries(
    {"a": st.integers(0, 20)},
    optional={"b": st.sampled_from([None, 1, "__debezium_unavailable_value"])},
)
events = st.one_of(
    st.none(),
    st.just(b"{"),
    st.just({"ts_ms": 1}),
    st.builds(lambda after: {"op": "c", "after": after}, images),
    st.builds(lambda *both: {"op": "u", "before": both[0], "after": both[1]}, images, images),
    st.builds(lambda before: {"op": "d", "before": before}, images),
    st.just({"op": "t"}),
)


@unhurried
@given(
    st.data(),
    st.sampled_from([ROWS, DIFFS]),
    st.lists(st.tuples(st.sampled_from(["k", "l"]), events, st.integers(0, 9)), max_size=10),
)
def test_change_messages_given_in_several_calls_give_what_one_call_gives(
    data: st.DataObject, plan: Plan, records: list[tuple[object, object, int]]
) -> None:
    """With any uppers; what is due later, errors and what is counted included."""
    whole, cut = Evaluation(plan), Evaluation(plan)
    expected = whole.advance({"rows": records}, 1_000)
    found: dict[str, list[Update[object]]] = {name: [] for name in expected}
    lower, given_later = 0, records
    for piece in data.draw(cuts(records)):
        upper = lower + data.draw(st.integers(0, 4))
        # A record comes before its time is closed, or with the batch that closes it.
        early, given_later = given_later[: len(piece)], given_later[len(piece) :]
        late = [record for record in given_later if record[2] < upper]
        given_later = [record for record in given_later if record[2] >= upper]
        for name, updates in cut.advance({"rows": [*early, *late]}, upper).items():
            assert all(lower <= update.time < upper for update in updates)
            found[name] += updates
        lower = upper
    for name, updates in cut.advance({"rows": given_later}, 1_000).items():
        found[name] += updates

    assert cut.counted == whole.counted
    assert cut.pending() == whole.pending() == []
    for name, updates in expected.items():
        assert Counter(map(written, found[name])) == Counter(map(written, updates))


def written(update: Update[object]) -> tuple[bytes, int, int]:
    """An update whose data are canonical bytes; an error record without its offset."""
    data = update.data
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name != "offset"}
    return canonical.encode(data), update.time, update.diff


befores = st.none() | st.just(ANY) | kept_values
said_of_key = st.tuples(st.sampled_from([b"a", b"b"]), row_values, befores)
some_said = st.lists(said_of_key, min_size=3, max_size=5)
Claims = list[tuple[bytes, Any, bytes | Unseen | None]]


@unhurried
@given(st.data(), some_said, some_said, st.none() | some_said)
def test_what_is_said_at_one_time_counts_in_its_order(
    data: st.DataObject, before: Claims, said: Claims, after_truncate: Claims | None
) -> None:
    """It comes to one change of a key; a truncate leaves nothing to keep or to complete."""
    upserts = [KeyedUpsert(key, value, 0, old) for key, value, old in before]
    upserts += [KeyedUpsert(key, value, 1, old) for key, value, old in said]
    if after_truncate is not None:
        upserts.append(KeyedUpsert(None, GONE, 1))
        upserts += [KeyedUpsert(key, value, 1, old) for key, value, old in after_truncate]
    rows = [(Rank(0, 0, at), numbered(upsert, at)) for at, upsert in enumerate(upserts)]
    store = MemoryStore()
    first = kernel.step(store, data.draw(chunked(rows[: len(before)])), Interval(0, 1))
    second = kernel.step(store, data.draw(chunked(rows[len(before) :])), Interval(1, 2))
    values, errors = (
        pairs([*first.updates, *second.updates]),
        records(first.errors + second.errors),
    )

    assert first.drift + second.drift == upsert_oracle.drift(history(rows), 1)
    assert len(consolidate(values)) == len(values)
    assert len(consolidate(errors)) == len(errors)
    for as_of in (0, 1):
        assert accumulate(values, as_of) == upsert_oracle.collection(history(rows), as_of)
        assert accumulate(errors, as_of) == upsert_oracle.errors(history(rows), as_of)


@pytest.mark.parametrize(
    ("partials", "expected"),
    [
        pytest.param([(b'{"a":5}', ("b",))], b'{"a":5,"b":2}', id="one"),
        pytest.param(
            [(b'{"a":5}', ("b",)), (b'{"b":6}', ("a",))], b'{"a":5,"b":6}', id="each the other's"
        ),
        pytest.param(
            [(b'{"a":5}', ("b",)), (b"{}", ("a", "b"))], b'{"a":5,"b":2}', id="the second nothing"
        ),
        pytest.param([(b'{"b":6}', ()), (b"{}", ("a", "b"))], b'{"b":6}', id="the first has no a"),
    ],
)
def test_partial_values_of_one_time_are_completed_one_by_one(
    partials: list[tuple[bytes, tuple[str, ...]]], expected: bytes
) -> None:
    """A column that one has set, or has left out, is not taken from before it."""
    store = MemoryStore()
    kernel.step(store, [Upserts("in", 0, 0, 0, [b"k"], [b'{"a":1,"b":2}'], [0])], Interval(0, 1))
    said = [
        KeyedUpsert(b"k", PartialValue(partial[0], partial[1], b"r"), 1) for partial in partials
    ]
    rows = [(Rank(0, 0, at), upsert) for at, upsert in enumerate(said, start=1)]
    kernel.step(store, [chunk(rows, once=True)], Interval(1, 2))

    assert kernel.read(store, [b"k"]) == [expected]

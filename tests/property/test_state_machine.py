"""State machines against their definition: one plain fold over all events, with no batches."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import machines
from ikebana import Update, accumulate, consolidate
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.errors import error_record
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import state_machine, upsert
from ikebana.processor.kernels.state_machine import (
    TOMBSTONE,
    Event,
    Machine,
    MachineChanges,
)
from ikebana.processor.kernels.user_calls import Refused
from support.stores import entries
from support.strategies import unhurried

# Most of an example's time goes into drawing it; the fold gets the full number.
few = settings(unhurried, max_examples=40)

END = 100
KEYS = [b"", b"a", b"\x00"]


def picky(states: list[Any], event: Any, time: int) -> Iterable[Any]:
    """A set of numbers: an event n turns n and its neighbours on or off, and some fail."""
    if event is TOMBSTONE:
        return
    if event == 3:
        raise LookupError
    if event == 4 and len(states) > 1:
        raise Refused("too many")
    near = {event - 1, event, event + 1}
    yield from near.symmetric_difference(states)


def odd_ones(states: list[Any]) -> list[Any]:
    """Fails on some states, and shows nothing of others."""
    if len(states) == 4:
        raise ValueError
    return [state % 4 for state in states if state % 2]


class Case(NamedTuple):
    """A machine and what its events may be."""

    machine: Machine
    events: Sequence[Any]


CASES = {
    "upsert": Case(machines.UPSERT, [None, 1, True, "", {"a": [1]}]),
    "counter": Case(machines.COUNTER, ["x"]),
    "order": Case(machines.ORDER, ["place", "place", "pay", "cancel", "ship"]),
    "sessions": Case(machines.SESSIONS, ["x"]),
    "closed sessions": Case(machines.CLOSED_SESSIONS, ["x"]),
    "fraud": Case(machines.FRAUD, [1, 2, 3, 500, 1000]),
    "debounce": Case(machines.DEBOUNCE, ["a", "b"]),
    "picky": Case(Machine(picky), [0, 1, 2, 3, 4]),
    "picky, viewed": Case(Machine(picky, view=odd_ones), [0, 1, 2, 3, 4]),
}


# The error records of what could not be decoded.
UNDECODABLE = {key: error_record("decoding raised Undecodable", None, key, None) for key in KEYS}


class Batch(NamedTuple):
    """Upserts in order of arrival, and the frontier that is reached with them."""

    events: list[Event]
    upper: int


class History(NamedTuple):
    """A machine and what it is given."""

    machine: Machine
    batches: list[Batch]

    @property
    def events(self) -> list[Event]:
        """All events in the order that counts."""
        found = [event for batch in self.batches for event in batch.events]
        return sorted(found, key=lambda event: (event.time, event.order))


def written(data: Any) -> bytes:
    """Data as its canonical bytes, by another encoder than ours."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


@st.composite
def histories(draw: st.DrawFn, names: Sequence[str] = tuple(CASES)) -> History:
    """Events cut into batches anyhow; each comes no later than the batch that closes it."""
    machine, possible = CASES[draw(st.sampled_from(names))]
    # The sessions' gap is long; what the others make of a time is only its order.
    unit = 20 if possible == ["x"] else 1
    said = st.none() | st.sampled_from([written(event) for event in possible])
    least = draw(st.sampled_from([0, 10, 20]))
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from(KEYS), st.integers(0, 4), said, st.integers(0, 4)),
            min_size=least,
            max_size=28,
        )
    )
    events: list[list[Event]] = [[], [], [], [], []]
    for at, (key, time, event, early) in enumerate(drawn):
        # Orders are unique, and neither those of time nor of arrival.
        order = (at * 7 % 3, at)
        # At most as late as the batch that closes the time.
        # Of those that may be anything, every fifth cannot be decoded.
        record = UNDECODABLE[key] if names == tuple(CASES) and at % 5 == 4 else None
        events[max(0, time - early)].append(Event(key, time * unit, order, event, record))
    uppers = [time * unit + 1 for time in range(5)]
    return History(
        machine,
        [
            Batch(draw(st.permutations(own)), upper)
            for own, upper in zip(events, uppers, strict=True)
        ],
    )


def ran(history: History, store: MemoryStore | None = None) -> MachineChanges:
    """All batches, one after the other."""
    here = MemoryStore() if store is None else store
    found, lower = MachineChanges([], []), 0
    for events, upper in history.batches:
        changes = state_machine.step(here, events, Interval(lower, upper), history.machine)
        assert all(lower <= u.time < upper for u in changes.updates + changes.errors)
        found.updates.extend(changes.updates)
        found.errors.extend(changes.errors)
        lower = upper
    return found


def at_once(history: History, arrived: Sequence[Event] | None = None) -> History:
    """The same events in one batch."""
    return History(history.machine, [Batch(list(arrived or history.events), END)])


class Folded(NamedTuple):
    """What the events up to a time come to: the values that show, and the error slots."""

    values: Counter[tuple[bytes, bytes]]
    slots: Counter[bytes]


def folded(machine: Machine, events: Iterable[Event], as_of: int) -> Folded:
    """Each key's events one after the other, with nothing between them."""
    states: dict[bytes, list[bytes]] = {}
    values: dict[bytes, set[bytes]] = {}
    slots: dict[bytes, bytes] = {}
    for key, time, _, event, record in events:
        if time > as_of:
            break
        if record is not None:
            slots[key] = f"{key!r} Undecodable".encode()
            continue
        said = TOMBSTONE if event is None else json.loads(event)
        now = [json.loads(state) for state in states.get(key, [])]
        try:
            new = sorted({written(state) for state in machine.step(now, said, time)})
            if machine.view is None or not new:
                show = set(new)
            else:
                show = set(map(written, machine.view(list(map(json.loads, new)))))
        except Exception as error:  # noqa: BLE001 -- the machine's own
            slots[key] = f"{key!r} {type(error).__name__}".encode()
            continue
        states[key], values[key] = new, show
        slots.pop(key, None)
    return Folded(
        Counter((key, value) for key, own in values.items() for value in own),
        Counter(slots.values()),
    )


def pairs(updates: Iterable[KeyedUpdate]) -> list[Update[tuple[bytes | None, bytes]]]:
    """Updates of (key, value)."""
    return [Update((u.key, u.value), u.time, u.diff) for u in updates]


def records(updates: Iterable[KeyedUpdate]) -> list[Update[bytes]]:
    """Updates of error records, as the fold names them."""
    found = []
    for key, value, time, diff in updates:
        reason = json.loads(value)["reason"]
        name = "Refused" if " raised " not in reason else reason.rpartition(" ")[2]
        found.append(Update(f"{key!r} {name}".encode(), time, diff))
    return found


@unhurried
@given(histories())
def test_updates_accumulate_to_the_fold_of_the_symbols_at_every_time(history: History) -> None:
    """Incremental is batch: at every time values and errors are those of the plain fold."""
    found = ran(history)

    for as_of in {-1, *(event.time for event in history.events), END}:
        expected = folded(history.machine, history.events, as_of)
        assert accumulate(pairs(found.updates), as_of) == expected.values
        assert accumulate(records(found.errors), as_of) == expected.slots


@few
@given(histories())
def test_updates_are_consolidated_and_a_value_is_there_once(history: History) -> None:
    """No two updates of one datum and time, no diff but 1 and -1, at no time two of a value."""
    found = ran(history)

    for updates in (pairs(found.updates), pairs(found.errors)):
        assert {update.diff for update in updates} <= {-1, 1}
        assert len(consolidate(updates)) == len(updates)
        for as_of in {event.time for event in history.events}:
            assert set(accumulate(updates, as_of).values()) <= {1}


@unhurried
@given(histories())
def test_the_cut_into_batches_changes_nothing(history: History) -> None:
    """Many batches emit what one would, and leave the same store; nothing waits any more."""
    cut, whole = MemoryStore(), MemoryStore()
    found, expected = ran(history, cut), ran(at_once(history), whole)

    assert Counter(found.updates) == Counter(expected.updates)
    assert Counter(found.errors) == Counter(expected.errors)
    assert entries(cut) == entries(whole)
    assert {place[:1] for place, _ in entries(cut)} <= {b"k"}


@few
@given(st.data(), histories())
def test_the_order_of_arrival_changes_nothing(data: st.DataObject, history: History) -> None:
    """Time and order decide: updates come in the same order, too."""
    one, other = (
        ran(at_once(history, data.draw(st.permutations(history.events)))) for _ in range(2)
    )

    assert one == other


@few
@given(histories())
def test_a_restart_between_any_two_batches_changes_nothing(history: History) -> None:
    """All that is remembered is in the store."""
    store, lower, found = MemoryStore(), 0, MachineChanges([], [])
    for events, upper in history.batches:
        store = deepcopy(store)
        changes = state_machine.step(store, events, Interval(lower, upper), history.machine)
        again = state_machine.step(deepcopy(store), [], Interval(upper, upper), history.machine)
        assert again == ([], [])
        found.updates.extend(changes.updates)
        found.errors.extend(changes.errors)
        lower = upper

    assert found == ran(history)


@few
@given(histories())
def test_contents_are_what_the_updates_come_to(history: History) -> None:
    """The store is the arrangement of the output by key."""
    store = MemoryStore()
    held = accumulate(pairs(ran(history, store).updates), END)
    shown = {key: values for key, values, _ in state_machine.contents(store) if values}

    assert shown == {
        key: tuple(sorted(value for own, value in held if own == key)) for key, _ in held
    }


@few
@given(histories(), st.integers(1, 4))
def test_shards_together_emit_what_one_would(history: History, shards: int) -> None:
    """Keys have nothing to do with each other, and every entry goes with its key."""
    whole, parts = ran(history), MachineChanges([], [])
    for shard in range(shards):
        store = MemoryStore()
        own = [
            Batch([e for e in events if shard_of(e.key, shards) == shard], upper)
            for events, upper in history.batches
        ]
        found = ran(History(history.machine, own), store)
        parts.updates.extend(found.updates)
        parts.errors.extend(found.errors)
        at = partial(shard_of, shards=shards)
        divided = (state_machine.PART.layout.divided(*entry, at) for entry in entries(store))
        assert all(list(each) == [shard] for each in divided)

    assert Counter(parts.updates) == Counter(whole.updates)
    assert Counter(parts.errors) == Counter(whole.errors)


@unhurried
@given(histories(["upsert"]))
def test_upsert_is_the_machine_whose_step_ignores_the_states(history: History) -> None:
    """It emits exactly what the upsert operator does, batch by batch."""
    one, other = MemoryStore(), MemoryStore()
    lower = 0
    for events, upper in history.batches:
        interval = Interval(lower, upper)
        found = state_machine.step(one, events, interval, history.machine)
        expected = upsert.step(other, list(map(as_upserts, events)), interval)

        assert set(found.updates) == set(expected.updates)
        assert len(found.updates) == len(expected.updates)
        assert found.errors == expected.errors == []
        lower = upper

    assert shown_of(state_machine.contents(one)) == shown_of(upsert.contents(other))


def shown_of(
    contents: Iterable[tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]],
) -> dict[bytes, tuple[bytes, ...]]:
    """The values of the keys that have some."""
    return {key: values for key, values, _ in contents if values}


def as_upserts(event: Event) -> Upserts:
    """One event as the upsert takes it."""
    topic, offset = event.order
    return Upserts("in", topic, 0, [event.time], [event.key], [event.value], [offset])


def in_pairs(case: Case) -> Machine:
    """The machine with states of another form: version 2, from version 1."""

    def wrapped(called: Callable[..., Iterable[Any]]) -> Callable[..., list[Any]]:
        return lambda states, *more: [
            [state, "v2"] for state in called([state for state, _ in states], *more)
        ]

    def viewed(states: list[Any]) -> list[Any]:
        plain = [state for state, _ in states]
        return plain if case.machine.view is None else list(case.machine.view(plain))

    return Machine(
        wrapped(case.machine.step),
        view=viewed,
        version=2,
        migrate=lambda state, version: [state, "v2"] if version == 1 else None,
    )


@pytest.mark.parametrize("name", ["counter", "fraud", "picky, viewed"])
@few
@given(data=st.data(), change=st.integers(0, 5))
def test_a_migration_that_changes_only_the_form_shows_nowhere(
    name: str, data: st.DataObject, change: int
) -> None:
    """A machine of another form, from some batch on, emits what the first one would."""
    history = data.draw(histories([name]))
    expected, found = ran(history), MachineChanges([], [])
    store, lower = MemoryStore(), 0
    second = in_pairs(CASES[name])
    for at, (events, upper) in enumerate(history.batches):
        machine = history.machine if at < change else second
        changes = state_machine.step(store, events, Interval(lower, upper), machine)
        found.updates.extend(changes.updates)
        found.errors.extend(changes.errors)
        lower = upper

    assert found.updates == expected.updates
    # The functions have other names now.
    for as_of in {event.time for event in history.events}:
        assert accumulate(records(found.errors), as_of) == accumulate(
            records(expected.errors), as_of
        )

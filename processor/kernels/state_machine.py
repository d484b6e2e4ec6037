"""State machine: user functions apply the events of a key to its set of states.

`step` returns the next states of a key for an event; there may be several (a
non-deterministic automaton) or none.  `view` returns the values to show for the states;
without it these are the states themselves.  The output is the collection of (key, shown
value).  Upsert is a machine with a step that ignores the old states.

All events of one key and time are applied in order, and then the difference of the shown
values is emitted at that time.  A time is processed when the interval has closed it; events
at or beyond `upper` wait in the store.

If a function fails on an event or refuses it, states and values stay as they were, and the
key gets an error record, which the next applied event retracts.  An event is applied if
step and view both return data with a JSON form.  So each of several events at one time
succeeds or fails by itself, although only the result of the last one is shown.

A key without states shows no values and has no entry in the store.  If the shown values are
not the states themselves, they are stored as emitted, so that they can be retracted after
the functions have changed.

States have the version of their machine.  Those of another version are migrated at the next
event of their key, and until then the values shown do not change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, final

import msgspec

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.codecs.errors import error_record
from ikebana.errors import IkebanaError
from ikebana.processor.base.rows import NULL_KEY, KeyedUpdate
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    TIME_BYTES,
    Contents,
    OfKey,
    PartKind,
    StateLayout,
    packed_time,
    time_in,
)
from ikebana.processor.kernels.user_calls import FailureError, canonical_results


@final
class Tombstone:
    """The type of `TOMBSTONE`, which `step` gets for a deleted row; null is a value."""

    def __reduce__(self) -> str:
        # There is one in each process, also after a copy.
        return "TOMBSTONE"


TOMBSTONE: Final = Tombstone()


class StateVersionError(IkebanaError):
    """The store has states of another version of the machine, which cannot migrate them."""

    def __init__(self, version: int, stored: int) -> None:
        super().__init__(
            f"cannot read states of version {stored} with a machine of version {version}",
            hint=f"Give the machine a migrate function, or go back to version {stored}.",
        )
        self.version = version
        self.stored = stored


@dataclass(frozen=True, slots=True)
class Machine:
    """Functions over JSON data as Python objects; each must depend on its arguments alone.

    `step(states, event, time)` returns the states after an event, or raises `Refused`.  The
    states come as a list in the order of their canonical bytes; the returned states may be in any
    order and repeat.  `view(states)` returns the values to show for them.

    `migrate(state, version)` converts a state of that version to the current one.
    """

    step: Callable[[list[Any], Any, int], Iterable[Any]]
    view: Callable[[list[Any]], Iterable[Any]] | None = None
    version: int = 1
    migrate: Callable[[Any, int], Any] | None = None
    name: str = ""
    """The operator, as errors name it."""
    topics: tuple[str, ...] = ()
    """Topics by rank.  If there are any, an event's order begins with the rank of its topic, its
    partition and its offset, which the error record of a failure then names as its place."""


class Event(NamedTuple):
    """An event of a key, as canonical bytes; None is a tombstone.

    At one time the lesser `order` comes first, and of equal ones the first to arrive.  With
    a `record` the event could not be decoded: it changes nothing and puts the error record
    into the key's error slot.
    """

    key: bytes
    time: int
    order: tuple[int, ...]
    value: bytes | None
    record: bytes | None = None


class MachineChanges(NamedTuple):
    """The updates of the collection and those of the error records."""

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]


class MachineState(msgspec.Struct, array_like=True, frozen=True):
    """The state of a key: its data are canonical bytes, sorted, each once.

    `shown` is None if the states themselves show.
    """

    version: int
    states: tuple[bytes, ...] = ()
    shown: tuple[bytes, ...] | None = None
    record: bytes | None = None

    @property
    def visible(self) -> tuple[bytes, ...]:
        """The values that show."""
        return self.states if self.shown is None else self.shown


_encode = msgspec.msgpack.encode
_entry_of = msgspec.msgpack.Decoder(MachineState).decode
_place_of = msgspec.msgpack.Decoder(tuple[tuple[int, ...], bytes]).decode
# The value of an event, or its error record; one of them is None.
_Waiting = tuple[bytes | None, bytes | None]
_waiting_of = msgspec.msgpack.Decoder(list[_Waiting]).decode


def step(
    store: Store, events: Sequence[Event], interval: Interval, machine: Machine
) -> MachineChanges:
    """Apply the events with times before `interval.upper`; keep the others.

    Raises:
        StateVersionError: a key has states of a version that the machine cannot read.
    """
    states, waiting = PrefixStore(store, b"k"), PrefixStore(store, b"w")
    # Waiting events have arrived first; sort() is stable.
    due = _due(waiting, interval)
    early: list[Event] = []
    for event in events:
        time = event.time
        assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
        (due if time < interval.upper else early).append(event)
    _wait(waiting, early)
    due.sort(key=lambda event: (event.time, event.order))
    keys = list(dict.fromkeys(event.key for event in due))
    stored = states.get_many(keys)
    current = {key: _loaded(entry, machine) for key, entry in zip(keys, stored, strict=True)}
    changes = MachineChanges([], [])
    for time, simultaneous in groupby(due, key=lambda event: event.time):
        before: dict[bytes, MachineState] = {}
        for event in simultaneous:
            entry = current[event.key]
            before.setdefault(event.key, entry)
            current[event.key] = _applied(machine, entry, event)
        for key, old in before.items():
            new = current[key]
            _emit(changes.updates, key, time, old.visible, new.visible)
            _emit(changes.errors, key, time, _slot(old), _slot(new))
    for key, was in zip(keys, stored, strict=True):
        entry = current[key]
        if not entry.states and entry.record is None:
            if was is not None:
                states.delete(key)
        elif (now := _encode(entry)) != was:
            states.put(key, now)
    return changes


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its shown values and its error record."""
    for key, entry in PrefixStore(store, b"k").scan(b"", start):
        state = _entry_of(entry)
        yield key, state.visible, _slot(state)


def waiting_times(store: Store) -> list[int]:
    """The times of the events that wait, in order."""
    waiting = PrefixStore(store, b"w").scan(b"")
    return [time_in(place) for place, _ in waiting]


def _loaded(entry: bytes | None, machine: Machine) -> MachineState:
    if entry is None:
        return MachineState(machine.version)
    state = _entry_of(entry)
    if state.version != machine.version and machine.migrate is None:
        raise StateVersionError(machine.version, state.version)
    return state


def _applied(machine: Machine, entry: MachineState, event: Event) -> MachineState:
    """The entry of a key after an event."""
    if event.record is not None:
        return _with_record(entry, event.record)
    if event.key == NULL_KEY:
        # It empties the error slot of records without a key; the function does not see it.
        return MachineState(machine.version)
    try:
        states = _moved(machine, _migrated(machine, entry), event)
        shown = None if machine.view is None else _viewed(machine, machine.view, states)
    except FailureError as failure:
        # Everything else stays, the version too: an event that is not applied does not migrate.
        place = _place(machine, event.order)
        record = error_record(failure.reason(machine.name), place, event.key, None)
        return _with_record(entry, record)
    return MachineState(machine.version, states, shown)


def _place(machine: Machine, order: tuple[int, ...]) -> tuple[str, int, int] | None:
    """The topic, partition and offset of an event, if its order has them."""
    if not machine.topics:
        return None
    rank, partition, offset, *_ = order
    return machine.topics[rank], partition, offset


def _with_record(entry: MachineState, record: bytes) -> MachineState:
    # Without states there is only one form, wherever batches were cut.
    shown = entry.shown if entry.states else None
    return msgspec.structs.replace(entry, shown=shown, record=record)


def _migrated(machine: Machine, entry: MachineState) -> tuple[bytes, ...]:
    migrate, version = machine.migrate, entry.version
    if migrate is None or version == machine.version:
        return entry.states
    return _data(
        machine,
        "migrate",
        migrate,
        lambda: [migrate(canonical.decode(state), version) for state in entry.states],
    )


def _moved(machine: Machine, states: tuple[bytes, ...], event: Event) -> tuple[bytes, ...]:
    # Decoded for each call: a function may change its arguments, and then fail.
    return _data(
        machine,
        "step",
        machine.step,
        lambda: machine.step(
            _decoded(states),
            TOMBSTONE if event.value is None else canonical.decode(event.value),
            event.time,
        ),
    )


def _viewed(
    machine: Machine, view: Callable[[list[Any]], Iterable[Any]], states: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    return _data(machine, "view", view, lambda: view(_decoded(states))) if states else ()


def _data(
    machine: Machine, role: str, function: Any, called: Callable[[], Any]
) -> tuple[bytes, ...]:
    """The data that a user's function returns, as a set.  Raises: FailureError."""
    return tuple(sorted(set(canonical_results(role, function, called, machine.name))))


def _decoded(data: Iterable[bytes]) -> list[Any]:
    return list(map(canonical.decode, data))


def _emit(
    updates: list[KeyedUpdate],
    key: bytes,
    time: int,
    old: tuple[bytes, ...],
    new: tuple[bytes, ...],
) -> None:
    if old == new:
        return
    # Sets are used for membership only: the order is that of the bytes, whatever their hashes.
    before, after = set(old), set(new)
    updates += [KeyedUpdate(key, value, time, -1) for value in old if value not in after]
    updates += [KeyedUpdate(key, value, time, 1) for value in new if value not in before]


def _slot(entry: MachineState) -> tuple[bytes, ...]:
    return () if entry.record is None else (entry.record,)


def _wait(waiting: PrefixStore, events: Sequence[Event]) -> None:
    """Keep events, after those that wait already; events of one order stay in order of arrival."""
    by_place: dict[bytes, list[_Waiting]] = {}
    for key, time, order, value, record in events:
        place = packed_time(time) + _encode((order, key))
        by_place.setdefault(place, []).append((value, record))
    places = list(by_place)
    for place, entry in zip(places, waiting.get_many(places), strict=True):
        earlier = [] if entry is None else _waiting_of(entry)
        waiting.put(place, _encode(earlier + by_place[place]))


def waiting(store: Store, upper: int, most: int) -> int:
    """How many events wait for times from `upper` on, counted up to `most` or a few more."""
    count = 0
    for _, entry in PrefixStore(store, b"w").scan(b"", packed_time(upper)):
        count += len(_waiting_of(entry))
        if count >= most:
            break
    return count


PART = PartKind(
    "machine ",
    StateLayout(
        {
            b"k": KEY_IS_REST,
            b"w": OfKey(lambda rest, _: _place_of(rest[TIME_BYTES:])[1]),
        }
    ),
    contents,
    waiting,
    waiting_times,
)


def _due(waiting: PrefixStore, interval: Interval) -> list[Event]:
    """Remove and return the events that waited for a time of the interval."""
    events: list[Event] = []
    places = []
    # Nothing waits for earlier times, but the scan would step over deleted entries.
    start = packed_time(interval.lower)
    for place, entry in waiting.scan(b"", start):
        time = time_in(place)
        # Places are in order of time, so the first one beyond the frontier ends it.
        if time >= interval.upper:
            break
        order, key = _place_of(place[TIME_BYTES:])
        events += [Event(key, time, order, *waiting) for waiting in _waiting_of(entry)]
        places.append(place)
    for place in places:
        waiting.delete(place)
    return events

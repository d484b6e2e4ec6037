"""What state machines mean, sentence by sentence, on literal events."""

import base64
import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import state_machine
from ikebana.processor.kernels.state_machine import (
    TOMBSTONE,
    Event,
    Machine,
    MachineChanges,
    StateVersionError,
)
from ikebana.processor.kernels.user_calls import Refused
from machines import CLOSED_SESSIONS, COUNTER, DEBOUNCE, FRAUD, ORDER, SESSIONS, UPSERT
from support.stores import entries

# An event is Python data, written for the kernel, or bytes as they are.
TimedEvent = tuple[int, Any]
Shown = list[tuple[int, str, int]]


def as_events(events: Iterable[TimedEvent], key: bytes = b"k") -> list[Event]:
    """Upserts of one key in their order."""
    return [Event(key, time, (at,), written(said)) for at, (time, said) in enumerate(events)]


def written(said: Any) -> bytes | None:
    """An event for the kernel."""
    if said is TOMBSTONE:
        return None
    return said if isinstance(said, bytes) else json.dumps(said).encode()


def ran(
    machine: Machine, events: Iterable[TimedEvent], store: MemoryStore | None = None
) -> MachineChanges:
    """What a machine makes of the events of one key, in one batch."""
    here = MemoryStore() if store is None else store
    return state_machine.step(here, as_events(events), Interval(0, 1 << 40), machine)


def shown(updates: Iterable[KeyedUpdate]) -> Shown:
    """Updates as (time, value, diff)."""
    return [(u.time, u.value.decode(), u.diff) for u in updates]


def reasons(updates: Iterable[KeyedUpdate]) -> Shown:
    """Updates of error records as (time, reason, diff)."""
    return [(u.time, json.loads(u.value)["reason"], u.diff) for u in updates]


MINUTE = 60_000

EXAMPLES = [
    pytest.param(
        UPSERT,
        [
            (0, "mcsherry"),
            (1, "zappa"),
            (2, TOMBSTONE),
            (3, "oz"),
            (4, "oz"),
            (5, TOMBSTONE),
        ],
        [
            (0, '"mcsherry"', 1),
            (1, '"mcsherry"', -1),
            (1, '"zappa"', 1),
            (2, '"zappa"', -1),
            (3, '"oz"', 1),
            (5, '"oz"', -1),
        ],
        id="upsert: six updates for frank",
    ),
    pytest.param(
        UPSERT,
        [(0, None), (1, TOMBSTONE)],
        [(0, "null", 1), (1, "null", -1)],
        id="upsert: null is a value, a tombstone is none",
    ),
    pytest.param(UPSERT, [(0, TOMBSTONE)], [], id="upsert: a tombstone for what is not there"),
    pytest.param(
        UPSERT,
        [(7, "a"), (7, "b"), (7, "c")],
        [(7, '"c"', 1)],
        id="upsert: of one time only the last shows",
    ),
    pytest.param(
        UPSERT,
        [(0, True), (1, 1), (2, 1.0)],
        [(0, "true", 1), (1, "true", -1), (1, "1", 1)],
        id="upsert: true is not 1, and 1.0 is",
    ),
    pytest.param(
        COUNTER,
        [(0, "a"), (0, "b"), (4, "a"), (9, TOMBSTONE), (9, "a")],
        [(0, "2", 1), (4, "2", -1), (4, "3", 1), (9, "3", -1), (9, "1", 1)],
        id="counter: each event counts, also those of one time",
    ),
    pytest.param(
        COUNTER,
        [(0, "a"), (3, TOMBSTONE), (3, "b")],
        [(0, "1", 1)],
        id="counter: what comes out as it was shows nothing",
    ),
    pytest.param(
        SESSIONS,
        [(0, "x"), (30, "x"), (61, "x")],
        [
            (0, '{"events":1,"since":0,"until":0}', 1),
            (30, '{"events":1,"since":0,"until":0}', -1),
            (30, '{"events":2,"since":0,"until":30}', 1),
            (61, '{"events":1,"since":61,"until":61}', 1),
        ],
        id="sessions: several states of one key",
    ),
    pytest.param(
        CLOSED_SESSIONS,
        [(0, "x"), (30, "x"), (61, "x"), (70, TOMBSTONE)],
        [
            (61, '{"events":2,"since":0,"until":30}', 1),
            (70, '{"events":2,"since":0,"until":30}', -1),
        ],
        id="sessions: a view shows those that cannot go on",
    ),
    pytest.param(
        FRAUD,
        [(0, 1), (MINUTE, 2), (2 * MINUTE, 500), (3 * MINUTE, 3), (10 * MINUTE, 5000)],
        [(600_000, "600000", 1)],
        id="fraud: three small ones and a large one, with another in between",
    ),
    pytest.param(
        FRAUD,
        [(0, 1), (1, 2), (2, 3), (10 * MINUTE + 1, 5000)],
        [],
        id="fraud: not within ten minutes",
    ),
    pytest.param(
        FRAUD,
        [(0, 1), (5, 2), (6, 3), (7, 4), (10 * MINUTE + 5, 5000)],
        [(600_005, "600005", 1)],
        id="fraud: a pattern that began later is live as well",
    ),
    pytest.param(FRAUD, [(0, 1), (5, 2), (6, 5000)], [], id="fraud: two small ones are too few"),
    pytest.param(
        DEBOUNCE,
        [(0, "a"), (5, "a"), (6, "b"), (8, "a"), (9, "a"), (20, "b"), (25, "b")],
        [(5, '"a"', 1), (25, '"a"', -1), (25, '"b"', 1)],
        id="debounce: what changes soon does not count",
    ),
]


@pytest.mark.parametrize(("machine", "events", "expected"), EXAMPLES)
def test_a_machine_shows(machine: Machine, events: list[TimedEvent], expected: Shown) -> None:
    """The events of a key make the difference that shows at each time."""
    found = ran(machine, events)

    assert shown(found.updates) == expected
    assert found.errors == []


def test_several_states_of_a_key_are_live() -> None:
    """An automaton that is not deterministic is in every state that it can have reached."""
    store = MemoryStore()
    ran(Machine(FRAUD.step), [(0, 1), (1, 2)], store)

    states = b'{"since":0,"small":1}', b'{"since":0,"small":2}', b'{"since":1,"small":1}'
    assert list(state_machine.contents(store)) == [(b"k", states, ())]


def test_the_states_are_a_set() -> None:
    """What a step gives twice, in whatever spelling, is one state; 1 and true are two."""
    store = MemoryStore()
    ran(Machine(lambda states, event, time: [1, True, 1.0, "1", True]), [(0, "x")], store)

    assert list(state_machine.contents(store)) == [(b"k", (b'"1"', b"1", b"true"), ())]


def test_a_step_gets_the_states_in_the_order_of_their_bytes() -> None:
    """A step may rely on the order, which is that of canonical bytes."""
    seen = []

    def noting(states: list[Any], event: Any, time: int) -> list[Any]:
        seen.append((list(states), event, time))
        return [{"b": 1, "a": []}, "x", 10, 9]

    ran(Machine(noting), [(3, {"n": 1}), (4, TOMBSTONE)])

    assert seen == [([], {"n": 1}, 3), (["x", 10, 9, {"a": [], "b": 1}], TOMBSTONE, 4)]


def test_a_symbol_equal_to_null_is_no_tombstone() -> None:
    """A step is told null as None and a tombstone as what is no data at all."""
    seen = []

    def noting(states: list[Any], event: Any, time: int) -> list[Any]:
        seen.append(event)
        return []

    ran(Machine(noting), [(0, None), (1, TOMBSTONE)])

    assert seen == [None, TOMBSTONE]


def test_there_is_one_tombstone() -> None:
    """It is known by identity, also when it has been copied or sent."""
    assert copy.deepcopy(TOMBSTONE) is TOMBSTONE
    assert pickle.loads(pickle.dumps(TOMBSTONE)) is TOMBSTONE


@pytest.mark.parametrize(
    ("events", "updates", "errors"),
    [
        pytest.param(
            [(0, "place"), (1, "ship"), (2, "pay")],
            [(0, '"placed"', 1), (2, '"placed"', -1), (2, '"paid"', 1)],
            [(1, "illegal transition", 1), (2, "illegal transition", -1)],
            id="the next event that is applied retracts the record",
        ),
        pytest.param(
            [(0, "place"), (1, "ship"), (2, TOMBSTONE)],
            [(0, '"placed"', 1), (2, '"placed"', -1)],
            [(1, "illegal transition", 1), (2, "illegal transition", -1)],
            id="a tombstone is an event like others",
        ),
        pytest.param(
            [(0, "place"), (1, "ship"), (2, "deliver"), (3, "pay")],
            [(0, '"placed"', 1), (3, '"placed"', -1), (3, '"paid"', 1)],
            [(1, "illegal transition", 1), (3, "illegal transition", -1)],
            id="a record that says the same stays",
        ),
        pytest.param(
            [(0, "place"), (1, "ship"), (2, ["ship"]), (3, "pay")],
            [(0, '"placed"', 1), (3, '"placed"', -1), (3, '"paid"', 1)],
            [
                (1, "illegal transition", 1),
                (2, "illegal transition", -1),
                (2, "illegal transition of a list", 1),
                (3, "illegal transition of a list", -1),
            ],
            id="the last record takes the place of the one before",
        ),
        pytest.param(
            [(4, "place"), (4, "ship"), (4, "pay")],
            [(4, '"paid"', 1)],
            [],
            id="within one time: what is retracted at once never shows",
        ),
        pytest.param(
            [(4, "place"), (4, "pay"), (4, "pay")],
            [(4, '"paid"', 1)],
            [(4, "illegal transition", 1)],
            id="within one time: the good ones before it stand",
        ),
        pytest.param(
            [(0, "ship"), (1, "place")],
            [(1, '"placed"', 1)],
            [(0, "illegal transition", 1), (1, "illegal transition", -1)],
            id="a key without states can have a record",
        ),
    ],
)
def test_a_refused_symbol_is_an_error_and_the_states_stay(
    events: list[TimedEvent], updates: Shown, errors: Shown
) -> None:
    """What a machine refuses goes to the key's error slot and moves nothing."""

    def strict(states: list[Any], event: Any, time: int) -> Iterable[Any]:
        if isinstance(event, list):
            raise Refused("illegal transition of a list")
        return ORDER.step(states, event, time)

    found = ran(Machine(strict), events)

    assert shown(found.updates) == updates
    assert reasons(found.errors) == errors


def test_an_error_record_names_the_operator_the_function_and_what_it_raised() -> None:
    """The message is the function's own, which may hold data; the key is in base64."""
    found = ran(Machine(fails_on_secrets, name="status"), [(5, "secret")])

    (update,) = found.errors
    assert (update.key, update.time, update.diff) == (b"k", 5, 1)
    assert json.loads(update.value) == {
        "reason": f"operator status: step {__name__}:fails_on_secrets raised LookupError: "
        "secret of []",
        "topic": None,
        "partition": None,
        "offset": None,
        "key": base64.b64encode(b"k").decode(),
        "value": None,
    }


def fails_on_secrets(states: list[Any], event: Any, time: int) -> list[Any]:
    """Says in its exception what it got."""
    if event == "secret":
        raise LookupError(f"{event} of {states}")
    return [event]


def broken_off(states: list[Any], event: Any, time: int) -> Iterable[Any]:
    """Gives one state and fails on the second."""
    yield event
    raise ValueError(event)


class OddError(Exception):
    """Has a message that is no UTF-8."""


def gives(data: Any) -> Callable[..., Any]:
    """A step that gives the same for every event but "good"."""

    def given(states: list[Any], event: Any, time: int) -> Any:
        return ["good"] if event == "good" else data

    return given


def raises(error: BaseException) -> Callable[..., Any]:
    """A step that raises the same for every event but "good"."""

    def raising(states: list[Any], event: Any, time: int) -> Any:
        if event == "good":
            return ["good"]
        raise error

    return raising


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


NO_FORM = "gave data that have no JSON form"
HOSTILE = [
    pytest.param(
        raises(OddError("\ud800")), "raised OddError: ?", id="a message that is no UTF-8"
    ),
    pytest.param(raises(StopIteration()), "raised StopIteration", id="StopIteration"),
    pytest.param(raises(RecursionError("here")), "raised RecursionError", id="RecursionError"),
    pytest.param(gives(None), "gave a NoneType in place of a collection", id="forgot to return"),
    pytest.param(gives("paid"), "gave a str in place of a collection", id="one text"),
    pytest.param(gives(b"paid"), "gave a bytes in place of a collection", id="one bytes"),
    pytest.param(gives({"n": 1}), "gave a dict in place of a collection", id="one object"),
    pytest.param(gives(7), "gave a int in place of a collection", id="one number"),
    pytest.param(gives([object()]), NO_FORM, id="no JSON"),
    pytest.param(gives([TOMBSTONE]), NO_FORM, id="the tombstone as a state"),
    pytest.param(gives([{1: 2}]), NO_FORM, id="a field that is no text"),
    pytest.param(gives([Decimal("NaN")]), NO_FORM, id="a decimal that is no number"),
    pytest.param(gives([Decimal("1e400")]), NO_FORM, id="a number beyond any double"),
    pytest.param(gives(["\ud800"]), NO_FORM, id="no UTF-8"),
    pytest.param(gives([nested(400)]), NO_FORM, id="too deep to be read again"),
    pytest.param(gives([nested(100_000)]), NO_FORM, id="too deep to be written"),
]


@pytest.mark.parametrize(("hostile", "problem"), HOSTILE)
def test_whatever_a_step_does_is_an_error_as_data(
    hostile: Callable[..., Any], problem: str
) -> None:
    """A step that fails leaves the states; the key lives on."""
    name = f"step {__name__}:{hostile.__qualname__}"
    found = ran(Machine(hostile), [(0, "good"), (1, "bad"), (2, "good")])

    assert shown(found.updates) == [(0, '"good"', 1)]
    assert reasons(found.errors) == [(1, f"{name} {problem}", 1), (2, f"{name} {problem}", -1)]


@pytest.mark.parametrize(("hostile", "problem"), HOSTILE)
def test_whatever_a_view_does_is_an_error_as_data(
    hostile: Callable[..., Any], problem: str
) -> None:
    """An event whose states cannot be shown is not applied: what was stays and shows."""
    store = MemoryStore()
    name = f"view {__name__}:"

    def viewed(states: list[Any]) -> Any:
        return hostile(states, states[0], 0)

    found = ran(Machine(UPSERT.step, view=viewed), [(0, "good"), (1, "bad")], store)
    later = ran(UPSERT, [(2, TOMBSTONE)], store)

    assert shown(found.updates) == [(0, '"good"', 1)]
    ((time, reason, diff),) = reasons(found.errors)
    assert (time, diff) == (1, 1)
    assert reason.startswith(name)
    assert reason.endswith(problem)
    assert shown(later.updates) == [(2, '"good"', -1)]


def test_a_reason_that_is_no_utf_8_becomes_one() -> None:
    """What a machine says of its refusal cannot break the record."""
    found = ran(Machine(raises(Refused("no \ud800"))), [(0, "bad")])

    assert reasons(found.errors) == [(0, "no ?", 1)]


def test_a_generator_that_breaks_off_has_given_nothing() -> None:
    """States that were given before the exception do not count."""
    found = ran(Machine(broken_off), [(0, "x")])

    assert found.updates == []
    assert reasons(found.errors) == [
        (0, f"step {__name__}:broken_off raised ValueError: x", 1),
    ]


def test_a_function_that_spoils_what_it_gets_spoils_nothing() -> None:
    """States and events are the function's own: after a failure they are as before."""
    seen = []

    def spoiling(states: list[Any], event: Any, time: int) -> list[Any]:
        seen.append(copy.deepcopy(states))
        for state in states:
            state["n"] = "spoilt"
        states.append("spoilt")
        event["n"] += 1
        if time == 1:
            raise LookupError
        return [event]

    def emptying(states: list[Any]) -> list[Any]:
        shows = [state["n"] for state in states]
        states.clear()
        return shows

    found = ran(Machine(spoiling, view=emptying), [(0, {"n": 1}), (1, {"n": 5}), (2, {"n": 7})])

    assert seen == [[], [{"n": 2}], [{"n": 2}]]
    assert shown(found.updates) == [(0, "2", 1), (2, "2", -1), (2, "8", 1)]


def test_a_key_without_states_shows_nothing_whatever_the_view() -> None:
    """The view of no states is not asked: else every key that never was would show it."""
    machine = Machine(UPSERT.step, view=lambda states: [len(states)])
    store = MemoryStore()
    found = ran(machine, [(0, TOMBSTONE), (1, "a"), (2, "b"), (3, TOMBSTONE)], store)

    assert shown(found.updates) == [(1, "1", 1), (3, "1", -1)]
    assert entries(store) == []


@pytest.mark.parametrize(
    ("machine", "events", "kept"),
    [
        pytest.param(UPSERT, [(0, "a"), (1, TOMBSTONE)], 0, id="no states and no error"),
        pytest.param(ORDER, [(0, "ship")], 1, id="an error alone"),
        pytest.param(ORDER, [(0, "ship"), (1, TOMBSTONE)], 0, id="an error retracted"),
        pytest.param(Machine(UPSERT.step, view=lambda _: []), [(0, "a")], 1, id="hidden states"),
    ],
)
def test_the_store_has_an_entry_where_there_is_something_to_keep(
    machine: Machine, events: list[TimedEvent], kept: int
) -> None:
    """Empty states without an error leave nothing behind, in one batch or in several."""
    at_once, each = MemoryStore(), MemoryStore()
    ran(machine, events, at_once)
    for event in events:
        ran(machine, [event], each)

    assert len(entries(at_once)) == kept
    assert entries(each) == entries(at_once)


class Counting(MemoryStore):
    """A store that notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[bytes]] = []
        self.written: list[bytes] = []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if keys:
            self.asked.append(list(keys))
        return super().get_many(keys)

    def put(self, key: bytes, value: bytes) -> None:
        self.written.append(key)
        super().put(key, value)

    def delete(self, key: bytes, size: int = 0) -> None:
        self.written.append(key)
        super().delete(key, size)


def test_a_batch_reads_its_keys_once_and_writes_what_has_changed() -> None:
    """One look-up for all keys; a key that comes out as it was is not written."""
    store = Counting()
    first = [Event(key, 0, (0,), b'"a"') for key in (b"1", b"2", b"3")]
    state_machine.step(store, first, Interval(0, 1), UPSERT)
    store.asked, store.written = [], []
    second = [
        Event(b"1", 1, (0,), b'"b"'),
        Event(b"2", 1, (1,), b'"a"'),
        Event(b"3", 1, (2,), b'"b"'),
        Event(b"3", 2, (3,), b'"a"'),
        Event(b"4", 1, (4,), None),
    ]
    state_machine.step(store, second, Interval(1, 3), UPSERT)

    assert store.asked == [[b"k1", b"k2", b"k3", b"k4"]]
    assert store.written == [b"k1"]


def test_symbols_of_one_key_and_time_are_applied_in_order() -> None:
    """The order decides, not the arrival; of equal orders the first to arrive comes first."""
    appended = Machine(lambda states, event, time: ["".join(states) + event])
    arrived = [
        Event(b"k", 0, (1, 0), b'"c"'),
        Event(b"k", 0, (0, 10), b'"b"'),
        Event(b"k", 0, (1, 0), b'"d"'),
        Event(b"k", 0, (0, 9), b'"a"'),
    ]
    found = state_machine.step(MemoryStore(), arrived, Interval(0, 1), appended)

    assert shown(found.updates) == [(0, '"abcd"', 1)]


def test_symbols_wait_until_their_time_is_closed() -> None:
    """Of several batches, with one order even, none is lost; and the upper is not closed."""
    appended = Machine(lambda states, event, time: ["".join(states) + event])
    store = MemoryStore()
    early = [
        state_machine.step(store, [Event(b"k", 3, (0,), said)], Interval(upper, upper), appended)
        for upper, said in enumerate([b'"a"', b'"b"'])
    ]
    third = state_machine.step(store, [Event(b"k", 3, (0,), b'"c"')], Interval(1, 3), appended)
    found = state_machine.step(store, [Event(b"k", 3, (0,), b'"d"')], Interval(3, 4), appended)

    assert [*early, third] == [([], []), ([], []), ([], [])]
    assert shown(found.updates) == [(3, '"abcd"', 1)]
    assert [place[:1] for place, _ in entries(store)] == [b"k"]


def test_a_symbol_before_the_lower_is_our_own_fault() -> None:
    """Nobody may give what is late: it is no data error."""
    with pytest.raises(AssertionError, match="time 4 is not beyond the lower 5"):
        state_machine.step(MemoryStore(), as_events([(4, "a")]), Interval(5, 9), UPSERT)


@pytest.mark.parametrize("key", [b"", b"k", b"w", b"\x00" * 20, b"\xff" * 300])
def test_every_entry_tells_its_key(key: bytes) -> None:
    """States and what waits both go where the key goes."""
    store = MemoryStore()
    events = [Event(key, 0, (), b"1"), Event(key, 9, (), b"2"), Event(key, 9, (1, 2), None)]
    state_machine.step(store, events, Interval(0, 5), UPSERT)

    divided = [state_machine.PART.layout.divided(*each, [key].index) for each in entries(store)]
    assert [list(each) for each in divided] == [[0], [0], [0]]


def renamed(state: Any, version: int) -> Any:
    """From version 1, a number, to version 2, an object; of no other."""
    if version != 1:
        raise Refused(f"no way from version {version}")
    return {"n": state}


def one_more(states: list[Any], event: Any, time: int) -> list[Any]:
    """The counter with objects as states; only "n" counts."""
    if event == "fail":
        raise LookupError
    (state,) = states or [{"n": 0}]
    return [{"n": state["n"] + 1}]


SECOND = Machine(one_more, version=2, migrate=renamed)


def test_states_of_another_version_migrate_with_the_next_symbol() -> None:
    """Until then they show what they did, and this is what is retracted; other keys stay."""
    store = MemoryStore()
    ran(COUNTER, [(0, "x"), (1, "x")], store)
    state_machine.step(store, [Event(b"other", 0, (0,), b'"x"')], Interval(0, 1), COUNTER)
    before = entries(store)
    idle = state_machine.step(store, [], Interval(2, 3), SECOND)

    assert (idle, entries(store)) == (([], []), before)

    moved, again = ran(SECOND, [(3, "x")], store), ran(SECOND, [(4, "x")], store)

    assert shown(moved.updates) == [(3, "2", -1), (3, '{"n":3}', 1)]
    assert shown(again.updates) == [(4, '{"n":3}', -1), (4, '{"n":4}', 1)]
    assert (b"other", (b"1",), ()) in state_machine.contents(store)


def test_a_symbol_that_is_not_applied_does_not_migrate() -> None:
    """After a failure the states are those of their version, and migrate later."""
    store = MemoryStore()
    ran(COUNTER, [(0, "x")], store)
    failed = ran(SECOND, [(1, "fail")], store)

    assert failed.updates == []
    assert [reason for _, reason, _ in reasons(failed.errors)] == [
        f"step {__name__}:one_more raised LookupError"
    ]

    found = ran(SECOND, [(2, "x")], store)

    assert shown(found.updates) == [(2, "1", -1), (2, '{"n":2}', 1)]
    assert [diff for _, _, diff in reasons(found.errors)] == [-1]


@pytest.mark.parametrize(
    ("migrate", "reason"),
    [
        pytest.param(renamed, "no way from version 3", id="refused"),
        pytest.param(
            fails_on_secrets,
            f"migrate {__name__}:fails_on_secrets raised TypeError: fails_on_secrets() "
            "missing 1 required positional argument: 'time'",
            id="raised",
        ),
        pytest.param(
            lambda state, version: object(),
            f"migrate {__name__}:<lambda> gave data that have no JSON form",
            id="no JSON",
        ),
    ],
)
def test_a_migration_that_fails_is_an_error_as_data(
    migrate: Callable[..., Any], reason: str
) -> None:
    """The states of the other version stay, as they show, and the record has the reason."""
    store = MemoryStore()
    ran(Machine(UPSERT.step, version=3), [(0, "a")], store)
    found = ran(Machine(UPSERT.step, version=2, migrate=migrate), [(1, "b")], store)

    assert (shown(found.updates), reasons(found.errors)) == ([], [(1, reason, 1)])
    ((_, values, _),) = state_machine.contents(store)
    assert values == (b'"a"',)


@pytest.mark.parametrize(("version", "stored"), [(2, 1), (1, 2)])
def test_states_of_another_version_without_a_migration_stop(version: int, stored: int) -> None:
    """Both versions are named, and the store is as it was."""
    store = MemoryStore()
    ran(Machine(UPSERT.step, version=stored), [(0, "a")], store)
    before = entries(store)

    with pytest.raises(StateVersionError) as caught:
        ran(Machine(UPSERT.step, version=version), [(1, "b")], store)

    assert (caught.value.version, caught.value.stored) == (version, stored)
    assert str(caught.value) == (
        f"cannot read states of version {stored} with a machine of version {version}\n"
        f"Hint: Give the machine a migrate function, or go back to version {stored}."
    )
    assert entries(store) == before


def test_what_has_shown_is_retracted_also_under_another_view() -> None:
    """A view that is changed without a word shows with the next event, and sums stay right."""
    store = MemoryStore()
    ran(Machine(UPSERT.step, view=lambda states: ["old view"]), [(0, "a")], store)
    found = ran(Machine(UPSERT.step, view=lambda states: ["new view"]), [(1, "a")], store)
    gone = ran(UPSERT, [(2, TOMBSTONE)], store)

    assert shown(found.updates) == [(1, '"old view"', -1), (1, '"new view"', 1)]
    assert shown(gone.updates) == [(2, '"new view"', -1)]


HASHES = """
from ikebana.arrangements.update import Interval
from ikebana.arrangements.store import MemoryStore
from ikebana.processor.kernels.state_machine import Event, Machine, step

def letters(states, event, time):
    return {*states, *event, frozenset(event)} - {min(event)}

def shown(states):
    return frozenset(map(str.upper, filter(str.isalpha, map(str, states)))) | {tuple(states[:1])}

store = MemoryStore()
events = [
    Event(key, time, (at,), word)
    for at, (key, time, word) in enumerate(
        (key, time, word)
        for key in (b"b", b"a")
        for time, word in enumerate([b'"frank"', b'"zappa"', b'"mcsherry"'])
    )
]
for machine in (Machine(letters), Machine(letters, view=shown)):
    print(step(MemoryStore(), events, Interval(0, 9), machine))
    step(store, events, Interval(0, 2), Machine(letters, view=shown))
print(list(store.scan(b"")))
"""


def test_how_things_hash_never_shows() -> None:
    """Functions may give sets: updates, their order and the stored bytes do not depend on it."""
    found = {
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"),
            },
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(found) == 1
    assert "errors=[]" in found.pop()

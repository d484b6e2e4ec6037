"""Loop: collections that refer to themselves and to each other, computed until nothing changes.

The input is a collection of (key, {"key", "of", "row"}): of each key, rows of several sources,
each with the number of its source and the key that it had there.  A program makes *variables* of
them: in round 0 they are empty, and in each further round they are what the program makes of the
sources and of the variables of the round before.  The result of a key is what the variables are in
the first round that is equal to the one before, as rows {"of", "row"} with the number of the
variable.  If there is no such round up to a limit, that is an error.

Each collection within a loop has diffs by (time, round); times and rounds are ordered separately:
so a row that comes in round 3 of time 10 meets one of round 5 of time 2 in round 5 of time 10.
Times come one after the other, so the sums of all earlier times are stored by round alone
(`Trace`), and a time changes only the rounds and keys that differ from those before it:

* A join looks each change up in the traces of its other inputs, whatever their rounds are.  A
  result is of the latest round of its rows, and is waited for until that.
* A reduction computes a key again in each round in which its rows change, and in each later round
  in which they, or its results, have changed before.

A retraction goes the same way.  A row of a round is derived only from rows of earlier rounds, and
never from itself: so rows derived from a cycle vanish with the edge that leads there.

Sources of the method: F. McSherry, D. Murray, R. Isaacs, M. Isard: "Differential dataflow",
CIDR 2013; the crate `differential-dataflow` (`iterate`).
"""

# Decision (a recursion runs within a batch): Rounds run in the batch that closes their
# time, in one shard; over exchanges each round would take a micro-batch. A join in a loop is no
# delta path: a row of an early round meets older ones of later rounds.

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval, pieces
from ikebana.errors import ConvergenceError
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate
from ikebana.processor.base.texts import shown
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    Contents,
    PartKind,
    StateLayout,
    with_length,
    write_entries,
)
from ikebana.processor.kernels.reduce import Reduced

# Traces of a loop: the rows of its collections by key, with the rounds in which they change.
#
# A loop computes in rounds, and its collections have differences by round: the rows of a key in
# round 5 are the sums of the diffs of all rounds up to 5.  A trace sums all closed times, so of
# the pair (time, round) it keeps the round alone; the changes of a new time are added to it.
#
# A trace reads the groups of keys that it is asked for, and keeps these until the batch ends.
# Additions to other groups are only written.  An entry has one row, so a change of a large group
# writes only the rows that change.

Rounds = dict[int, int]
"""Diffs by round; none of them is zero."""
Group = Mapping[bytes, Rounds]
"""The rows of a key."""
_TRACE_DIGEST_BYTES = 16
# An entry is the diffs by round in digits, this, and the row.
_TRACE_END = b"\n"


class Trace:
    """The rows of a collection by key, each with its diffs by round.

    The places of its entries begin with `start`.  With `is_empty` there are none yet, and it does
    not read the store.
    """

    def __init__(self, store: Store, start: bytes, *, is_empty: bool = False) -> None:
        self._store = store
        self._start = start
        self._is_empty = is_empty
        self._groups: dict[bytes, dict[bytes, Rounds]] = {}
        self._changed: dict[tuple[bytes, bytes], None] = {}
        # Diffs added to rows of groups that have not been read.
        self._added: dict[bytes, dict[bytes, Rounds]] = {}

    def load(self, keys: Iterable[bytes]) -> None:
        """Read the groups of those keys that have not been read."""
        for key in keys:
            if key in self._groups:
                continue
            group: dict[bytes, Rounds] = {}
            if not self._is_empty:
                for _, entry in self._store.scan(self._start + with_length(key)):
                    rounds, row = _decoded(entry)
                    group[row] = rounds
            for row, rounds in self._added.pop(key, {}).items():
                _add(group.setdefault(row, {}), rounds)
                if not group[row]:
                    del group[row]
            self._groups[key] = group

    def group(self, key: bytes) -> Group:
        """The rows of a key that has been loaded."""
        return self._groups[key]

    def add(self, key: bytes, row: bytes, round_: int, diff: int) -> None:
        """Add to the diffs of a row."""
        self._changed[key, row] = None
        group = self._groups.get(key)
        into = self._added.setdefault(key, {}) if group is None else group
        rounds = into.setdefault(row, {})
        _add(rounds, {round_: diff})
        if not rounds:
            del into[row]

    def entries(self) -> dict[bytes, bytes | None]:
        """All entries that have changed; None where a row is gone."""
        current: dict[bytes, Rounds] = {}
        rows: dict[bytes, bytes] = {}
        unread: dict[bytes, Rounds] = {}
        for key, row in self._changed:
            place = self._place(key, row)
            rows[place] = row
            if key in self._groups:
                current[place] = self._groups[key].get(row, {})
            elif rounds := self._added.get(key, {}).get(row):
                unread[place] = rounds
        stored = [None] * len(unread) if self._is_empty else self._store.get_many([*unread])
        for (place, rounds), entry in zip(unread.items(), stored, strict=True):
            current[place] = {} if entry is None else _decoded(entry)[0]
            _add(current[place], rounds)
        return {
            place: _encoded(rounds, rows[place]) if rounds else None
            for place, rounds in current.items()
        }

    def _place(self, key: bytes, row: bytes) -> bytes:
        digest = blake2b(row, digest_size=_TRACE_DIGEST_BYTES).digest()
        return self._start + with_length(key) + digest


def counts_in_round(group: Group, until: int) -> dict[bytes, int]:
    """The counts of rows in a round; none of them is zero.

    >>> counts_in_round({b"a": {1: 1, 3: -1}, b"b": {2: 1}}, 2)
    {b'a': 1, b'b': 1}
    """
    counts = {
        row: sum(diff for at, diff in rounds.items() if at <= until)
        for row, rounds in group.items()
    }
    return {row: count for row, count in counts.items() if count}


def _add(rounds: Rounds, more: Mapping[int, int]) -> None:
    for at, diff in more.items():
        total = rounds.get(at, 0) + diff
        if total:
            rounds[at] = total
        else:
            rounds.pop(at, None)


def _encoded(rounds: Rounds, row: bytes) -> bytes:
    return b" ".join(b"%d:%d" % each for each in sorted(rounds.items())) + _TRACE_END + row


def _decoded(entry: bytes) -> tuple[Rounds, bytes]:
    diffs, _, row = entry.partition(_TRACE_END)
    pairs = (each.split(b":") for each in diffs.split(b" "))
    return {int(at): int(diff) for at, diff in pairs}, row


LoopUpdates = Sequence[KeyedUpdate]
"""Updates within a loop: their times are rounds."""


class Pass(NamedTuple):
    """The updates that steps return, and updates of error records."""

    updates: LoopUpdates
    errors: LoopUpdates


Steps = Callable[[LoopUpdates], Pass]


@dataclass(frozen=True, slots=True)
class MapNode:
    """Steps over a collection."""

    inputs: tuple[int]
    steps: Steps


@dataclass(frozen=True, slots=True)
class SumNode:
    """The sum of collections."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A reduction, with the steps before it, which make keys, and the steps behind it.

    `results` computes the results of some keys from all of their rows; the rows of each key have
    another time, which its results have, too.
    """

    inputs: tuple[int]
    before: Steps
    results: Callable[[LoopUpdates], Pass]
    after: Steps


class NodeLookup(NamedTuple):
    """A lookup in a side of a join: `asks` of a row equal `keys` of the side."""

    side: int
    asks: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinNode:
    """A join.  Steps make the fields of each side; no two sides share the name of a field.

    `paths` has the lookups for the changes of each side; `after` are steps over all fields.
    """

    inputs: tuple[int, ...]
    sides: tuple[Steps, ...]
    paths: tuple[tuple[NodeLookup, ...], ...]
    after: Steps


LoopNode = MapNode | SumNode | GroupNode | JoinNode


@dataclass(frozen=True, slots=True)
class Program:
    """The computation of a round.

    Collections have numbers: first the sources, then the variables, then the nodes in an order in
    which each reads those before it.  `variables` has the collection that each variable is in the
    next round, and `rounds` says how many there may be.
    """

    sources: int
    variables: tuple[int, ...]
    nodes: tuple[LoopNode, ...]
    rounds: int


def step(
    store: Store,
    updates: Collection[KeyedUpdate],
    interval: Interval,
    program: Program,
    operator: str = "",
) -> Reduced:
    """Apply the updates of one interval, which may come in any order.

    Raises: ConvergenceError, which names the `operator`.
    """
    changes: dict[bytes, dict[int, list[KeyedUpdate]]] = {}
    for update in updates:
        time = update.time
        assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
        assert update.key is not None, "a row has no key"
        changes.setdefault(update.key, {}).setdefault(time, []).append(update)
    reduced = Reduced([], [])
    after: dict[bytes, bytes | None] = {}
    for key, times in changes.items():
        loop = _Loop(store, key, program, operator)
        for time in sorted(times):
            results, errors = loop.advance(times[time])
            reduced.updates.extend(_at(key, results, time))
            reduced.errors.extend(_at(None, errors, time))
        after |= loop.entries()
    write_entries(store, after)
    # Stable: of one time and key the retractions stay first.
    reduced.updates.sort(key=lambda update: update.time)
    reduced.errors.sort(key=lambda update: update.time)
    return reduced


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its results and its error records."""
    for place, _ in store.scan(_KEY, start):
        suffix = with_length(place[1:])
        yield (
            place[1:],
            tuple(_rows(store, _RESULT + suffix)),
            tuple(_rows(store, _ERROR + suffix)),
        )


def _rows(store: Store, start: bytes) -> Iterator[bytes]:
    for _, entry in store.scan(start):
        count, _, row = entry.partition(_END)
        yield from repeat(row, int(count))


# A place is b"r" + length of the key + key + digest for a result, b"e" + the same for an error
# record, b"k" + key for their number, and b"t" + length of the key + key + number of a trace + its
# own place.
_KEY, _RESULT, _ERROR, _TRACE = b"k", b"r", b"e", b"t"
PART = PartKind(
    "loop ",
    StateLayout(
        {
            _KEY: KEY_IS_REST,
            _RESULT: KEY_WITH_LENGTH,
            _ERROR: KEY_WITH_LENGTH,
            _TRACE: KEY_WITH_LENGTH,
        }
    ),
    contents,
)
_DIGEST_BYTES = 16
# An entry of a row is its count in digits, this, and the row.
_END = b"\n"
_Counts = defaultdict[bytes, int]


def _at(key: bytes | None, counts: Mapping[bytes, int], time: int) -> Iterator[KeyedUpdate]:
    for _, value, total in sorted((total > 0, value, total) for value, total in counts.items()):
        for diff in pieces(total):
            yield KeyedUpdate(key, value, time, diff)


class _Tagged(msgspec.Struct):
    """A row of a source."""

    of: int
    key: msgspec.Raw
    row: msgspec.Raw


_tagged = msgspec.json.Decoder(_Tagged).decode


class _Loop:
    """The loop of one key in the course of a batch."""

    def __init__(self, store: Store, key: bytes, program: Program, operator: str) -> None:
        self._store, self._key, self._operator = store, key, operator
        self._program = program
        self._changed: _Counts = defaultdict(int)
        """The diffs of results and error records, with the prefixes of their places."""
        begin = _TRACE + with_length(key)
        self._traces: list[Trace] = []
        is_empty = next(store.scan(begin), None) is None

        def trace() -> Trace:
            place = begin + len(self._traces).to_bytes(2, "big")
            self._traces.append(Trace(store, place, is_empty=is_empty))
            return self._traces[-1]

        self._nodes = [_running(node, trace) for node in program.nodes]
        self._pending: list[defaultdict[int, list[KeyedUpdate]]] = []

    def advance(self, updates: LoopUpdates) -> tuple[Mapping[bytes, int], Mapping[bytes, int]]:
        """Apply updates of the sources; return the changes of results and error records."""
        program, first = self._program, self._program.sources
        begin = first + len(program.variables)
        count = begin + len(program.nodes)
        pending: list[defaultdict[int, list[KeyedUpdate]]] = [
            defaultdict(list) for _ in range(count)
        ]
        self._pending = pending
        for update in updates:
            tagged = _tagged(update.value)
            source_update = KeyedUpdate(bytes(tagged.key), bytes(tagged.row), 0, update.diff)
            pending[tagged.of][0].append(source_update)
        results: _Counts = defaultdict(int)
        errors: _Counts = defaultdict(int)
        while (now := self._next()) is not None:
            if now > program.rounds:
                raise _endless(self._operator, program.rounds)
            for at, node in enumerate(self._nodes, begin):
                arrived = [pending[each].get(now, ()) for each in node.inputs]
                if any(arrived) or now in node.due:
                    outcome = node.step(now, arrived)
                    for update in outcome.updates:
                        pending[at][update.time].append(update)
                    for error in outcome.errors:
                        errors[error.value] += error.diff
            for number, source in enumerate(program.variables):
                next_ = pending[first + number]
                for key, value, diff in _summed(pending[source].get(now, ())):
                    next_[now + 1].append(KeyedUpdate(key, value, now + 1, diff))
                    results[b'{"of":%d,"row":%b}' % (number, value)] += diff
            for each in pending:
                each.pop(now, None)
        for prefix, counts in ((_RESULT, results), (_ERROR, errors)):
            for row, diff in counts.items():
                self._changed[prefix + row] += diff
        return _nonzero(results), _nonzero(errors)

    def _next(self) -> int | None:
        """The next round in which anything may change."""
        rounds = [at for by_round in self._pending for at, updates in by_round.items() if updates]
        rounds += [at for node in self._nodes for at in node.due]
        return min(rounds, default=None)

    def entries(self) -> dict[bytes, bytes | None]:
        """All entries that have changed; None where one is deleted."""
        entries: dict[bytes, bytes | None] = {}
        for trace in self._traces:
            entries |= trace.entries()
        changed = _nonzero(self._changed)
        if not changed:
            return entries
        suffix = with_length(self._key)
        places = {row[:1] + suffix + _digest(row[1:]): row for row in changed}
        stored = self._store.get_many([*places, _KEY + self._key])
        number = 0 if (entry := stored.pop()) is None else int(entry)
        for (place, row), entry in zip(places.items(), stored, strict=True):
            before = 0 if entry is None else int(entry.partition(_END)[0])
            count = before + changed[row]
            entries[place] = b"%d" % count + _END + row[1:] if count else None
            number += bool(count) - bool(before)
        entries[_KEY + self._key] = b"%d" % number if number else None
        return entries


def _endless(operator: str, rounds: int) -> ConvergenceError:
    return ConvergenceError(
        f'operator "{shown(operator)}" still changes after {rounds:,} rounds of its recursion',
        hint="End the recursion by a condition, such as WHERE n < 100, or let UNION drop rows "
        "that are there; a LIMIT around it does not end it. Or allow more rounds: "
        "WITH RECURSIVE (ERROR AT RECURSION LIMIT n) …",
    )


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=_DIGEST_BYTES).digest()


def _nonzero(counts: Mapping[bytes, int]) -> dict[bytes, int]:
    return {value: count for value, count in counts.items() if count}


def _summed(updates: LoopUpdates) -> Iterator[tuple[bytes, bytes, int]]:
    sums: dict[tuple[bytes, bytes], int] = {}
    for key, value, _, diff in updates:
        at = key or NO_KEY, value
        sums[at] = sums.get(at, 0) + diff
    for (key, value), diff in sums.items():
        if diff:
            yield key, value, diff


class _Running:
    """A node in the course of a batch.

    `due` has the rounds in which it has something to do even if nothing arrives, with their keys.
    """

    def __init__(self, inputs: Sequence[int]) -> None:
        self.inputs = inputs
        self.due: dict[int, dict[bytes, None]] = {}

    def step(self, now: int, arrived: Sequence[LoopUpdates]) -> Pass:
        """Apply the changes of the inputs in a round; return the changes of the results."""
        raise NotImplementedError


def _running(node: LoopNode, trace: Callable[[], Trace]) -> _Running:
    match node:
        case MapNode():
            return _Mapping(node)
        case SumNode():
            return _Summing(node.inputs)
        case GroupNode():
            return _Grouping(node, trace(), trace())
        case JoinNode():
            return _Joining(node, trace)


class _Mapping(_Running):
    def __init__(self, node: MapNode) -> None:
        super().__init__(node.inputs)
        self._steps = node.steps

    def step(self, now: int, arrived: Sequence[LoopUpdates]) -> Pass:
        return self._steps(arrived[0])


class _Summing(_Running):
    def step(self, now: int, arrived: Sequence[LoopUpdates]) -> Pass:
        return Pass([update for each in arrived for update in each], ())


# A result as a row of a trace begins with one of these, for an error record, or for its key with
# the length in front, and its value.
_FAILED, _VALUE = b"e", b"v"


class _Grouping(_Running):
    def __init__(self, node: GroupNode, rows: Trace, results: Trace) -> None:
        super().__init__(node.inputs)
        self._node, self._rows, self._results = node, rows, results

    def step(self, now: int, arrived: Sequence[LoopUpdates]) -> Pass:
        node, rows, results = self._node, self._rows, self._results
        updates, failed = node.before(arrived[0]) if arrived[0] else Pass((), ())
        keys = self.due.pop(now, {})
        for key, row, diff in _summed(updates):
            rows.add(key, row, now, diff)
            keys[key] = None
        rows.load(keys)
        results.load(keys)
        emitted: list[KeyedUpdate] = []
        errors = list(failed)
        for key, now_results in zip(keys, self._results_in(keys, now), strict=True):
            diffs = dict(now_results)
            for result, count in counts_in_round(results.group(key), now).items():
                diffs[result] = diffs.get(result, 0) - count
            for result, diff in diffs.items():
                if diff:
                    results.add(key, result, now, diff)
                    update = _as_update(result, now, diff)
                    (errors if update.key is None else emitted).append(update)
            for group in (rows.group(key), results.group(key)):
                for later in {at for rounds in group.values() for at in rounds if at > now}:
                    self.due.setdefault(later, {})[key] = None
        return Pass(emitted, errors)

    def _results_in(self, keys: Collection[bytes], now: int) -> list[_Counts]:
        """The results of keys in a round."""
        whole = [
            KeyedUpdate(key, row, at, count)
            for at, key in enumerate(keys)
            for row, count in counts_in_round(self._rows.group(key), now).items()
        ]
        results: list[_Counts] = [defaultdict(int) for _ in keys]
        reduced = self._node.results(whole) if whole else Pass((), ())
        passed = self._node.after(reduced.updates) if reduced.updates else Pass((), ())
        for key, value, at, diff in passed.updates:
            results[at][_VALUE + with_length(key or NO_KEY) + value] += diff
        for error in (*reduced.errors, *passed.errors):
            results[error.time][_FAILED + error.value] += error.diff
        return results


def _as_update(result: bytes, now: int, diff: int) -> KeyedUpdate:
    if result[:1] == _FAILED:
        return KeyedUpdate(None, result[1:], now, diff)
    end = 5 + int.from_bytes(result[1:5], "big")
    return KeyedUpdate(result[5:end], result[end:], now, diff)


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Joining(_Running):
    def __init__(self, node: JoinNode, trace: Callable[[], Trace]) -> None:
        super().__init__(node.inputs)
        self._node = node
        lookups = dict.fromkeys((each.side, each.keys) for path in node.paths for each in path)
        self._indexes = {each: trace() for each in lookups}

    def step(self, now: int, arrived: Sequence[LoopUpdates]) -> Pass:
        matches: list[KeyedUpdate] = []
        errors: list[KeyedUpdate] = []
        for side, updates in enumerate(arrived):
            if not updates:
                continue
            passed = self._node.sides[side](updates)
            errors += passed.errors
            rows = {row: diff for _, row, diff in _summed(_without_keys(passed.updates))}
            matches += self._met(side, rows, now)
            # The sides behind this one see it, so two changes of a round meet once.
            for (of, keys), index in self._indexes.items():
                if of == side:
                    for row, diff in rows.items():
                        index.add(_key(row, keys), row, now, diff)
        results = self._node.after(matches) if matches else Pass((), ())
        return Pass(results.updates, [*errors, *results.errors])

    def _met(self, side: int, rows: Mapping[bytes, int], now: int) -> list[KeyedUpdate]:
        """Join the changes of a side with the rows of the others."""
        some = [(row, now, diff) for row, diff in rows.items()]
        for lookup in self._node.paths[side]:
            index = self._indexes[lookup.side, lookup.keys]
            keys = [_key(row, lookup.asks) for row, _, _ in some]
            index.load(dict.fromkeys(keys))
            some = [
                # Two objects as one: they share no field, and neither is empty.
                (row[:-1] + b"," + other[1:], max(at, then), diff * count)
                for (row, at, diff), key in zip(some, keys, strict=True)
                for other, rounds in index.group(key).items()
                for then, count in rounds.items()
            ]
        return [KeyedUpdate(NO_KEY, row, at, diff) for row, at, diff in some]


def _without_keys(updates: LoopUpdates) -> list[KeyedUpdate]:
    return [KeyedUpdate(NO_KEY, value, time, diff) for _, value, time, diff in updates]


def _key(row: bytes, fields: Sequence[str]) -> bytes:
    """The values of some fields of a row."""
    if not fields:
        return b""
    values = _fields(row)
    # JSON on one line has no newline.
    return b"\n".join(bytes(values[field]) for field in fields)

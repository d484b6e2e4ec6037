"""Reduce by aggregates: one row of counts, sums, extremes and lists for each key.

The input is a collection of (key, row), a row being canonical JSON of an object; the
output is the collection of (key, results), an object again.  At each time at which the
results of a key change, the old ones are retracted and the new ones inserted.  A key has
results while the diffs of its rows do not sum to zero, or while its results differ from those
of no rows; a key that always has a result then has the result of no values.

An argument that is null or absent counts for nothing, but a count without a field
counts rows.  Of no values count and distinct are 0, top is empty, and all others are null.
Sums are exact, so what is added and retracted leaves no trace; an average has 15 digits.
An argument that cannot be added counts as null in a sum or an average, and is an error as long as
its row exists; so is an argument of bool_or and bool_and that is no boolean.  A value with a
negative count does not count for these, nor for min, max, top and distinct.  A distinct aggregate
counts each value once: it adds a value when its count rises above zero, and subtracts it when the
count falls to zero.  Values sort in the order of their SQL type, and JSON as `order` says.
The store keeps a state for each key and, for min, max, top and distinct, the count of each
value, in order.  So the cost of an update does not depend on how many rows its key has.
"""

import bisect
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval, pieces
from ikebana.codecs import canonical
from ikebana.codecs.errors import error_record
from ikebana.errors import TooMuchError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import hash_of
from ikebana.processor.base.texts import shown
from ikebana.processor.kernels.aggregate_kinds import (
    KINDS,
    NOT_FINITE,
    AggregateKind,
    First,
    as_double,
    not_finite,
    user_kind,
)
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    Contents,
    PartKind,
    StateLayout,
    sums_by_key,
    with_length,
    write_entries,
)
from ikebana.processor.kernels.order import SortOrder, ordered, value_of
from ikebana.processor.kernels.user_calls import NO_RESULT, UserState


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """One result: an aggregate over the arguments in `field`; without one it counts rows.

    `limit` is how many of the greatest values `top` lists, each repeated as often as it occurs;
    `order` is the order of the values' type.  If it `is_single`, arguments are numbers of single
    precision, and the exact double of each is added.  If it `is_distinct`, each value counts once.
    """

    name: str
    kind: str
    field: str = ""
    limit: int = 0
    order: SortOrder = ""
    is_single: bool = False
    is_distinct: bool = False

    @property
    def is_of_set(self) -> bool:
        """Whether it counts each value once."""
        return self.is_distinct or self.traits.is_of_distinct

    @property
    def traits(self) -> AggregateKind:
        """The properties of its kind."""
        kind = KINDS.get(self.kind) or user_kind(self.kind)
        assert kind is not None, f"{self.kind} is a kind"
        return kind


class Reduced(NamedTuple):
    """The updates of the results and those of the error records, which have no key."""

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]


def step(
    store: Store,
    updates: Collection[KeyedUpdate],
    interval: Interval,
    aggregates: Sequence[Aggregate],
    operator: str = "",
    always: bytes | None = None,
) -> Reduced:
    """Apply the updates of one interval, which may come in any order.

    `operator` is the one that errors name.  `always` is a key that has a result even without rows.

    Raises: TooMuchError, if a list of values is too long for memory.
    """
    shape = _Shape(aggregates)
    changes, errors = _changes(updates, interval, shape, operator)
    if always is not None and interval.lower < interval.upper:
        _begin(store, always, changes, interval, shape)
    places = [_STATE + key for key in changes]
    if shape.orders:
        for times in changes.values():
            places += {place for change in times.values() for place in change.places()}
    before = dict(zip(places, store.get_many(places), strict=True))
    emitted: list[KeyedUpdate] = []
    after: dict[bytes, bytes | None] = {}
    for key, times in changes.items():
        group = _Group(store, key, shape, is_always=key == always)
        group.load(before, times.values())
        for time in sorted(times):
            old, failed = group.result, group.failures
            new = _changed(group, key, times[time], operator)
            if shape.users:
                errors += _differences(failed, group.failures, time)
            if new != old:
                if old is not None:
                    emitted.append(KeyedUpdate(key, old, time, -1))
                if new is not None:
                    emitted.append(KeyedUpdate(key, new, time, 1))
        after |= group.entries()
    write_entries(store, {at: entry for at, entry in after.items() if entry != before[at]})
    # Stable: of one time and key the retraction stays first.
    emitted.sort(key=lambda update: update.time)
    if shape.users:
        errors.sort(key=lambda update: (update.time, update.value))
    return Reduced(emitted, errors)


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its results and errors of users' classes.

    All other errors belong to single rows.
    """
    for place, entry in store.scan(_STATE, start):
        state, result = _split(entry)
        yield place[1:], () if result is None else (result,), tuple(sorted(_failures(state)))


def errors_of(
    updates: Sequence[KeyedUpdate], aggregates: Sequence[Aggregate], operator: str
) -> list[KeyedUpdate]:
    """The updates of error records of rows, whatever their times are."""
    times = [update.time for update in updates]
    interval = Interval(min(times, default=0), max(times, default=0) + 1)
    return _changes(updates, interval, _Shape(aggregates), operator)[1]


# A place is b"k" + key for a state, and b"v" + length of the key + key + number of the
# order + value for the count of a value, in digits.
_STATE = b"k"
_VALUE = b"v"
PART = PartKind("reduce ", StateLayout({_STATE: KEY_IS_REST, _VALUE: KEY_WITH_LENGTH}), contents)
_NUMBER = struct.Struct(">H")
_NO_FAILURES: frozenset[bytes] = frozenset()
# More than any key has.
_EVERY = 1 << 62


class _Order(NamedTuple):
    """The values of a field, kept in this order."""

    field: str
    descending: bool
    of_type: SortOrder = ""


# Each with its number; aggregates of one field may share one.
_Orders = Mapping[_Order, bytes]


def _order_of(aggregate: Aggregate) -> _Order | None:
    keeps = aggregate.traits.keeps
    if keeps is None and not aggregate.is_of_set:
        return None
    return _Order(aggregate.field, keeps == "descending", aggregate.order)


def _places(aggregates: Sequence[Aggregate]) -> list[tuple[int, ...]]:
    """The positions of each aggregate's totals: first one of each aggregate, then the others.

    So the only total of an aggregate has the same position as its count.
    """
    places, end = [], len(aggregates)
    for at, aggregate in enumerate(aggregates):
        more = aggregate.traits.totals - 1
        places.append((at, *range(end, end + more)))
        end += more
    return places


def _orders(aggregates: Sequence[Aggregate]) -> _Orders:
    orders = dict.fromkeys(order for one in aggregates if (order := _order_of(one)) is not None)
    return {order: _NUMBER.pack(number) for number, order in enumerate(orders)}


def _start(key: bytes, number: bytes) -> bytes:
    return _VALUE + with_length(key) + number


class _Member(NamedTuple):
    """An aggregate, with the properties that each row needs."""

    at: int
    aggregate: Aggregate
    field: str
    traits: AggregateKind
    is_of_set: bool
    may_be_beyond: bool


class _Shape:
    """The properties that follow from the aggregates of a reduction."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self.aggregates = tuple(aggregates)
        self.orders = _orders(aggregates)
        self.order_of = tuple(map(_order_of, aggregates))
        self.places = _places(aggregates)
        # The number of totals if all numbers are finite.
        self.finite = sum(map(len, self.places))
        every = [
            _Member(at, of, of.field, of.traits, of.is_of_set, of.traits.may_be_beyond)
            for at, of in enumerate(aggregates)
        ]
        self.every = every
        self.summed = [each for each in every if not each.traits.keeps]
        self.sets = [each for each in every if each.is_of_set]
        self.users = [each for each in every if each.traits.user_class is not None]
        self.of_nothing = _of_nothing(aggregates)


class _Change:
    """The changes that updates of one key and time make to its sums and counts of values."""

    __slots__ = ("beyond", "counts", "rows", "totals", "users", "values")

    def __init__(self, shape: _Shape) -> None:
        self.rows = 0
        self.counts = [0] * len(shape.aggregates)
        self.totals = [[_ZERO] * len(places) for places in shape.places]
        self.beyond: dict[int, list[int]] = {}
        self.users: dict[int, dict[bytes, int]] = {}
        self.values: dict[_Order, dict[bytes, int]] = {}

    def places(self) -> Iterator[bytes]:
        """The places of all values with changed counts."""
        for diffs in self.values.values():
            yield from diffs

    def add(self, arguments: dict[str, Any], diff: int, shape: _Shape) -> list[Aggregate]:
        """Add a row `diff` times to counts and sums; return the aggregates that cannot add it."""
        self.rows += diff
        wrong = []
        for of in shape.summed:
            argument = arguments.get(of.field)
            if argument is None and of.field:
                continue
            if of.is_of_set:
                if _cannot_add(of, argument):
                    wrong.append(of.aggregate)
            elif not self.count(of, argument, diff):
                wrong.append(of.aggregate)
        return wrong

    def count(self, of: _Member, argument: Any, diff: int) -> bool:
        """Add an argument `diff` times to an aggregate; return whether it can be added."""
        at, traits = of.at, of.traits
        if traits.terms is not None:
            if of.aggregate.is_single:
                argument = as_double(argument)
            if of.may_be_beyond and (which := not_finite(argument)) is not None:
                self.beyond.setdefault(at, [0] * len(NOT_FINITE))[which] += diff
            elif (terms := traits.terms(argument)) is None:
                return False
            else:
                totals, times = self.totals[at], Decimal(diff)
                for place, term in enumerate(terms):
                    totals[place] = _EXACT.fma(term, times, totals[place])
        elif traits.user_class is not None:
            diffs, written = self.users.setdefault(at, {}), canonical.write(argument)
            diffs[written] = diffs.get(written, 0) + diff
        self.counts[at] += diff
        return True


def _cannot_add(of: _Member, argument: Any) -> bool:
    traits = of.traits
    if traits.terms is None or (of.may_be_beyond and not_finite(argument) is not None):
        return False
    return traits.terms(argument) is None


_Changes = dict[bytes, dict[int, _Change]]


def _changes(
    updates: Collection[KeyedUpdate],
    interval: Interval,
    shape: _Shape,
    operator: str,
) -> tuple[_Changes, list[KeyedUpdate]]:
    """The changes by key and time, and the updates of the error records."""
    changes: _Changes = {}
    errors: defaultdict[tuple[int, bytes], int] = defaultdict(int)
    for (key, time, row), diff in sums_by_key(updates, interval).items():
        if not diff:
            continue
        times = changes.setdefault(key, {})
        if time not in times:
            times[time] = _Change(shape)
        change, arguments = times[time], _decode_row(row)
        for aggregate in change.add(arguments, diff, shape):
            of = f'{aggregate.kind} "{aggregate.name}"'
            takes = aggregate.traits.takes
            reason = f"operator {shown(operator)}: an argument of {of} is no {takes}"
            errors[time, error_record(reason, None, key, None)] += diff
        for order, number in shape.orders.items():
            if (argument := arguments.get(order.field)) is not None:
                diffs = change.values.setdefault(order, {})
                place = _start(key, number) + ordered(
                    argument, descending=order.descending, order=order.of_type
                )
                diffs[place] = diffs.get(place, 0) + diff
    return changes, [
        KeyedUpdate(None, record, time, diff)
        for (time, record), total in sorted(errors.items())
        for diff in pieces(total)
    ]


def _begin(
    store: Store,
    always: bytes,
    changes: _Changes,
    interval: Interval,
    shape: _Shape,
) -> None:
    """Give a key that always has a result its initial result, although it has no rows."""
    if store.get_many([_STATE + always]) == [None]:
        changes.setdefault(always, {}).setdefault(interval.lower, _Change(shape))


_decode_row = canonical.decoder(dict[str, Any])

_ZERO = Decimal(0)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class _State(msgspec.Struct, array_like=True):
    """The stored state of a key beside its result and its values: a count and totals by aggregate.

    A count is of rows, of values that are not null, or of distinct values.  The first totals of
    all aggregates come first, then the further totals of those that have several.  If any number
    is not finite, three more counts of each aggregate follow, in the order of `NOT_FINITE`.
    `users` has the states of user-defined aggregates.
    """

    rows: int
    counts: list[int]
    totals: list[Decimal]
    users: list[UserState] = []


_decode_state = msgspec.json.Decoder(_State).decode
# JSON on one line has none: an entry is the state, this, and the result, if there is one.
_END = b"\n"


def _split(entry: bytes) -> tuple[_State, bytes | None]:
    state, _, result = entry.partition(_END)
    return _decode_state(state), result or None


def _encoded(state: _State) -> bytes:
    """Encode the state, without the field of users if it is empty."""
    return msgspec.json.encode(state if state.users else (state.rows, state.counts, state.totals))


def _failures(state: _State) -> frozenset[bytes]:
    """The error records of a key."""
    if not state.users:
        return _NO_FAILURES
    return frozenset(each.record.encode() for each in state.users if each.record is not None)


def _differences(old: frozenset[bytes], new: frozenset[bytes], time: int) -> list[KeyedUpdate]:
    """The updates that turn one set of error records into another."""
    gone = [KeyedUpdate(None, each, time, -1) for each in old - new]
    return gone + [KeyedUpdate(None, each, time, 1) for each in new - old]


def _changed(group: "_Group", key: bytes, change: _Change, operator: str) -> bytes | None:
    """The result of a key after a change.  Raises: TooMuchError."""
    try:
        return group.changed(change, operator)
    except TooLongError as error:
        raise TooMuchError(
            f'operator "{shown(operator)}" lists {error.count:,} values of the key with the hash '
            f"{hash_of(key)} or more, which memory does not hold",
            hint="Leave the key out by a condition before the operator, or list fewer values, as "
            "top(n, …) does.",
        ) from None


class _Group:
    """One key in the course of a batch."""

    def __init__(
        self,
        store: Store,
        key: bytes,
        shape: _Shape,
        *,
        is_always: bool = False,
    ) -> None:
        self._key = key
        self._place = _STATE + key
        self._is_always = is_always
        self._shape = shape
        self._values = {
            order: OrderedValues(store, _start(key, number))
            for order, number in shape.orders.items()
        }
        self._state: _State
        self.result: bytes | None = None

    def load(self, entries: Mapping[bytes, bytes | None], changes: Iterable[_Change]) -> None:
        """Set the state, and the counts that are about to change, from their entries."""
        if (entry := entries[self._place]) is not None:
            self._state, self.result = _split(entry)
        else:
            shape = self._shape
            counts, totals = [0] * len(shape.aggregates), [_ZERO] * shape.finite
            self._state = _State(0, counts, totals, [UserState() for _ in shape.users])
        for change in changes:
            for order, diffs in change.values.items():
                self._values[order].load({place: entries[place] for place in diffs})

    @property
    def failures(self) -> frozenset[bytes]:
        """The error records of the key."""
        return _failures(self._state)

    def changed(self, change: _Change, operator: str) -> bytes | None:
        """Apply a change; return the result after it."""
        state, shape = self._state, self._shape
        for order, diffs in change.values.items():
            turned = self._values[order].add(diffs)
            for of in shape.sets:
                if shape.order_of[of.at] != order:
                    continue
                for of_value, sign in turned:
                    is_added = of.traits.terms or of.traits.user_class
                    value = self._values[order].value(of_value) if is_added else None
                    change.count(of, value, sign)
        state.rows += change.rows
        for at, places in enumerate(shape.places):
            state.counts[at] += change.counts[at]
            for place, total in zip(places, change.totals[at], strict=True):
                if total:
                    # Normalized: a total that comes back to a number comes back to its bytes.
                    state.totals[place] = _EXACT.normalize(_EXACT.add(state.totals[place], total))
        if change.beyond or len(state.totals) > shape.finite:
            self._count_beyond(change.beyond)
        if shape.users:
            self._change_users(change, operator)
        named = {of.aggregate.name: self._result(of) for of in shape.every}
        is_there = state.rows or self._is_always or named != shape.of_nothing
        self.result = canonical.write(named) if is_there else None
        return self.result

    def _change_users(self, change: _Change, operator: str) -> None:
        """Apply a change to user-defined aggregates."""
        for of, user_state in zip(self._shape.users, self._state.users, strict=True):
            user_class = of.traits.user_class
            assert user_class is not None, "it is a user's"
            if not user_class.retracts:
                failure = user_class.recompute(user_state, self._first(of)(_EVERY), operator)
            else:
                is_empty = not self._state.counts[of.at]
                diffs = change.users.get(of.at, {})
                failure = user_class.change(user_state, diffs, operator, is_empty=is_empty)
            user_state.record = None
            if failure:
                reason = f"operator {shown(operator)}: {failure}"
                user_state.record = error_record(reason, None, self._key, None).decode()

    def _count_beyond(self, beyond: Mapping[int, Sequence[int]]) -> None:
        totals, width, finite = self._state.totals, len(NOT_FINITE), self._shape.finite
        if len(totals) == finite:
            totals += [_ZERO] * (width * len(self._shape.aggregates))
        for at, counts in beyond.items():
            for place, count in enumerate(counts, finite + width * at):
                totals[place] += count
        if not any(totals[finite:]):
            del totals[finite:]

    def entries(self) -> dict[bytes, bytes | None]:
        """The state and all counts that have been loaded, as entries; None where zero."""
        state = self._state
        is_stored = self.result is not None or any(state.counts) or any(state.totals)
        is_stored = is_stored or any(each != UserState() for each in state.users)
        entry = _encoded(state) + _END + (self.result or b"") if is_stored else None
        entries = {self._place: entry}
        for values in self._values.values():
            entries |= values.entries()
        return entries

    def _result(self, of: _Member) -> Any:
        at, traits, state = of.at, of.traits, self._state
        if len(state.totals) > self._shape.finite:
            begin = self._shape.finite + len(NOT_FINITE) * at
            if any(beyond := state.totals[begin : begin + len(NOT_FINITE)]):
                return traits.beyond(state.counts[at], *map(int, beyond))
        if traits.user_class is not None:
            return state.users[self._shape.users.index(of)].result
        totals = [state.totals[place] for place in self._shape.places[at]]
        return traits.result(state.counts[at], totals, self._first(of), of.aggregate.limit)

    def _first(self, of: _Member) -> First:
        """A function that reads the first values of an aggregate."""
        if (order := self._shape.order_of[of.at]) is None:
            return _none
        return partial(self._values[order].first, once=of.is_of_set)


def _of_nothing(aggregates: Iterable[Aggregate]) -> dict[str, Any]:
    return {
        of.name: NO_RESULT
        if of.traits.user_class is not None
        else of.traits.result(0, [_ZERO] * of.traits.totals, _none, of.limit)
        for of in aggregates
    }


def _none(_: int) -> list[Any]:
    return []


# The most memory that a list may take: its stored values, and a pointer for each.
_MOST_BYTES = 1 << 28
_POINTER_BYTES = 8


class TooLongError(Exception):
    """A list would take too much memory; it has at least `count` values."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} values")
        self.count = count


class OrderedValues:
    """The values of one key in one order; only as many are read as are asked for.

    It knows the loaded counts and those of all places up to `_read_to`, which is None when all are
    known.
    """

    def __init__(self, store: Store, start: bytes) -> None:
        self._store = store
        self._start = start
        self._counts: dict[bytes, int] = {}
        self._loaded: set[bytes] = set()
        # The known places with a count above zero, in order.
        self._there: list[bytes] = []
        self._unread: Iterator[tuple[bytes, bytes]] | None = None
        self._read_to: bytes | None = b""

    def load(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Set these counts; call it before any other method."""
        for place, entry in entries.items():
            if place not in self._loaded:
                self._loaded.add(place)
                self._know(place, 0 if entry is None else int(entry))

    def add(self, diffs: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
        """Add to loaded counts; return the places of values that appear (1) or vanish (-1)."""
        turned = []
        for place, diff in diffs.items():
            old = self._counts[place]
            new = self._counts[place] = old + diff
            if old <= 0 < new:
                bisect.insort(self._there, place)
                turned.append((place, 1))
            elif new <= 0 < old:
                del self._there[bisect.bisect_left(self._there, place)]
                turned.append((place, -1))
        return turned

    def value(self, place: bytes) -> Any:
        """The value of a place, as data."""
        value = value_of(place[len(self._start) :])
        return canonical.decode(bytes(value)) if isinstance(value, msgspec.Raw) else value

    def first(self, limit: int, *, once: bool = False) -> list[Any]:
        """The first `limit` values, each repeated as often as it occurs, or `once`.

        Raises: TooLongError, before much memory is taken.
        """
        values: list[Any] = []
        at = size = 0
        while len(values) < limit:
            # Values not read yet may come before loaded ones.
            while self._read_to is not None and (
                at == len(self._there) or self._there[at] > self._read_to
            ):
                self._read()
            if at == len(self._there):
                break
            place = self._there[at]
            times = 1 if once else min(self._counts[place], limit - len(values))
            size += times * (len(place) - len(self._start) + _POINTER_BYTES)
            if size > _MOST_BYTES:
                raise TooLongError(len(values) + times)
            values += [value_of(place[len(self._start) :])] * times
            at += 1
        return values

    def entries(self) -> dict[bytes, bytes | None]:
        """The loaded counts as entries; None where zero."""
        return {
            place: b"%d" % count if (count := self._counts[place]) else None
            for place in self._loaded
        }

    def _read(self) -> None:
        if self._unread is None:
            self._unread = self._store.scan(self._start)
        place, entry = next(self._unread, (None, b""))
        self._read_to = place
        if place is not None and place not in self._counts:
            self._know(place, int(entry))

    def _know(self, place: bytes, count: int) -> None:
        self._counts[place] = count
        if count > 0:
            bisect.insort(self._there, place)

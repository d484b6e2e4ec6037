"""Reduce against its definition: results computed anew from all rows at every time."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval, accumulate, consolidate
from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import reduce
from ikebana.processor.kernels.aggregate_kinds import KINDS
from ikebana.processor.kernels.order import ordered, value_of
from ikebana.processor.kernels.reduce import Aggregate
from support.relation_batches import pairs
from support.stores import entries
from support.strategies import cuts, json_data, unhurried, written

AGGREGATES = (
    Aggregate("rows", "count"),
    Aggregate("a count", "count", "a"),
    Aggregate("b sum", "sum", "b"),
    Aggregate("a sum", "sum", "a"),
    Aggregate("a avg", "avg", "a"),
    Aggregate("a favg", "favg", "a"),
    Aggregate("b favg", "favg", "b"),
    Aggregate("a min", "min", "a"),
    Aggregate("a max", "max", "a"),
    Aggregate("b max", "max", "b"),
    Aggregate("a top", "top", "a", 3),
    Aggregate("a bottom", "bottom", "a", 2),
    Aggregate("a list", "list", "a"),
    Aggregate("a distinct", "distinct", "a"),
    Aggregate("b distinct", "distinct", "b"),
    Aggregate("a var", "var_samp", "a"),
    Aggregate("b var", "var_pop", "b"),
    Aggregate("a dev", "stddev_samp", "a"),
    Aggregate("b dev", "stddev_pop", "b"),
    Aggregate("a or", "bool_or", "a"),
    Aggregate("a and", "bool_and", "a"),
    Aggregate("a sem", "sem", "a"),
    Aggregate("b skewness", "skewness", "b"),
    Aggregate("b kurtosis", "kurtosis", "b"),
    Aggregate("b kurtosis pop", "kurtosis_pop", "b"),
    *(Aggregate(f"a {kind}", kind, "a") for kind in ("bit_and", "bit_or", "bit_xor")),
    *(Aggregate(f"p {kind}", kind, "p") for kind, of in KINDS.items() if of.is_of_pairs),
    # Of each value once.
    Aggregate("a count once", "count", "a", is_distinct=True),
    Aggregate("a sum once", "sum", "a", is_distinct=True),
    Aggregate("b avg once", "avg", "b", is_distinct=True),
    Aggregate("b var once", "var_pop", "b", is_distinct=True),
    Aggregate("a list once", "list", "a", is_distinct=True),
    Aggregate("a top once", "top", "a", 3, is_distinct=True),
    Aggregate("a xor once", "bit_xor", "a", is_distinct=True),
    Aggregate("p corr once", "corr", "p", is_distinct=True),
)

NUMBERS = [
    "0",
    "-0",
    "1",
    "1.0",
    "-1",
    "9",
    "10",
    "-9",
    "-10",
    "0.1",
    "0.2",
    "0.3",
    "-0.1",
    "1e-7",
    "1e2",
    "1e300",
    "-1e300",
    "1e-310",
    "12345678901234567.25",
    "9007199254740993",
    "-9007199254740993",
    "100000000000000000000000000000",
    "0.333333333333333333333",
]
OTHERS = [
    "true",
    "false",
    '""',
    '"a"',
    '"a\\u0000"',
    '"ab"',
    '"1"',
    '"\\u00e9"',
    '"\\uffee"',
    '"\\ud83d\\ude00"',
    "[]",
    "[1]",
    "[10]",
    "[9]",
    "{}",
    '{"z":0.1}',
    '{"a":1}',
]
arguments = st.one_of(
    st.none(),
    st.sampled_from(NUMBERS),
    st.sampled_from(NUMBERS),
    st.sampled_from([*OTHERS, "null"]),
)
few = st.sampled_from([None, "0.1", "0.2", "-0.3"])
pairs_of_numbers = st.sampled_from(
    [None, *(f'{{"x":{x},"y":{y}}}' for x, y in ((0, 1), (2, 1), (2, -3), (0.5, 0), (7, 7.25)))]
)
rows = st.builds(
    lambda *texts: canonical.canonical(
        "{{{}}}".format(
            ",".join(
                f'"{name}":{text}'
                for name, text in zip("abp", texts, strict=True)
                if text is not None
            )
        ).encode()
    ),
    arguments,
    few,
    pairs_of_numbers,
)
keys = st.sampled_from([b"", b"k", b"kk", b"k\0"])


@st.composite
def histories(draw: st.DrawFn) -> list[KeyedUpdate]:
    """Updates of few data, so that they meet: every second one takes back another, perhaps."""
    data = draw(st.lists(st.tuples(keys, rows), min_size=1, max_size=8))
    update = st.builds(
        lambda datum, time, diff: KeyedUpdate(datum[0], datum[1], time, diff),
        st.sampled_from(data),
        st.integers(0, 9),
        st.sampled_from([-2, -1, -1, 1, 1, 1, 2]),
    )
    return draw(st.lists(update, max_size=25))


def test_every_kind_is_compared_with_its_definition() -> None:
    """A new one has to be among these, and so in `expected_of`."""
    assert {each.kind for each in AGGREGATES} == KINDS.keys()


def rank(value: Any) -> tuple[Any, ...]:
    """Where a value stands among all values."""
    if isinstance(value, bool):
        return (0, value)
    if isinstance(value, int | float | Decimal):
        return (1, Decimal(str(value)))
    if isinstance(value, str):
        return (2, value.encode())
    return (3, canonical.write(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


TAKEN: dict[str, Callable[[Any], bool]] = {
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "whole number": lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and -(1 << 128) <= value < 1 << 128
    ),
    "pair": lambda value: isinstance(value, dict),
}
"""What an argument has to be for the kinds that do not take all."""


def nearest(number: Fraction) -> Any:
    """The double next to a number; the number to 60 digits, if it is beyond all doubles."""
    try:
        return canonical.canonical_number(Decimal(repr(float(number))))
    except OverflowError:
        return quotient(number, 1, 60)


def expected_of(aggregate: Aggregate, counted: Sequence[tuple[dict[str, Any], int]]) -> Any:
    """One result, from the definition, of rows with their counts."""
    values = [(value, n) for row, n in counted if (value := row.get(aggregate.field)) is not None]
    if aggregate.is_distinct:
        of_each: Counter[bytes] = Counter()
        for value, n in values:
            of_each[canonical.write(value)] += n
        values = [(canonical.decode(value), 1) for value, n in of_each.items() if n > 0]
    numbers = [(Fraction(str(value)), n) for value, n in values if is_number(value)]
    added, total = sum(n for _, n in numbers), sum((x * n for x, n in numbers), Fraction(0))
    by_bytes: Counter[bytes] = Counter()
    for value, n in values:
        by_bytes[canonical.write(value)] += n
    there = [(canonical.decode(value), n) for value, n in by_bytes.items() if n > 0]
    in_order = [
        value for value, n in sorted(there, key=lambda one: rank(one[0])) for _ in range(n)
    ]
    booleans = [value for value in in_order if isinstance(value, bool)]
    match aggregate.kind:
        case "count":
            return sum(n for _, n in (values if aggregate.field else counted))
        case "sum":
            return quotient(total, 1, 2_000) if added or total else None
        case "avg":
            return quotient(total, added, 15) if added else None
        case "favg":
            return nearest(total / added) if added else None
        case "bit_and" | "bit_or" | "bit_xor" as kind:
            taken = TAKEN["whole number"]
            return bits(kind, [(value, n) for value, n in values if taken(value)])
        case "skewness" | "kurtosis" | "kurtosis_pop" as kind:
            return shape(kind, numbers)
        case kind if KINDS[kind].is_of_pairs:
            return related(kind, [(pair, n) for pair, n in values if isinstance(pair, dict)])
        case "var_samp" | "var_pop" | "stddev_samp" | "stddev_pop" | "sem" as kind:
            return spread(kind, numbers, added, total)
        case "min":
            return in_order[0] if in_order else None
        case "max":
            return in_order[-1] if in_order else None
        case "top":
            return in_order[::-1][: aggregate.limit]
        case "list":
            return in_order
        case "bottom":
            return in_order[: aggregate.limit]
        case "distinct":
            return len(there)
        case "bool_or":
            return max(booleans, default=None)
        case "bool_and":
            return min(booleans, default=None)
        case unknown:
            raise AssertionError(unknown)


def spread(
    kind: str, numbers: Sequence[tuple[Fraction, int]], count: int, total: Fraction
) -> int | Decimal | None:
    """The mean square of the distances from the mean, or its root, with 15 digits."""
    by = count - 1 if kind.endswith("samp") else count
    if by < 1:
        return None
    apart = sum(((x - total / count) ** 2 * n for x, n in numbers), Fraction(0))
    if apart < 0:
        # Where counts are below zero.
        return None
    variance = quotient(apart, by * (count if kind == "sem" else 1), 60)
    return digits_of(variance.sqrt(FINE) if kind.startswith(("stddev", "sem")) else variance)


FINE = Context(prec=60)


def digits_of(number: Decimal) -> int | Decimal:
    """A number with 15 digits."""
    rounded = Context(prec=15).plus(number)
    # Beyond all doubles only integers have a form.
    return int(rounded) if rounded.adjusted() > 308 else rounded


def bits(kind: str, values: Sequence[tuple[int, int]]) -> int | None:
    """Bit by bit, of as many as all values have."""
    count, width = sum(n for _, n in values), 140
    if not count:
        return None
    found = 0
    for at in range(width):
        there = sum(n for value, n in values if value >> at & 1)
        is_set = {"bit_and": there == count, "bit_or": there > 0, "bit_xor": there % 2 == 1}
        found |= is_set[kind] << at
    return found - (1 << width) if found >> (width - 1) else found


def moment(power: int, numbers: Sequence[tuple[Fraction, int]]) -> Fraction:
    """The average power of the distances from the mean."""
    count = sum(n for _, n in numbers)
    mean = sum((x * n for x, n in numbers), Fraction(0)) / count
    return sum(((x - mean) ** power * n for x, n in numbers), Fraction(0)) / count


def shape(kind: str, numbers: Sequence[tuple[Fraction, int]]) -> Any:
    """Skewness and kurtosis, as DuckDB defines them."""
    count = sum(n for _, n in numbers)
    if count < {"skewness": 3, "kurtosis": 4, "kurtosis_pop": 2}[kind]:
        return None
    variance = moment(2, numbers)
    if variance <= 0:
        return None
    if kind == "skewness":
        third, root = moment(3, numbers), quotient(variance**3, 1, 60).sqrt(FINE)
        by = FINE.divide(Decimal(count * (count - 1)).sqrt(FINE), Decimal(count - 2))
        return digits_of(FINE.multiply(by, FINE.divide(quotient(third, 1, 60), root)))
    kurtosis = moment(4, numbers) / variance**2
    if kind == "kurtosis_pop":
        return digits_of(quotient(kurtosis - 3, 1, 60))
    excess = (count - 1) * ((count + 1) * kurtosis - 3 * (count - 1))
    return digits_of(quotient(excess, (count - 2) * (count - 3), 60))


def related(kind: str, values: Sequence[tuple[dict[str, Any], int]]) -> Any:
    """Covariance, correlation and linear regression of y by x."""
    count = sum(n for _, n in values)
    if kind == "regr_count":
        return count
    if count < 1 + (kind == "covar_samp"):
        return None
    of_x, of_y = ([(Fraction(str(pair[name])), n) for pair, n in values] for name in ("x", "y"))
    x, y = (sum((v * n for v, n in of), Fraction(0)) / count for of in (of_x, of_y))
    xx, yy = moment(2, of_x), moment(2, of_y)
    both = zip(of_x, of_y, strict=True)
    xy = sum(((one - x) * (other - y) * n for (one, n), (other, _) in both), Fraction(0)) / count
    match kind:
        case "corr" if xx * yy > 0:
            root = quotient(xx * yy, 1, 60).sqrt(FINE)
            return digits_of(FINE.divide(quotient(xy, 1, 60), root))
        case "regr_r2" if xx:
            found = xy**2 / (xx * yy) if yy else Fraction(1)
        case "regr_r2" | "regr_intercept" if not xx:
            return None
        case "regr_slope" if xx:
            found = xy / xx
        case "regr_intercept":
            found = y - xy / xx * x
        case "corr" | "regr_slope":
            return "NaN"
        case _:
            found = {
                "covar_pop": xy,
                "covar_samp": xy * count / max(count - 1, 1),
                "regr_avgx": x,
                "regr_avgy": y,
                "regr_sxx": xx * count,
                "regr_syy": yy * count,
                "regr_sxy": xy * count,
            }[kind]
    return digits_of(quotient(found, 1, 60))


def quotient(total: Fraction, by: int, digits: int) -> Decimal:
    """Divided, with so many digits, and rounded once."""
    return Context(prec=digits).divide(Decimal(total.numerator), Decimal(total.denominator * by))


def expected(updates: Iterable[KeyedUpdate], as_of: int) -> dict[tuple[bytes, bytes], int]:
    """The collection of results at a time."""
    found = {}
    collected = accumulate(pairs(updates), as_of)
    for key in {key for key, _ in collected}:
        counted = [(canonical.decode(row), n) for (of, row), n in collected.items() if of == key]
        results = {one.name: expected_of(one, counted) for one in AGGREGATES}
        nothing = {one.name: expected_of(one, []) for one in AGGREGATES}
        if sum(n for _, n in counted) or results != nothing:
            found[key, canonical.encode(results)] = 1
    return found


def expected_errors(updates: Iterable[KeyedUpdate], as_of: int) -> dict[tuple[bytes, str], int]:
    """How many rows of each key an aggregate cannot add, at a time."""
    found: Counter[tuple[bytes, str]] = Counter()
    added = [(one, TAKEN[one.traits.takes]) for one in AGGREGATES if one.traits.takes]
    for (key, row), n in accumulate(pairs(updates), as_of).items():
        for aggregate, taken in added:
            value = canonical.decode(row).get(aggregate.field)
            if value is not None and not taken(value):
                found[key, aggregate.name] += n
    return {at: n for at, n in found.items() if n}


def negated(updates: Iterable[KeyedUpdate], time: int) -> list[KeyedUpdate]:
    """What takes all of them back, at a time."""
    return [KeyedUpdate(key, value, time, -diff) for key, value, _, diff in updates]


def stepped(
    store: MemoryStore, updates: Sequence[KeyedUpdate], interval: Interval
) -> reduce.Reduced:
    return reduce.step(store, updates, interval, AGGREGATES)


@unhurried
@given(st.data(), histories())
def test_incremental_is_batch(data: st.DataObject, updates: list[KeyedUpdate]) -> None:
    """At every time the updates sum to the results of all rows, however batches are cut."""
    store = MemoryStore()
    found: list[KeyedUpdate] = []
    errors: list[KeyedUpdate] = []
    uppers = sorted(data.draw(st.sets(st.integers(1, 9), max_size=4)) | {10})
    for lower, upper in zip([0, *uppers], uppers, strict=False):
        interval = Interval(lower, upper)
        fresh = stepped(store, [update for update in updates if update.time in interval], interval)
        found += fresh.updates
        errors += fresh.errors

        assert all(update.time in interval for update in fresh.updates + fresh.errors)
        assert [update.time for update in fresh.updates] == sorted(u.time for u in fresh.updates)
        every = accumulate(pairs(found), upper - 1)
        shown = {(key, value) for key, values, _ in reduce.contents(store) for value in values}
        assert shown == every.keys()

    for time in range(10):
        assert accumulate(pairs(found), time) == expected(updates, time)
        told = accumulate(pairs(errors), time)
        assert sorted(told.values()) == sorted(expected_errors(updates, time).values())
    assert len(set(consolidate(pairs(found)))) == len(found)


@unhurried
@given(st.data(), histories())
def test_a_key_may_have_results_without_rows(
    data: st.DataObject, updates: list[KeyedUpdate]
) -> None:
    """Always one: that of its rows, also of none; other keys are as they are without it."""
    store = MemoryStore()
    found: list[KeyedUpdate] = []
    uppers = sorted(data.draw(st.sets(st.integers(0, 9), max_size=4)) | {10})
    for lower, upper in zip([0, *uppers], uppers, strict=False):
        interval = Interval(lower, upper)
        own = [update for update in updates if update.time in interval]
        found += reduce.step(store, own, interval, AGGREGATES, always=b"k").updates

    for time in range(10):
        every = expected(updates, time)
        others = {(key, value): 1 for key, value in every if key != b"k"}
        collected = accumulate(pairs(updates), time)
        counted = [(canonical.decode(row), n) for (of, row), n in collected.items() if of == b"k"]
        results = {one.name: expected_of(one, counted) for one in AGGREGATES}
        always = {(b"k", canonical.encode(results)): 1}
        assert accumulate(pairs(found), time) == others | always


@unhurried
@given(st.data(), histories())
def test_the_order_within_a_batch_does_not_matter(
    data: st.DataObject, updates: list[KeyedUpdate]
) -> None:
    """The same updates and the same entries, whichever row comes first."""
    one, other = MemoryStore(), MemoryStore()
    shuffled = data.draw(st.permutations(updates))

    assert set(pairs(stepped(one, updates, Interval(0, 10)).updates)) == set(
        pairs(stepped(other, shuffled, Interval(0, 10)).updates)
    )
    assert entries(one) == entries(other)


@unhurried
@given(histories(), histories())
def test_what_is_added_and_retracted_leaves_no_trace(
    kept: list[KeyedUpdate], passing: list[KeyedUpdate]
) -> None:
    """The entries are those without it; and none when all is retracted."""
    store = MemoryStore()
    stepped(store, kept, Interval(0, 10))
    before = entries(store)
    stepped(
        store, [update._replace(time=update.time + 10) for update in passing], Interval(10, 20)
    )
    stepped(store, negated(passing, 20), Interval(20, 21))

    assert entries(store) == before

    stepped(store, negated(kept, 21), Interval(21, 22))

    assert entries(store) == []


@unhurried
@given(st.data(), histories())
def test_a_restart_between_two_batches_changes_nothing(
    data: st.DataObject, updates: list[KeyedUpdate]
) -> None:
    """All that reduce knows lies in the store."""
    store = MemoryStore()
    for time, piece in enumerate(data.draw(cuts(updates))):
        now = [update._replace(time=time) for update in piece]
        copy = MemoryStore()
        for place, entry in entries(store):
            copy.put(place, entry)
        interval = Interval(time, time + 1)

        assert stepped(store, now, interval) == stepped(copy, now, interval)
        assert entries(store) == entries(copy)


def has_a_form(message: bytes) -> bool:
    """Whether a message has canonical bytes, and says anything."""
    try:
        return canonical.canonical(message) != b"null"
    except DecodeError:
        return False


far_numbers = st.builds(
    "{}{}e{}".format,
    st.sampled_from(["", "-"]),
    st.sampled_from(["1", "1.5", "9.99999999999999999999", "10", "123456789"]),
    st.sampled_from(
        [-999_999_999_999_999_000, -65_536, -400, -256, -2, -1, 0, 1, 2, 15, 255, 290]
    ),
)
values = st.one_of(
    json_data().map(written),
    st.sampled_from([*NUMBERS, *OTHERS]).map(str.encode),
    far_numbers.map(str.encode),
    st.integers(-(10**40), 10**40).map(lambda number: b"%d" % number),
).filter(has_a_form)
forms = values.map(canonical.canonical)


@unhurried
@given(forms, forms)
def test_bytes_are_in_the_order_of_values(first: bytes, second: bytes) -> None:
    """Ascending or descending; equal only for equal values, and none begins another."""
    a, b = canonical.decode(first), canonical.decode(second)
    up = [ordered(value, descending=False) for value in (a, b)]
    down = [ordered(value, descending=True) for value in (a, b)]

    assert (up[0] < up[1]) == (rank(a) < rank(b)) == (down[0] > down[1])
    assert (up[0] == up[1]) == (first == second) == (down[0] == down[1])
    if first != second:
        assert not up[0].startswith(up[1])
        assert not down[0].startswith(down[1])


@unhurried
@given(forms)
def test_a_value_comes_back_from_its_bytes(form: bytes) -> None:
    """In its canonical form, whichever way it is ordered."""
    value = canonical.decode(form)

    for descending in (False, True):
        place = ordered(value, descending=descending)
        assert canonical.write(value_of(place)) == form

"""The compiled loops of joins give what Python gives, of data that are usual and that are not."""

import gc
from collections.abc import Sequence
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import Columns, KeyedUpdate, datum_of, in_columns, rows_of
from ikebana.processor.kernels import arrange, half_join, history
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import Lookups, Match, half_join_in_columns
from ikebana.processor.linear import chain, picking, query

_WHY = "the compiled code is not built, or switched off"
joins = pytest.importorskip("ikebana.compiled._joins", reason=_WHY, exc_type=ImportError)
arranged = pytest.importorskip("ikebana.compiled._arranged", reason=_WHY, exc_type=ImportError)
met = pytest.importorskip("ikebana.compiled._half_join", reason=_WHY, exc_type=ImportError)
data = pytest.importorskip("ikebana.compiled._data", reason=_WHY, exc_type=ImportError)
pytest.importorskip("ikebana.compiled._picking", reason=_WHY, exc_type=ImportError)

KEYS = st.sampled_from([b"1", b"2", b'{"k0":1,"k1":2}', b""])
VALUES = st.one_of(st.sampled_from([b"a", b"b", b"ab", b"", b"\xff\x00"]), st.binary(max_size=300))
DIFFS = st.sampled_from([1, 1, 1, -1, -1, 2, 0, (1 << 63) - 1, 1 - (1 << 63)])
UPDATES = st.lists(st.builds(KeyedUpdate, KEYS, VALUES, st.integers(0, 3), DIFFS), max_size=40)
TEXTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)
FIELDS = ("a", "b", "é", 'with "quotes"', "ab")
OBJECTS = st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text()), TEXTS)


@given(UPDATES)
def test_rows_and_columns(updates: list[KeyedUpdate]) -> None:
    """Rows become columns, and the same rows again."""
    columns = joins.columns_of(updates)
    if updates:
        assert columns == in_columns(updates)
    found = joins.rows_from(KeyedUpdate, *columns)
    assert found == updates
    assert all(type(row) is KeyedUpdate for row in found)
    assert [*Columns.of(updates)] == updates
    places = list(range(0, len(updates), 3))
    assert joins.taken(updates, places) == updates[::3]


def test_what_is_no_row() -> None:
    """Other things are no rows, and columns have one length."""
    assert joins.columns_of([(1, 2, 3)]) is None
    assert joins.columns_of([KeyedUpdate(b"", b"", 1, 1), [1, 2, 3, 4]]) is None
    with pytest.raises(TypeError):
        joins.rows_from(list, [1], [2], [3], [4])
    with pytest.raises(ValueError, match="length"):
        joins.rows_from(KeyedUpdate, [1], [2], [3], [])
    with pytest.raises(IndexError):
        joins.taken([1, 2], [2])
    with pytest.raises(IndexError):
        joins.taken([1, 2], [0, -1])


@given(UPDATES, st.integers(1, 5))
def test_shards(updates: list[KeyedUpdate], shards: int) -> None:
    """Keys have the shards of their CRC-32; what has none has that of another."""
    updates += [KeyedUpdate(None, b"x", 1, 1)]
    held: list[list[KeyedUpdate]] = [[] for _ in range(shards)]
    size = joins.spread(updates, held, b"null")
    assert size == sum(len(key or b"") + len(value) for key, value, _, _ in updates)
    for shard, own in enumerate(held):
        placed = [(b"null" if row.key is None else row.key, row) for row in updates]
        assert own == [row for key, row in placed if crc32(key) % shards == shard]
    columns: list[tuple[list[bytes], ...]] = [([], [], [], []) for _ in range(shards)]
    joins.spread_columns(in_columns(updates), columns, b"null")
    for shard, own_columns in enumerate(columns):
        keyed = [u._replace(key=b"null") if u.key is None else u for u in updates]
        of = [row for row in keyed if crc32(row.key or b"") % shards == shard]
        assert list(zip(*own_columns, strict=True)) == of


@given(UPDATES, st.lists(st.sampled_from([1 << 63, -(1 << 63), 1 << 70]), max_size=1))
def test_sums(updates: list[KeyedUpdate], large: list[int]) -> None:
    """What cancels is left out, and what is beyond 64 bits is split."""
    updates += [KeyedUpdate(b"1", b"a", 1, diff) for diff in large] + updates[:1]
    found = chain.consolidated(updates)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(chain, "summed", None)
        assert found == chain.consolidated(updates)


def read_in_python(
    monkeypatch: pytest.MonkeyPatch, fields: tuple[str, ...], values: Sequence[bytes]
) -> list[list[bytes | None]]:
    with monkeypatch.context() as patch:
        patch.setattr(query, "fields_of", None)
        return [[*column] for column in query.field_texts(fields, values)]


@given(st.lists(OBJECTS, max_size=5), st.data())
def test_fields(objects: list[dict[str, object]], drawn: st.DataObject) -> None:
    """Fields of canonical texts are found, and texts that are mutated do no harm."""
    texts = [msgspec.json.encode(of, order="sorted") for of in objects]
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = read_in_python(monkeypatch, FIELDS, texts)
        assert [[*column] for column in query.field_texts(FIELDS, texts)] == expected
        whole = [datum_of(b"key", text) for text in texts]
        found = query.data_field_texts(FIELDS, whole)
        assert [[*column] for column in found] == expected
    names = tuple(name.encode() for name in ("a", "b", "ab"))
    for text in texts:
        at = drawn.draw(st.integers(0, len(text)))
        cut = text[:at] + drawn.draw(st.binary(max_size=2)) + text[at + 1 :]
        made = joins.fields_of(names, [cut, text[:at]], data=False)
        try:
            decoded = msgspec.json.decode(cut)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if made is not None and isinstance(decoded, dict):
            for name, column in zip(("a", "b", "ab"), made, strict=True):
                assert column[0] is None or msgspec.json.decode(column[0]) == decoded[name]
    assert joins.fields_of(names, [b"", b"\0\0", b"\0\0\1\0{}"], data=True) is None


COLUMN = st.lists(
    st.one_of(
        st.none(),
        st.integers(-(10**19), 10**19).map(lambda of: b"%d" % of),
        st.sampled_from([b'"a"', b"-", b"1.5", b"1e3", b"[]", b"-0", b"1 "]),
    ),
    min_size=1,
    max_size=4,
)


@given(COLUMN, st.sampled_from([2, 4, 9, 18]))
def test_numbers(column: list[bytes | None], digits: int) -> None:
    """Whole numbers are told from other texts."""
    kind = {number: kind for kind, number in picking._DIGITS.items()}[digits]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(picking, "are_numbers", None)
        expected = picking._stays(kind, column)
    assert picking._stays(kind, column) == expected


@given(st.dictionaries(st.text(), st.integers(0, 1), min_size=1), COLUMN)
def test_objects(parts: dict[str, int], column: list[bytes | None]) -> None:
    """Objects of texts are the same, whatever their fields are called."""
    texts = [b"null" if text is None else text for text in column]
    columns = [texts, texts[::-1]]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(picking, "objects", None)
        expected = picking._object(parts)(columns)
    assert picking._object(parts)(columns) == expected


@given(UPDATES)
def test_data(updates: list[KeyedUpdate]) -> None:
    """Keys and values become data, and come out of them; what is no datum is refused."""
    keys: list[bytes | None] = [update.key for update in updates] + [None]
    values = [update.value for update in updates] + [b"x"]
    made: list[bytes | None] = [*map(datum_of, keys, values)]
    assert data.data_of(keys, values) == made
    assert data.keys_of([*made, None]) == [*keys, None]
    assert data.values_of([*made, None], b"0") == [*values, b"0"]
    for each in (b"", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xfe"):
        with pytest.raises(ValueError, match="no datum"):
            data.keys_of([each])


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrange, "grouped", None)
    monkeypatch.setattr(arrange, "Simple", None)
    monkeypatch.setattr(history, "compiled", None)
    monkeypatch.setattr(half_join, "_Compiled", None)


Batch = tuple[list[KeyedUpdate], list[tuple[bytes, int, bool]], int]
BATCHES: st.SearchStrategy[list[Batch]] = st.lists(
    st.tuples(
        st.lists(st.builds(KeyedUpdate, KEYS, VALUES, st.integers(0, 4), DIFFS), max_size=12),
        st.lists(st.tuples(KEYS, st.integers(0, 4), st.booleans()), max_size=12),
        st.integers(0, 5),
    ),
    max_size=5,
)


def ran(batches: list[Batch]) -> list[object]:
    """What batches of an arrangement give, and what it stores."""
    store, found, since = MemoryStore(), list[object](), 0
    for number, (updates, asked, lag) in enumerate(batches):
        lower, upper = number * 5, number * 5 + 5
        arrangement = Arrangement(store, Interval(lower, upper), since)
        rows = [update._replace(time=lower + update.time) for update in updates]
        arrangement.update(rows[: len(rows) // 2])
        arrangement.update(Columns.of(rows[len(rows) // 2 :]))
        for outer in (True, False):
            for sees_equal in (True, False):
                own = [(key, lower + at) for key, at, sees in asked if sees == sees_equal]
                lookups = Lookups(
                    [key for key, _ in own],
                    list(range(len(own))),
                    [time for _, time in own],
                    [1] * len(own),
                    sees_equal,
                )
                for matches in half_join_in_columns(arrangement, lookups, outer=outer):
                    found += map(matches.row, range(len(matches.times)))
        found.append(arrangement.sizes([b"1", b"2"]))
        since = max(since, upper - lag)
        arrangement.settle(since)
        found.append(sorted(store.scan(b"")))
    return found


@given(BATCHES)
def test_arrangements(batches: list[Batch]) -> None:
    """Arrangements give the same matches in the same order, and store the same."""
    found = ran(batches)
    with pytest.MonkeyPatch.context() as monkeypatch:
        without(monkeypatch)
        assert found == ran(batches)


ENTRY = st.one_of(
    st.binary(max_size=12),
    st.builds(lambda of: b"v" + of, st.binary(max_size=5)),
    st.builds(lambda of: b"p" + msgspec.msgpack.encode(of), st.lists(st.binary(max_size=4))),
    st.builds(
        lambda of: b"m" + msgspec.msgpack.encode((None, of)),
        st.dictionaries(st.binary(max_size=4), st.lists(st.integers(-40, 140), max_size=3)),
    ),
)


@given(ENTRY, st.data())
def test_damaged_entries(entry: bytes, drawn: st.DataObject) -> None:
    """An entry that ends early, or says what is not so, is left to Python."""
    cut = entry[: drawn.draw(st.integers(0, len(entry)))]
    for each in (entry, cut):
        update = KeyedUpdate(b"k", b"new", 1, 1)
        made: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        left = arranged.applied({b"k": [update]}, [b"k"], [each], made, 2_048)
        assert left == [0] or made[b"k"][0] is each
        chunk = met.Lookups([b"k"], ["row"], [1], [1], sees_equal=False, start=0, end=1)
        entries = [each]
        found: tuple[list[object], ...] = ([], [], [], [])
        if not chunk.left(entries):
            done = chunk.meet(entries, 0, {}, {}, found, 10, outer=True)
            assert len(found[0]) >= done
        assert chunk.rows(0) == [0]


def test_many_matches_come_in_portions() -> None:
    """A portion is no longer than it may be by the matches of one key."""
    keys = [b"%d" % (at // 5) for at in range(5_000)]
    store = MemoryStore()
    rows = [KeyedUpdate(b"%d" % key, b"%d" % at, 0, 1) for key in range(1_000) for at in range(9)]
    arrangement = Arrangement(store, Interval(0, 1), 0)
    arrangement.update(rows)
    arrangement.settle(1)
    later = Arrangement(store, Interval(1, 2), 1)
    lookups = Lookups(keys, list(range(5_000)), [1] * 5_000, [1] * 5_000, sees_equal=True)

    found = list(half_join_in_columns(later, lookups))
    matches = [of.row(at) for of in found for at in range(len(of.times))]
    assert [len(of.times) < 10_100 for of in found] == [True] * 5
    assert matches == list(half_join.half_join(later, lookups.rows()))
    assert type(matches[0]) is Match


def test_a_finalizer_that_looks_at_lists_meets_whole_ones() -> None:
    """It may run while rows are made of columns."""
    keys = [b"%d" % at for at in range(20_000)]
    ones = [1] * len(keys)

    class Finalized:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            for each in gc.get_objects():
                if type(each) is list:
                    each[-1:]

    gc.collect()
    for _ in range(3):
        Finalized()

    assert rows_of(keys, keys, ones, ones)[-1] == (b"19999", b"19999", 1, 1)
    assert gc.isenabled()


def test_columns_that_shrink_meanwhile_are_an_error() -> None:
    """No place behind the end of a list is read."""
    keys = [b"%d" % at for at in range(50_000)]
    values, times, diffs = [*keys], [1] * len(keys), [1] * len(keys)

    def shrink(phase: str, _: object) -> None:
        if phase == "start":
            for column in (keys, values, times, diffs):
                column.clear()

    gc.callbacks.append(shrink)
    # What ran before in this process may have let it collect seldom.
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        with pytest.raises(IndexError):
            rows_of(keys, values, times, diffs)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(shrink)


def test_portions_of_matches_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last key of one has more than it lacks: what follows goes by portions."""
    monkeypatch.setattr(half_join, "_PORTION", 7)
    arrangement = Arrangement(MemoryStore(), Interval(0, 9), 0)
    arrangement.update([KeyedUpdate(b"%d" % (at % 9), b"%d" % at, 0, 1) for at in range(90)])
    arrangement.settle(0)
    keys = [b"%d" % (at % 9) for at in range(20)]
    lookups = Lookups(keys, [*range(20)], [1] * 20, [1] * 20, sees_equal=False)

    found = [*half_join_in_columns(arrangement, lookups)]
    monkeypatch.setattr(half_join, "_Compiled", None)

    assert found == [*half_join_in_columns(arrangement, lookups)]
    assert {len(each.times) for each in found[:-1]} == {7}

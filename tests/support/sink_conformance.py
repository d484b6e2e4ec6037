"""What every sink has to pass: subclass `SinkConformance`, and give it a fixture `target`.

    class TestMySink(SinkConformance):
        @pytest.fixture
        def target(self):
            yield MyTarget()

Rows of a target are compared with what its table is by definition, computed here from all updates
up to the frontier of the sink's token.
"""

import datetime
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pytest

from ikebana.codecs.sql_type import JSON, Map, SqlType, parts
from ikebana.delivering.columns import TargetColumn
from ikebana.delivering.delivery import DeliveredTopics, Delivery
from ikebana.delivering.sink import (
    COUNT,
    DIFF,
    MODES,
    TIME,
    VALID_FROM,
    VALID_TO,
    Batch,
    Sink,
    TargetAwayError,
    TargetTable,
)
from ikebana.errors import ConfigError, FencedError, SourceError
from ikebana.processor.authoring.deliver_section import Mode
from support.served_topics import MemoryTopics

ORDERS, LINES = "orders", "lines"
BEFORE_ALL = -(2**63)
Updates = list[tuple[bytes | None, bytes, int, int]]
Row = dict[str, Any]


class Target(Protocol):
    """A target under test, empty at the beginning."""

    def sink(self) -> Sink:
        """Make a new instance of the sink of this target, always with the same name."""
        ...

    def rows(self, table: TargetTable) -> list[Row]:
        """Read a table: `table.columns` and `table.added`, the id left out, as Arrow gives them.

        JSON and nested values may be texts or Python's values.
        """
        ...

    def as_of(self, table: TargetTable) -> tuple[int | None, list[Row]]:
        """Read the frontier of a table and its rows at one moment, as any reader may.

        Without a table there are no rows, and no frontier before the first batch.
        """
        ...

    def away(self) -> AbstractContextManager[None]:
        """Let the target not answer during a `with` block."""
        ...


class Died(BaseException):
    """The process of a sink has died."""


class Crashing:
    """A sink that dies at the `point`-th moment; `points` counts those that were passed."""

    def __init__(self, sink: Sink, point: int | None, fault: type[BaseException] = Died) -> None:
        self.name = sink.name
        self.points = 0
        self._sink, self._point, self._fault = sink, point, fault

    def open(self, tables: Sequence[TargetTable]) -> str | None:
        self._pass()
        token = self._sink.open(tables)
        self._pass()
        return token

    def apply(self, batch: Batch) -> None:
        self._pass()
        self._sink.apply(_CrashingBatch(batch, self._pass))
        self._pass()

    def close(self) -> None:
        self._sink.close()

    def _pass(self) -> None:
        self.points += 1
        if self.points == self._point:
            raise self._fault(f"at point {self._point}")


class _CrashingBatch(Batch):
    def __init__(self, batch: Batch, passing: Callable[[], None]) -> None:
        self.__dict__ |= batch.__dict__
        self._passing = passing

    def updates(self, table: TargetTable) -> Iterator[pa.RecordBatch]:
        self._passing()
        for chunk in super().updates(table):
            yield chunk
            self._passing()


def order_columns() -> tuple[TargetColumn, ...]:
    kinds = {"id": "BIGINT", "name": "VARCHAR", "price": "DECIMAL(12,2)"}
    return tuple(TargetColumn.of(name, kind) for name, kind in kinds.items())


def line_columns() -> tuple[TargetColumn, ...]:
    return TargetColumn.of("sku", "VARCHAR"), TargetColumn.of("amount", "INTEGER")


def tables_of(mode: Mode) -> tuple[TargetTable, ...]:
    """A table with a key, and one with equal rows."""
    key = () if mode == "changes" else ("id",)
    return (
        TargetTable(ORDERS, f"orders_{mode}", mode, order_columns(), key),
        TargetTable(LINES, f"lines_{mode}", mode, line_columns()),
    )


class Story(NamedTuple):
    """Closed batches of both topics, in the order in which they are closed."""

    batches: list[tuple[str, int, Updates]]

    def updates(self, topic: str, upper: int) -> Updates:
        """All updates of a topic before a time."""
        found = [u for name, _, updates in self.batches if name == topic for u in updates]
        return [update for update in found if update[2] < upper]

    @property
    def upper(self) -> int:
        """The frontier that both topics reach."""
        last = {topic: upper for topic, upper, _ in self.batches}
        return min(last.values())

    def topics(self) -> MemoryTopics:
        """All of them, closed."""
        topics = MemoryTopics()
        for topic, upper, updates in self.batches:
            topics.close(topic, upper, *updates)
        return topics


def story(seed: int, length: int = 6) -> Story:
    """Draw what happens to orders by key, some of them null in parts, and to equal lines."""
    draw = random.Random(seed)
    held: dict[int, bytes] = {}
    batches: list[tuple[str, int, Updates]] = []
    upper = 0
    for _ in range(length):
        lower, upper = upper, upper + draw.randint(1, 4)
        orders: Updates = []
        lines: Updates = []
        for time in range(lower, upper):
            for _ in range(draw.randint(0, 4)):
                orders += _upsert(draw, held, time)
            for _ in range(draw.randint(0, 4)):
                line = {
                    "sku": draw.choice(["a", "b", "é", None]),
                    "amount": draw.choice([1, None]),
                }
                diff = draw.choice([1, 1, 2, -1])
                lines.append((None, _encoded(line), time, diff))
        draw.shuffle(orders)
        batches += [(ORDERS, upper, orders), (LINES, upper, lines)]
    return Story(batches)


def _upsert(draw: random.Random, held: dict[int, bytes], time: int) -> Updates:
    number = draw.randint(1, 5)
    found: Updates = []
    key = b'{"id":%d}' % number
    if (old := held.pop(number, None)) is not None:
        found.append((key, old, time, -1))
    if draw.random() < 0.7:
        name = draw.choice(["frank", "", None, "z'\"\\\t"])
        price = draw.choice([None, 5, 27.5])
        new = _encoded({"name": name, "price": price})
        held[number] = new
        found.append((key, new, time, 1))
    return found


def _encoded(value: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def row_of(table: TargetTable, update: tuple[bytes | None, bytes, int, int]) -> tuple[Any, ...]:
    """The row of an update, as plain values."""
    found = {**json.loads(update[1]), **(json.loads(update[0]) if update[0] else {})}
    return tuple(plain(found.get(column.name)) for column in table.columns)


def plain(value: object) -> Any:
    """A value that can be compared and hashed, whatever a target makes of it."""
    match value:
        case dict():
            return tuple(sorted((name, plain(part)) for name, part in value.items()))
        case list() | tuple():
            return tuple(plain(part) for part in value)
        case bool() | None | str() | bytes():
            return value
        case int() | float() | Decimal():
            return Decimal(str(value))
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.UTC)
    return value


def typed(value: object, kind: SqlType) -> object:
    """A value of a column in one form; JSON and nested ones may be texts."""
    if value is not None and (parts(kind) or kind == JSON):
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(kind, Map) and not isinstance(value, dict):
            assert isinstance(value, list)
            value = dict(value)
    return plain(value)


def expected(table: TargetTable, updates: Updates) -> Counter[tuple[Any, ...]]:
    """The rows that a table has by definition, each with how often it is there."""
    by_row: dict[tuple[Any, ...], Counter[int]] = {}
    for update in updates:
        by_row.setdefault(row_of(table, update), Counter())[update[2]] += update[3]
    found: Counter[tuple[Any, ...]] = Counter()
    for row, diffs in by_row.items():
        count, begun = 0, 0
        for time, diff in sorted(diffs.items()):
            if not diff:
                continue
            if table.mode == "changes":
                found[*row, time, diff] += 1
            elif table.mode == "history" and count:
                found[*row, *((count,) if table.counted else ()), begun, time] += 1
            count, begun = count + diff, time
        if not count or table.mode == "changes":
            continue
        numbers = [count] if table.counted else []
        if table.mode == "history":
            found[*row, *numbers, begun, None] += 1
        else:
            found[*row, *numbers] += 1
    return found


def shown(table: TargetTable, rows: list[Row]) -> Counter[tuple[Any, ...]]:
    """The rows of a target in the same form; updates are consolidated."""
    names = [column.name for column in table.columns]
    if table.mode != "changes":
        numbers = [name for name in (COUNT, VALID_FROM, VALID_TO) if name in table.added]
        return Counter(
            (*(plain(row[name]) for name in names), *(row[name] for name in numbers))
            for row in rows
        )
    diffs: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        diffs[*(plain(row[name]) for name in names), row[TIME]] += row[DIFF]
    return Counter((*row, diff) for row, diff in diffs.items() if diff)


def delivered(
    sink: Sink, tables: Sequence[TargetTable], topics: MemoryTopics, spool_bytes: int = 1 << 20
) -> Delivery:
    """Deliver everything that is closed now."""
    formats = dict.fromkeys((table.collection for table in tables), "diff")
    delivery = Delivery(
        sink, tables, DeliveredTopics(topics.follow, formats, spool_bytes), print, wait=False
    )
    # Before its first batch a follower of several topics ends when one of them has nothing.
    delivery.run()
    return delivery


def upper_of(token: str | None) -> int:
    """The frontier of a token; that of nothing is before all times."""
    return BEFORE_ALL if token is None else int(msgspec.json.decode(token)["upper"])


def judge(target: Target, tables: Sequence[TargetTable], told: Story) -> int:
    """Compare each table with what it has to be at its frontier; return the least frontier.

    Tables of a target without transactions over several of them may have different frontiers.
    """
    uppers = []
    for table in tables:
        upper, rows = target.as_of(table)
        at = BEFORE_ALL if upper is None else upper
        wanted = expected(table, told.updates(table.collection, at))
        assert shown(table, rows) == wanted, f"{table.name} at {at}"
        uppers.append(at)
    return min(uppers)


def judge_overtaken(target: Target, tables: Sequence[TargetTable], told: Story) -> None:
    """Deliver; a second instance stops the first, and a third one ends it."""
    first, second = target.sink(), target.sink()

    class Overtaken(Crashing):
        def apply(self, batch: Batch) -> None:
            second.open(tables)
            super().apply(batch)

    with pytest.raises(FencedError, match="newer instance"):
        delivered(Overtaken(first, None), tables, told.topics())
    second.close()
    judge(target, tables, told)
    delivered(target.sink(), tables, told.topics())
    assert judge(target, tables, told) == told.upper


class SinkConformance:
    """The suite."""

    modes = MODES
    """The modes that the sink has."""

    @pytest.fixture(autouse=True)
    def _skip_other_modes(self, request: pytest.FixtureRequest) -> None:
        mode = getattr(request.node, "callspec", None)
        if mode is not None and mode.params.get("mode", self.modes[0]) not in self.modes:
            pytest.skip("the sink does not have this mode")

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("seed", range(3))
    def test_tables_are_the_collections_after_every_batch(
        self, target: Target, mode: Mode, seed: int
    ) -> None:
        """With retractions, nulls, equal rows and keys that come and go within a batch."""
        told, tables, topics = story(seed), tables_of(mode), MemoryTopics()
        for topic, upper, updates in told.batches:
            topics.close(topic, upper, *updates)
            if topic == LINES:
                delivered(target.sink(), tables, topics)
                assert judge(target, tables, told) == upper
        sink = target.sink()
        assert upper_of(sink.open(tables)) == told.upper
        sink.close()

    @pytest.mark.parametrize("mode", MODES)
    def test_a_death_at_any_point_loses_and_doubles_nothing(
        self, target: Target, mode: Mode
    ) -> None:
        """Every table is at the time of the token then, and a new instance goes on from it."""
        told, tables = story(7, 3), tables_of(mode)
        whole = Crashing(target.sink(), None)
        delivered(whole, tables, told.topics())
        assert judge(target, tables, told) == told.upper
        for point in range(1, whole.points + 1):
            renamed = [replace(table, name=f"{table.name}_{point}") for table in tables]
            other = _Renamed(target, f"at {point}")
            with pytest.raises(Died):
                delivered(Crashing(other.sink(), point), renamed, told.topics())
            assert judge(other, renamed, told) <= told.upper
            delivered(other.sink(), renamed, told.topics())
            assert judge(other, renamed, told) == told.upper

    def test_a_commit_without_an_answer_is_not_repeated(self, target: Target) -> None:
        """The token in the target says that the batch is there."""
        told, tables = story(8, 3), tables_of("changes")
        # Before and after each `apply`, among others.
        for point in range(3, 7):
            other = _Renamed(target, f"unanswered {point}")
            renamed = [replace(table, name=f"{table.name}_{point}") for table in tables]
            delivered(Crashing(other.sink(), point, TargetAwayError), renamed, told.topics())
            assert judge(other, renamed, told) == told.upper

    def test_a_second_instance_stops_the_first(self, target: Target) -> None:
        """Which may be about to apply the same batch."""
        told, tables = story(9, 3), tables_of(self.modes[0])
        judge_overtaken(target, tables, told)

    def test_a_target_that_is_away_is_asked_again(self, target: Target) -> None:
        """And gets everything when it answers."""
        told, tables = story(10, 4), tables_of(self.modes[0])
        delivered(target.sink(), tables, told.topics())
        sink = target.sink()
        with target.away(), pytest.raises(TargetAwayError):
            sink.open(tables)
        sink.close()
        delivered(target.sink(), tables, told.topics())
        assert judge(target, tables, told) == told.upper

    @pytest.mark.parametrize("mode", ["current", "history"])
    def test_a_second_row_of_a_key_is_refused(self, target: Target, mode: Mode) -> None:
        """By the name of the table, and nothing of its batch is applied."""
        tables, topics = tables_of(mode)[:1], MemoryTopics()
        one, other = (_encoded({"name": name, "price": 1}) for name in "ab")
        topics.close(ORDERS, 5, (b'{"id":1}', one, 2, 1))
        delivered(target.sink(), tables, topics)
        before = target.rows(tables[0])
        topics.close(ORDERS, 9, (b'{"id":1}', other, 6, 1), (b'{"id":2}', one, 6, 1))
        with pytest.raises(SourceError, match=tables[0].name):
            delivered(target.sink(), tables, topics)
        assert target.rows(tables[0]) == before
        assert len(before) == 1

    def test_a_table_that_does_not_fit_is_refused(self, target: Target) -> None:
        """By its name and its column, before anything is written."""
        told, tables = story(11, 2), tables_of(self.modes[0])
        delivered(target.sink(), tables, told.topics())
        columns = (*tables[0].columns[:2], TargetColumn.of("price", "VARCHAR"))
        new = replace(tables[1], name="new_lines")
        with pytest.raises(ConfigError, match=rf'{tables[0].name}.*"price"'):
            target.sink().open([new, replace(tables[0], columns=columns)])
        with pytest.raises(ConfigError, match=tables[0].name):
            target.sink().open([replace(tables[0], mode="history")])
        assert judge(target, tables, told) == told.upper

    @pytest.mark.parametrize("mode", MODES)
    def test_a_column_that_comes_later_is_added(self, target: Target, mode: Mode) -> None:
        """It is null in the rows before; a table of counted rows cannot get one."""
        table = tables_of(mode)[0]
        wider = replace(table, columns=(*table.columns, TargetColumn.of("more", "VARCHAR")))
        topics = MemoryTopics()
        one, two, three = (b'{"id":%d}' % number for number in (1, 2, 3))
        old, new = b'{"name":"a","price":1}', b'{"more":"x"}'
        topics.close(ORDERS, 2, (one, old, 1, 1), (two, old, 1, 1))
        delivered(target.sink(), [table], topics)
        topics.close(ORDERS, 4, (one, old, 3, -1), (one, new, 3, 1))
        delivered(target.sink(), [wider], topics)
        # A sink without it goes on, and leaves it null.
        topics.close(ORDERS, 6, (three, old, 5, 1))
        delivered(target.sink(), [table], topics)

        found = {(row["id"], row["name"], row["more"]) for row in target.rows(wider)}
        assert found >= {(1, None, "x"), (2, "a", None), (3, "a", None)}
        assert mode != "current" or len(found) == 3
        if mode != "changes":
            counted, sink = replace(table, name="counted", key=()), target.sink()
            sink.name = "counted"
            delivered(sink, [counted], topics)
            with pytest.raises(ConfigError, match=r'counted.*"more".*apart'):
                sink.open([replace(counted, columns=wider.columns)])
            with pytest.raises(ConfigError, match=r'counted.*"price".*apart'):
                sink.open([replace(counted, columns=table.columns[:2])])

    @pytest.mark.parametrize("mode", ["current", "history"])
    @pytest.mark.parametrize("key", [(), ("id",)])
    def test_an_edit_may_give_columns_another_order(
        self, target: Target, mode: Mode, key: tuple[str, ...]
    ) -> None:
        """Rows are the same rows then."""
        table, topics = TargetTable(ORDERS, "ordered", mode, order_columns(), key), MemoryTopics()
        one, two = b'{"id":1,"name":null,"price":1}', b'{"id":2,"name":"b","price":1}'
        told = Story(
            [
                (ORDERS, 2, [(None, one, 1, 1), (None, two, 1, 1)]),
                (ORDERS, 4, [(None, one, 3, -1), (None, two, 3, -1)]),
            ]
        )
        for columns, (topic, upper, updates) in zip(
            (table.columns, table.columns[::-1]), told.batches, strict=True
        ):
            topics.close(topic, upper, *updates)
            delivered(target.sink(), [replace(table, columns=columns)], topics)
            assert judge(target, [table], told) == upper

    @pytest.mark.parametrize("mode", MODES)
    def test_every_type_comes_back(self, target: Target, mode: Mode) -> None:
        """With values at its bounds, and null."""
        columns = tuple(TargetColumn.of(f"c{at}", kind) for at, (kind, _) in enumerate(TYPES))
        table = TargetTable("types", "all_types", mode, columns)
        topics = MemoryTopics()
        rows = [
            {f"c{at}": _of(values, number) for at, (_, values) in enumerate(TYPES)}
            for number in range(max(len(values) for _, values in TYPES) + 1)
        ]
        topics.close("types", 5, *((None, json.dumps(row).encode(), 1, 1) for row in rows))
        delivered(target.sink(), [table], topics)
        chunk = pa.RecordBatch.from_pylist(
            [
                {"key": None, "value": json.dumps(row).encode(), "time": 1, "diff": 1}
                for row in rows
            ]
        )
        wanted = table.typing.rows(chunk).to_pylist()

        def comparable(of: list[Row]) -> list[str]:
            return sorted(
                repr([typed(row[column.name], column.kind) for column in columns]) for row in of
            )

        assert comparable(target.rows(table)) == comparable(wanted)

    @pytest.mark.parametrize("mode", MODES)
    def test_columns_have_any_names(self, target: Target, mode: Mode) -> None:
        """Also those that statements use themselves, and words of SQL."""
        words = "time rows count n ends diff plus begun select s t a\"b c'd e.f"
        names = tuple(words.split())
        columns = tuple(TargetColumn.of(name, "BIGINT") for name in names)
        key = () if mode == "changes" else names[:2]
        table, topics = TargetTable("names", f"names_{mode}", mode, columns, key), MemoryTopics()
        before, after = (_encoded(dict.fromkeys(names[2:], value)) for value in (1, 2))
        of_key = b'{"rows":5,"time":4}'
        changed: Updates = [(of_key, before, 3, -1), (of_key, after, 3, 1)]
        told = Story([("names", 2, [(of_key, before, 1, 1)]), ("names", 4, changed)])
        for topic, upper, updates in told.batches:
            topics.close(topic, upper, *updates)
            delivered(target.sink(), [table], topics)

        assert judge(target, [table], told) == 4

    def test_a_batch_is_larger_than_memory_may_be(self, target: Target) -> None:
        """What does not fit is in a file meanwhile."""
        tables, topics = tables_of(self.modes[0])[1:], MemoryTopics()
        updates: Updates = [
            (None, _encoded({"sku": f"s{number % 15_000}", "amount": 1}), 3, 1)
            for number in range(20_000)
        ]
        topics.close(LINES, 5, *updates)
        delivered(target.sink(), tables, topics, spool_bytes=100_000)
        assert judge(target, tables, Story([(LINES, 5, updates)])) == 5

    @pytest.mark.full
    @pytest.mark.timeout(600)
    def test_a_million_rows_at_the_start(self, target: Target) -> None:
        """In one transaction with one token."""
        tables, topics = tables_of(self.modes[0])[:1], MemoryTopics()
        updates: Updates = [
            (b'{"id":%d}' % number, b'{"name":"frank","price":1}', 3, 1)
            for number in range(1_000_000)
        ]
        topics.close(ORDERS, 5, *updates)
        delivered(target.sink(), tables, topics)
        assert judge(target, tables, Story([(ORDERS, 5, updates)])) == 5


class _Renamed:
    """The same target for a sink of another name."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name

    def sink(self) -> Sink:
        sink = self._target.sink()
        sink.name = self._name
        return sink

    def rows(self, table: TargetTable) -> list[Row]:
        return self._target.rows(table)

    def as_of(self, table: TargetTable) -> tuple[int | None, list[Row]]:
        return self._target.as_of(table)

    def away(self) -> AbstractContextManager[None]:
        return self._target.away()


def _of(values: Sequence[object], number: int) -> object:
    return values[number] if number < len(values) else None


# Types, and values of theirs as JSON.
TYPES: tuple[tuple[str, Sequence[object]], ...] = (
    ("BOOLEAN", [True, False]),
    ("TINYINT", [-128, 127]),
    ("SMALLINT", [-32768, 32767]),
    ("INTEGER", [-(2**31), 2**31 - 1]),
    ("BIGINT", [-(2**63), 2**63 - 1]),
    ("UTINYINT", [0, 255]),
    ("USMALLINT", [0, 65535]),
    ("UINTEGER", [0, 2**32 - 1]),
    ("UBIGINT", [0, 2**64 - 1]),
    ("HUGEINT", [-(10**38) + 1, 10**38 - 1]),
    ("FLOAT", [1.5, -0.25]),
    ("DOUBLE", [1e300, -0.1, 0]),
    ("DECIMAL(38,10)", ["1234567890123456789012345678.0123456789", "-0.0000000001"]),
    ("VARCHAR", ["", "z'\"\\\t\n\r,;", "é😀", "null", "\\N"]),
    ("BLOB", ["", "AP8="]),
    ("UUID", ["00000000-0000-0000-0000-000000000000", "6f1e1d2c-7b1a-4a6e-9b5d-3a1c5e7f9b2d"]),
    ("DATE", ["0001-01-01", "9999-12-31", "2024-02-29"]),
    ("TIME", ["00:00:00", "23:59:59.999999"]),
    ("TIMESTAMP", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]),
    ("TIMESTAMP_S", ["2024-02-29T12:00:01"]),
    ("TIMESTAMP_MS", ["2024-02-29T12:00:01.123"]),
    ("TIMESTAMP_NS", ["2024-02-29T12:00:01.123456789"]),
    ("TIMESTAMP WITH TIME ZONE", ["2024-02-29T12:00:01.5+02:00", "1970-01-01T00:00:00Z"]),
    ("JSON", [{"a": [1, None, "x"]}, [1.5, {}], "text", 3]),
    ("BIGINT[]", [[], [1, None, 3]]),
    ("VARCHAR[]", [["a", "b,{}\"'\\", ""]]),
    ("STRUCT(a INTEGER, b VARCHAR[])", [{"a": 1, "b": ["x"]}, {"a": None, "b": None}]),
    ("MAP(VARCHAR, INTEGER)", [{}, {"k": 1, "": 2}]),
    ("ENUM('red', 'green')", ["red", "green"]),
    ("INTERVAL", ["3 days 01:00:00"]),
)

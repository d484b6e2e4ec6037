"""The upserts of a batch in the order in which they apply: time by time, or one by one.

At equal times the order is that of (input, partition, offset).  A `Moment` has the upserts of one
time: the last upsert of each key, behind a truncate if there is one.
"""

import operator
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice, repeat
from typing import NamedTuple

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part
from ikebana.processor.base.rows import Truncate, Upserts
from ikebana.processor.kernels.upsert_sequences import Sequences
from ikebana.processor.kernels.upsert_values import (
    NOTHING_SAID,
    SPECIAL,
    Source,
    UpsertRow,
    UpsertValue,
    combined,
    rank_of,
    rows_of,
    values_of,
)
from ikebana.processor.kernels.upsert_waiting import (
    Plain,
    Waited,
    keep,
    keep_plain,
    packed,
    plain_rank,
    take_due,
)


class Moment(NamedTuple):
    """The upserts of one time: the last one of each key, perhaps after a truncate.

    `olds` has, for each old image, its key, the combined upserts of this time before it, its
    checksum, and its place.
    """

    time: int
    last: dict[bytes, UpsertValue]
    truncated: bool = False
    olds: Sequence[tuple[bytes, UpsertValue, int, Source]] = ()


def in_sequence(
    waiting: Part, chunks: Sequence[Upserts | Truncate], interval: Interval
) -> list[Upserts] | None:
    """The chunks in an order in which time rises with every record, if there is one.

    In the offset domain there usually is one: no two messages have the same time.
    """
    full = [chunk for chunk in chunks if isinstance(chunk, Upserts) and chunk.keys]
    truncated = any(isinstance(chunk, Truncate) for chunk in chunks)
    if not full or truncated or any(isinstance(chunk.times, int) for chunk in full):
        return None
    if any(chunk.sequences for chunk in full):
        return None
    if next(iter(waiting.scan(b"", packed(interval.lower))), None) is not None:
        return None
    ordered = sorted(full, key=_first_time)
    last = interval.lower - 1
    for chunk in ordered:
        times = chunk.times
        assert isinstance(times, list)
        if times[0] <= last or not all(map(operator.lt, times, islice(times, 1, None))):
            return None
        last = times[-1]
    return ordered if last < interval.upper else None


def _first_time(chunk: Upserts) -> int:
    return chunk.times if isinstance(chunk.times, int) else chunk.times[0]


def by_time(
    waiting: Part,
    chunks: Sequence[Upserts | Truncate],
    interval: Interval,
    sequences: Sequences,
) -> Iterable[Moment | Upserts]:
    """The moments in order of time; upserts that are not due yet go to `waiting`.

    Upserts that are outdated by `sequences` are left out.  Plain upserts come as one chunk, with
    one upsert of each key at each time.
    """
    waited = Waited()
    rows, plain = take_due(waiting, interval, waited)
    simple = not rows and not plain and not any(map(_has_sequences, chunks))
    same_time = simple and len({_time_of(chunk) for chunk in chunks}) == 1
    if same_time and (time := _time_of(chunks[0])) is not None and time < interval.upper:
        # Nearly every batch in the ingest domain: rows need no tuples.
        assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
        return [_moment(time, sorted(chunks, key=_order))]
    for chunk in chunks:
        if (plain_rows := _plain_rows(chunk)) is not None:
            assert plain_rows[0][0] >= interval.lower, (
                f"time {plain_rows[0][0]} is before {interval.lower}"
            )
            cut = bisect_left(plain_rows, (interval.upper,))
            plain += plain_rows[:cut]
            keep_plain(waiting, plain_rows[cut:], waited)
            continue
        for row in rows_of(chunk):
            time = row.time
            assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
            if time < interval.upper:
                rows.append(row)
            else:
                keep(waiting, row, waited)
    if any(row.sequence for row in rows):
        rows += [UpsertRow(*each) for each in plain]
        rows, plain = sequences.counting(sorted(rows, key=rank_of)), []
    if all(map(_is_plain, rows)):
        plain += [row[:6] for row in rows]  # type: ignore[misc]
        return [_last_of_each(sorted(plain, key=plain_rank))] if plain else ()
    rows += [UpsertRow(*each) for each in plain]
    rows.sort(key=rank_of)
    return _moments(rows)


def _plain_rows(chunk: Upserts | Truncate) -> list[Plain] | None:
    """The rows of a chunk in the order of their ranks, if all are plain values.

    Also None if a message has several rows, since these have one rank.
    """
    if isinstance(chunk, Truncate) or not chunk.keys or isinstance(chunk.times, int):
        return None
    if chunk.bad or chunk.failed or chunk.partial or chunk.before or chunk.sequences:
        return None
    if len(set(chunk.offsets)) < len(chunk.offsets):
        return None
    source = repeat(chunk.input_order), repeat(chunk.partition)
    columns = chunk.times, *source, chunk.offsets, chunk.keys, chunk.values
    # All ranks differ, so nothing behind them is compared.
    return sorted(zip(*columns, strict=False))


def _is_plain(row: UpsertRow) -> bool:
    return row.key is not None and row.before is None and row.upsert.__class__ not in SPECIAL


def _last_of_each(rows: Sequence[Plain]) -> Upserts:
    """Plain rows in their order as a chunk, with only the last row of each key and time."""
    last = {(row[0], row[4]): row[5] for row in rows}
    times, keys = map(list, zip(*last, strict=True))
    return Upserts("", 0, 0, times, keys, list(last.values()), [])


def _moment(time: int, chunks: Sequence[Upserts | Truncate]) -> Moment:
    """The moment of chunks of one time, in their order."""
    gathering = _Gathering(time)
    for chunk in chunks:
        if isinstance(chunk, Truncate):
            gathering.truncate()
        elif chunk.bad or chunk.failed or chunk.partial or chunk.before:
            before, place = chunk.before, (chunk.input_order, chunk.partition)
            for index, (key, upsert) in enumerate(zip(chunk.keys, values_of(chunk), strict=True)):
                gathering.add(key, upsert, before.get(index), (*place, chunk.offsets[index]))
        else:
            # A later upsert takes the place of an earlier one, not its position.
            gathering.last.update(zip(chunk.keys, chunk.values, strict=True))
    return gathering.moment()


def _moments(rows: "list[UpsertRow]") -> Iterable[Moment]:
    gathering: _Gathering | None = None
    for row in rows:
        if gathering is None or gathering.time != row.time:
            if gathering is not None:
                yield gathering.moment()
            gathering = _Gathering(row.time)
        if row.key is None:
            gathering.truncate()
        else:
            source = row.order, row.partition, row.offset
            gathering.add(row.key, row.upsert, row.before, source)
    if gathering is not None:
        yield gathering.moment()


class _Gathering:
    """The upserts of one time, one after the other."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.last: dict[bytes, UpsertValue] = {}
        self._truncated = False
        self._olds: list[tuple[bytes, UpsertValue, int, Source]] = []
        # The upsert that a key starts with.
        self._first: UpsertValue = NOTHING_SAID

    def add(self, key: bytes, upsert: UpsertValue, before: int | None, source: Source) -> None:
        """Add an upsert, with the checksum of its old image if it has one."""
        earlier = self.last.get(key, self._first)
        if before is not None:
            self._olds.append((key, earlier, before, source))
        self.last[key] = combined(earlier, upsert)

    def truncate(self) -> None:
        """Remove every key, including the upserts of this time."""
        self._truncated = True
        self._first = None
        self.last = dict.fromkeys(self.last)

    def moment(self) -> Moment:
        """The moment of all upserts added so far."""
        return Moment(self.time, self.last, self._truncated, self._olds)


def _has_sequences(chunk: Upserts | Truncate) -> bool:
    return isinstance(chunk, Upserts) and bool(chunk.sequences)


def _order(chunk: Upserts | Truncate) -> tuple[int, int, int]:
    if isinstance(chunk, Truncate):
        return chunk.input_order, chunk.partition, chunk.offset
    return chunk.input_order, chunk.partition, chunk.offsets[0] if chunk.offsets else 0


def _time_of(chunk: Upserts | Truncate) -> int | None:
    if isinstance(chunk, Truncate):
        return chunk.time
    return chunk.times if isinstance(chunk.times, int) else None

"""The bounds of a batch: a batch that cannot end in its time is refused early.

The brokers end a transaction after `run.max_batch`.  A join whose two sides both have many rows
of one key makes as many results as the product of their numbers, and what it would take is known
before it is done.  What steps such as `flat_map` make of an update is not known before, so they
are asked between portions whether their time is over.

The updates of a batch are kept in bounded memory (`GatheredUpdates`): when they are many, most of
them are in a file.  One change may become millions of updates: in a join, if its key has many
rows, or in a `flat_map`.
"""

# Decision (joins are refused beforehand): A join that cannot end in its time is refused by the
# product of a key's lookups and rows. Portions over several batches would need a frontier that
# stands after the batch was minted.

# Decision (many updates go to a file): The Kafka transaction begins when all is computed, so
# nothing is sent of a batch that fails on the way.

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Self

import msgspec

from ikebana.errors import TooMuchError
from ikebana.processor.base.rows import Columned, Columns, InColumns, KeyedUpdate, in_columns_of
from ikebana.processor.base.sharding import Hot, hash_of
from ikebana.processor.base.texts import shown

# A join gives fewer results than this in a second, however simple they are.
_MOST_RESULTS_A_SECOND = 200_000
# Keys with fewer data at a time need not be known.
_MANY = 1_000
_REMEDY = (
    "Raise run.max_batch, and the brokers' transaction.max.timeout.ms, so that it can end. Or "
    "lower source.max_records_per_batch: while no shard has written any of this batch, smaller "
    "ones take its place."
)


class Budget:
    """The time that a batch has, and what keys of joins have taken of it."""

    def __init__(
        self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._begun = clock()
        self._expected: dict[str, int] = {}
        self._matches: dict[tuple[str, bytes], int] = {}

    def of(self, join: str) -> "JoinBudget":
        """The part that a join takes."""
        return JoinBudget(self, join)

    def expect(self, join: str, key: bytes, results: int) -> None:
        """Expect so many results of a key.  Raises: TooMuchError, if they take too long."""
        total = self._expected.get(join, 0) + results
        self._expected[join] = total
        if total > self._seconds * _MOST_RESULTS_A_SECOND:
            raise self._refusal(
                join, f"the key with the hash {hash_of(key)} has {results:,} results"
            )

    def met(self, join: str, key: bytes, matches: int) -> None:
        """Note how many data a key has met.  Raises: TooMuchError, if the time is over."""
        at = join, key
        self._matches[at] = self._matches.get(at, 0) + matches
        self.spend(join)

    def spend(self, join: str) -> None:
        """Go on with a join.  Raises: TooMuchError, if the time is over."""
        if self._clock() - self._begun > self._seconds:
            (_, key), count = max(
                self._matches.items(), key=lambda of: of[1], default=((join, b""), 0)
            )
            detail = f"; the key with the hash {hash_of(key)} has {count:,}" if count else ""
            raise self._refusal(join, f"they are not done in {self._seconds:.0f} s{detail}")

    def expand(self, root: str) -> None:
        """Go on with steps that may make much of an update.  Raises: as `spend`."""
        if self._clock() - self._begun > self._seconds:
            raise TooMuchError(
                f'what steps such as flat_map make of "{shown(root)}" in this batch is more than '
                f"it can write within run.max_batch ({self._seconds:.0f} s)",
                hint=_REMEDY,
            )

    def hot(self) -> list[Hot]:
        """The key of each join that has met the most data."""
        most: dict[str, tuple[int, bytes]] = {}
        for (join, key), count in self._matches.items():
            most[join] = max(most.get(join, (0, b"")), (count, key))
        return [
            Hot("matches", shown(join), count, count, hash_of(key))
            for join, (count, key) in most.items()
        ]

    def _refusal(self, join: str, why: str) -> TooMuchError:
        return TooMuchError(
            f'operator "{shown(join)}" has more results in this batch than it can write within '
            f"run.max_batch ({self._seconds:.0f} s): {why}",
            hint=f"{_REMEDY} If a key has too many rows for that, leave it out of the join, by an "
            "edit that adds a condition before it.",
        )


class JoinBudget:
    """The budget of a batch, as the lookups of one join see it."""

    def __init__(self, budget: Budget, join: str) -> None:
        self._budget = budget
        self._join = join

    def expect(self, key: bytes, results: int) -> None:
        """See `Budget.expect`."""
        self._budget.expect(self._join, key, results)

    def met(self, key: bytes, matches: int) -> None:
        """See `Budget.met`; what is few is not noted."""
        if matches >= _MANY:
            self._budget.met(self._join, key, matches)

    def spend(self) -> None:
        """See `Budget.spend`."""
        self._budget.spend(self._join)


MOST = 500_000
"""About so many updates are kept in memory, or fewer large ones."""
_MOST_BYTES = 128 << 20
_AT_ONCE = 10_000
_MEASURED = 64

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(InColumns).decode


class GatheredUpdates(Columned):
    """Updates, which can be added at the end and read from the beginning.

    The file has no name, and is gone with the process.
    """

    def __init__(self, updates: Iterable[KeyedUpdate] = (), most: int = MOST) -> None:
        self._most = most
        self._last = _nothing()
        self._looked_at = 0
        self._file: IO[bytes] | None = None
        # The places of portions in the file: from where, and how long.
        self._portions: list[tuple[int, int]] = []
        self._filed = 0
        self.extend(updates)

    def extend(self, updates: Iterable[KeyedUpdate]) -> None:
        """Add updates."""
        looks = not isinstance(updates, Sequence) or len(self._last) + len(updates) > _AT_ONCE
        for some in in_columns_of(updates, _AT_ONCE):
            last = self._last
            last.extend(some)
            if looks and len(last) - self._looked_at >= _AT_ONCE:
                self._looked_at = len(last)
                if len(last) >= self._most or len(last) * _mean_size(some) >= _MOST_BYTES:
                    self._write()

    def __iadd__(self, updates: Iterable[KeyedUpdate]) -> Self:
        self.extend(updates)
        return self

    def clear(self) -> None:
        """Forget all updates."""
        self._last, self._looked_at, self._file = _nothing(), 0, None
        self._portions, self._filed = [], 0

    def __iter__(self) -> Iterator[KeyedUpdate]:
        for some in self.in_columns(_AT_ONCE):
            yield from some

    def in_columns(self, most: int) -> Iterator[Columns]:
        if self._file is not None:
            descriptor = self._file.fileno()
            for place, size in self._portions:
                filed = Columns(*_decode(os.pread(descriptor, size, place)))
                yield from filed.in_columns(most)
        yield from self._last.in_columns(most)

    def __len__(self) -> int:
        return self._filed + len(self._last)

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- it lives as long as we
        for some in self._last.in_columns(_AT_ONCE):
            portion = _encode((some.keys, some.values, some.times, some.diffs))
            place = self._file.seek(0, os.SEEK_END)
            self._portions.append((place, len(portion)))
            _write_all(self._file, portion)
        self._filed += len(self._last)
        self._last, self._looked_at = _nothing(), 0


def _write_all(file: IO[bytes], portion: bytes) -> None:
    """Write all of a portion: a system call may take a part of it."""
    view = memoryview(portion)
    while view:
        view = view[file.write(view) :]


def _nothing() -> Columns:
    return Columns([], [], [], [])


def _mean_size(updates: Columns) -> float:
    each = max(1, len(updates) // _MEASURED)
    keys, values = updates.keys[::each], updates.values[::each]
    return (sum(len(key or b"") for key in keys) + sum(map(len, values))) / len(values)

"""Random closed batches of a collection, and what a reader has to find of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from ikebana.arrangements.shared_rocks import SharedDatabase
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving.arrangement import Closed, Retention, ServedArrangement
from support.sums import summed

# Bytes at which an encoding of prefixes could go wrong.
KEYS = st.lists(st.sampled_from([0, 1, 2, 97, 254, 255]), max_size=3).map(bytes)
VALUES = st.sampled_from([b"", b"\x00", b"a", b"b", b'{"id":1}'])


class Batch(NamedTuple):
    """A closed batch: its interval of times, and its updates."""

    lower: int
    upper: int
    updates: list[KeyedUpdate]


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Draw consecutive closed batches, some of them empty, some of several times."""
    found, lower = [], draw(st.integers(-3, 3))
    for _ in range(draw(st.integers(1, 7))):
        upper = lower + draw(st.integers(1, 6))
        update = st.builds(
            KeyedUpdate,
            st.none() | KEYS,
            VALUES,
            st.integers(lower, upper - 1),
            st.sampled_from([1, 1, 1, -1, 2]),
        )
        found.append(Batch(lower, upper, draw(st.lists(update, max_size=12))))
        lower = upper
    return found


class Oracle:
    """A list of updates, and reads of it by their definition."""

    def __init__(self) -> None:
        self.updates: list[KeyedUpdate] = []

    def add(self, updates: Iterable[KeyedUpdate]) -> None:
        """Add updates of closed times."""
        self.updates += updates

    def collection(self, time: int) -> dict[tuple[bytes | None, bytes], int]:
        """Add up all updates at or before a time."""
        return summed(((u.key, u.value), u.diff) for u in self.updates if u.time <= time)

    def values(self, key: bytes, time: int) -> dict[bytes, int]:
        """The values of one key as of a time."""
        found = self.collection(time)
        return {value: count for (at, value), count in found.items() if at == key}

    def changes(self, above: int, upto: int) -> dict[tuple[bytes | None, bytes, int], int]:
        """The consolidated updates with `above < time <= upto`."""
        some = (update for update in self.updates if above < update.time <= upto)
        return summed(((u.key, u.value, u.time), u.diff) for u in some)


def arrangement(path: Path, retain: int = 10**6) -> ServedArrangement:
    """Open the arrangement of a topic "things" at a path."""
    return ServedArrangement(
        SharedDatabase(path), "things", "diff", Retention(retain, is_duration=False)
    )


def closed(batch: Batch, number: int = 0) -> Closed:
    """A batch as its follower gives it; its position is its number."""
    return Closed(batch.lower, batch.upper, batch.updates, b"%d" % number)

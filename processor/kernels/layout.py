"""What kernels share: changes by key, entries to write, and the layout of a part of the state.

A layout says which shard each entry of a part belongs to.  A part has the entries of one operator,
input or output.  Their places begin with prefixes of one byte, and the layout says for each prefix
what its entries are.  So a state moves to another number of shards (`checkpoint.rescale`) by its
layouts alone.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate

ShardOf = Callable[[bytes], int]
"""The shard of a key."""
# A key with its values, each repeated as often as it occurs, and its error records.
Contents = tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]


class Entries(Protocol):
    """The entries under a prefix; `rest` is the place of an entry behind the prefix."""

    def divided(self, rest: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
        """Divide an entry into entries of other shards at the same place; nothing is dropped."""
        ...

    def united(self, one: bytes, other: bytes) -> bytes | None:
        """Unite the entries of two shards at one place; None if they cancel."""
        ...


@dataclass(frozen=True, slots=True)
class OfKey:
    """Entries of one key each; `key` returns it from the rest of the place and the entry."""

    key: Callable[[bytes, bytes], bytes]

    def divided(self, rest: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
        return {shard_of(self.key(rest, entry)): entry}

    def united(self, one: bytes, other: bytes) -> bytes | None:
        raise AssertionError("a key lies in two shards")


@dataclass(frozen=True, slots=True)
class OfKeys:
    """Entries that may have several keys, such as blocks, and so lie in several shards."""

    divide: Callable[[bytes, bytes, ShardOf], dict[int, bytes]]
    unite: Callable[[bytes, bytes], bytes | None]

    def divided(self, rest: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
        return self.divide(rest, entry, shard_of)

    def united(self, one: bytes, other: bytes) -> bytes | None:
        return self.unite(one, other)


class OfShard:
    """Entries about the shard itself, which mean nothing in another shard."""

    def divided(self, rest: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
        return {}

    def united(self, one: bytes, other: bytes) -> bytes | None:
        return one


KEY_IS_REST = OfKey(lambda rest, _: rest)
"""The key is all of the place behind the prefix."""
OF_SHARD = OfShard()
_LENGTH_BYTES = 4
TIME_BYTES = 8


def packed_time(time: int) -> bytes:
    """A time of at most 64 bits that is not negative, as bytes that sort as times do."""
    return time.to_bytes(TIME_BYTES, "big")


def time_in(place: bytes) -> int:
    """The time at the beginning of a place."""
    return int.from_bytes(place[:TIME_BYTES], "big")


def with_length(key: bytes) -> bytes:
    """A key with its length in front, so that something may follow it in a place."""
    return len(key).to_bytes(_LENGTH_BYTES, "big") + key


def _key_behind_length(rest: bytes, _: bytes) -> bytes:
    end = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big")
    return rest[_LENGTH_BYTES:end]


KEY_WITH_LENGTH = OfKey(_key_behind_length)
"""The place continues with the key, as `with_length` writes it."""


class StateLayout:
    """The entries under each prefix of a part."""

    def __init__(self, entries: Mapping[bytes, Entries]) -> None:
        assert entries and all(len(prefix) == 1 for prefix in entries), "prefixes have one byte"  # noqa: PT018
        self._entries = entries

    def divided(self, place: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
        """Divide an entry among other shards; empty if only its own shard needs it."""
        return self._entries[place[:1]].divided(place[1:], entry, shard_of)

    def united(self, place: bytes, one: bytes, other: bytes) -> bytes | None:
        """Unite the entries that two shards have at one place; None if they cancel."""
        return self._entries[place[:1]].united(one, other)


@dataclass(frozen=True, slots=True)
class PartKind:
    """A kind of part: the prefix of its name, its layout, and the questions that it answers.

    * `contents`: the keys in order, from one on, each with its values and error records, if the
      part holds the whole collection of its operator.
    * `waiting`: how many records wait for times from `upper` on, counted up to about `most`.
    * `times`: the times of all waiting records.
    """

    prefix: str
    layout: StateLayout
    contents: Callable[[Store, bytes], Iterator[Contents]] | None = None
    waiting: Callable[[Store, int, int], int] | None = None
    times: Callable[[Store], list[int]] | None = None

    def of(self, store: Store, name: str) -> PrefixStore:
        """The part of this kind of an operator, an input or an output."""
        return operator_part(store, self.prefix + name)


def operator_part(store: Store, name: str) -> PrefixStore:
    """The part of a whole name.  Names have no NUL, so no prefix begins with another."""
    return PrefixStore(store, name.encode() + b"\0")


def sums_by_key(
    updates: Collection[KeyedUpdate], interval: Interval
) -> Mapping[tuple[bytes, int, bytes], int]:
    """Sum the diffs of updates by key, time and row; some sums may be zero."""
    sums: defaultdict[tuple[bytes, int, bytes], int] = defaultdict(int)
    for key, row, time, diff in updates:
        assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
        assert key is not None, "a row has no key"
        sums[key, time, row] += diff
    return sums


def changes_by_key(
    updates: Collection[KeyedUpdate], interval: Interval
) -> dict[bytes, dict[int, dict[bytes, int]]]:
    """Sum the diffs of updates by key, time and row, without those that cancel."""
    changes: dict[bytes, dict[int, dict[bytes, int]]] = {}
    for (key, time, row), diff in sums_by_key(updates, interval).items():
        if diff:
            changes.setdefault(key, {}).setdefault(time, {})[row] = diff
    return changes


def write_entries(store: Store, entries: Mapping[bytes, bytes | None]) -> None:
    """Write entries by their places; None deletes.

    Call it when all keys are done, so that no scan reads a store that changed during the batch.
    """
    for place, entry in entries.items():
        if entry is None:
            store.delete(place)
        else:
            store.put(place, entry)

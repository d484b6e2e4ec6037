"""Traces of a loop: the rows of its collections by key, with the rounds in which they change.

A loop computes in rounds, and its collections have differences by round: the rows of a key in
round 5 are the sums of the diffs of all rounds up to 5.  A trace sums all closed times, so of the
pair (time, round) it keeps the round alone; the changes of a new time are added to it.

A trace reads the groups of keys that it is asked for, and keeps these until the batch ends.
Additions to other groups are only written.  An entry has one row, so a change of a large group
writes only the rows that change.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from ikebana.arrangements.store import Store
from ikebana.processor.kernels.layout import with_length

Rounds = dict[int, int]
"""Diffs by round; none of them is zero."""
Group = Mapping[bytes, Rounds]
"""The rows of a key."""
_DIGEST_BYTES = 16
# An entry is the diffs by round in digits, this, and the row.
_END = b"\n"


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
        digest = blake2b(row, digest_size=_DIGEST_BYTES).digest()
        return self._start + with_length(key) + digest


def counted(group: Group, until: int) -> dict[bytes, int]:
    """The counts of rows in a round; none of them is zero.

    >>> counted({b"a": {1: 1, 3: -1}, b"b": {2: 1}}, 2)
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
    return b" ".join(b"%d:%d" % each for each in sorted(rounds.items())) + _END + row


def _decoded(entry: bytes) -> tuple[Rounds, bytes]:
    diffs, _, row = entry.partition(_END)
    pairs = (each.split(b":") for each in diffs.split(b" "))
    return {int(at): int(diff) for at, diff in pairs}, row

"""Verify that the batches of a diff topic agree with its progress and its changelog mode.

The changelog mode is called `promise` in progress records.

* Progress is contiguous: batch numbers rise by one, each `lower` is the previous `upper`, no
  `upper` is below its `lower`, no end goes back, and the checkpoint never changes.
* The number of a batch's updates equals the count in its progress, and their times lie in
  `lower <= time < upper`.
* "upserts": after each time a key has at most one value, once.  "collection": after each time
  no (key, value) has a negative count.  "changes": sums are not checked.
* An edit of the pipeline may change the promise.  A weaker one holds from its batch on.  A
  stronger one holds from the upper of the first batch that has it and closes a time: outputs
  that an edit changes are frozen until they have all of its updates, and keep their old contents
  until then.  From that time on the collection has to keep the new promise; before, the old one
  is checked.

All diffs of a time are added at once, in any order.  The collection is stored as digests of 16
bytes, so two data are confused with a probability of about n² in 2¹²⁹.  Updates that progress
does not cover yet are counted but not checked.  Without any progress nothing is verified, which
does not mean that the topic is correct.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from ikebana.arrangements.update import pieces
from ikebana.codecs.diff import ProgressRecord, Promise
from ikebana.processor.base import texts
from ikebana.processor.base.diff_reader import ClosedBatch, EarlierUpdates, PlacedUpdate, TopicPart

CheckVerdict = Literal["ok", "offence", "not verifiable"]
_WEAKEST_FIRST: tuple[Promise, ...] = ("changes", "collection", "upserts")


class Offence(NamedTuple):
    """The first violation; `place` is None if it concerns a whole batch."""

    sentence: str
    batch: int
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The verified part: `updates` in `batches`, and `history` before them.

    `data` distinct (key, value) pairs under `keys` distinct keys have a count, and
    `total` is the sum of the counts.  At `given_up` times, readers find the contents from when a
    checkpoint was lost.
    """

    batches: int
    updates: int
    history: int
    verified_from: int | None
    frontier: int | None
    keys: int
    data: int
    total: int
    given_up: tuple[range, ...] = ()


class Verifier:
    """Checks the parts of a topic, fed in order, up to the first violation.

    `complete` means that no progress was deleted.  Then there is no history, and an update
    before the first batch is a violation.
    """

    def __init__(self, topic: str, *, complete: bool = True) -> None:
        self.offence: Offence | None = None
        self._topic = topic
        self._complete = complete
        self._last: ProgressRecord | None = None
        self._first_lower: int | None = None
        self._batches = self._updates = self._history = 0
        self._given_up: list[range] = []
        # The checked promise: that of the last batch, or a weaker one before it.
        self._promise: Promise = "changes"
        self._history_offence: Offence | None = None
        # For "upserts" the value of each key, for other promises the count of each datum.
        self._values: dict[bytes, bytes] = {}
        self._counts: dict[bytes, int] = {}

    def feed(self, part: TopicPart) -> Offence | None:
        """Check the next part; return the first violation so far."""
        if self.offence is None:
            if isinstance(part, EarlierUpdates):
                self._take(part)
            else:
                self.offence = self._judged(part)
        return self.offence

    def verdict(self) -> CheckVerdict:
        """Conclude from the parts so far."""
        if self.offence is not None:
            return "offence"
        return "not verifiable" if self._last is None else "ok"

    def summary(self) -> Summary:
        """Summarise the parts that were verified so far."""
        if self._promise == "upserts":
            keys = data = total = len(self._values)
        else:
            keys = len({datum[:-SIZE] for datum in self._counts})
            data, total = len(self._counts), sum(self._counts.values())
        return Summary(
            self._batches,
            self._updates,
            self._history,
            self._first_lower,
            self._last.upper if self._last else None,
            keys,
            data,
            total,
            tuple(self._given_up),
        )

    def digest(self) -> str:
        """Hash the collection that the parts so far add up to."""
        result = CollectionDigest()
        if self._promise == "upserts":
            for key, value in self._values.items():
                result.add_digests(key, value, 1)
        else:
            for datum, count in self._counts.items():
                result.add_digests(datum[:-SIZE], datum[-SIZE:], count)
        return result.hexdigest()

    def _take(self, history: EarlierUpdates) -> None:
        assert not self._complete, "history of a topic whose progress is complete"
        assert self._last is None, "history after a batch"
        self._history += len(history.updates)
        for update in history.updates:
            _add(self._counts, _datum(update), update.diff)

    def _judged(self, batch: ClosedBatch) -> Offence | None:
        if offence := batch_offence(self._topic, self._last, batch):
            return offence
        progress = batch.progress
        if self._last is None:
            self._begin(progress)
        self._last = progress
        self._weaken(progress.promise)
        for time, updates in groupby(sorted(batch.updates, key=_time), _time):
            if offence := self._time_offence(progress, time, list(updates)):
                return offence
        if progress.upper > progress.lower:
            before = self._promise
            if fault := self._strengthen(progress.promise):
                sentence = (
                    f'batch {progress.batch} of "{self._topic}" promises "{progress.promise}", '
                    f'the batches before it "{before}", but at time {progress.upper}, {fault}'
                )
                return self._history_offence or Offence(sentence, progress.batch)
            self._history_offence = None
        self._batches += 1
        self._updates += len(batch.updates)
        if progress.given_up > progress.lower:
            self._given_up.append(range(progress.lower, progress.given_up))
        return None

    def _begin(self, first: ProgressRecord) -> None:
        """Check the sum of the history, because nothing else about it is known.

        An offence counts only after the first batch has closed a time, because the history may
        follow a weaker promise from before an edit.
        """
        self._first_lower = first.lower
        if fault := self._strengthen(first.promise):
            sentence = (
                f'before batch {first.batch} of "{self._topic}", at time {first.lower}, {fault}'
            )
            self._history_offence = Offence(sentence, first.batch)

    def _weaken(self, promise: Promise) -> None:
        """Check only this promise from here on, if it is weaker; the sums so far stay."""
        if _strength(promise) < _strength(self._promise):
            self._counts |= {key + value: 1 for key, value in self._values.items()}
            self._values = {}
            self._promise = promise

    def _strengthen(self, promise: Promise) -> str | None:
        """Check this promise from here on, if it is stronger; return the fault if it is broken."""
        if _strength(promise) <= _strength(self._promise):
            return None
        if promise == "upserts":
            by_key: dict[bytes, dict[bytes, int]] = {}
            for datum, count in self._counts.items():
                by_key.setdefault(datum[:-SIZE], {})[datum[-SIZE:]] = count
            faults = (_fault(counts) for counts in by_key.values())
            if fault := next((f for f in faults if f), None):
                return fault
            self._values = {key: next(iter(counts)) for key, counts in by_key.items()}
            self._counts = {}
        elif (least := min(self._counts.values(), default=0)) < 0:
            return f"a value of a key has the count {least}"
        self._promise = promise
        return None

    def _time_offence(
        self, progress: ProgressRecord, time: int, updates: Sequence[PlacedUpdate]
    ) -> Offence | None:
        violation = (
            self._upserts_fault(updates)
            if self._promise == "upserts"
            else self._counts_fault(updates)
        )
        if violation is None:
            return None
        update, fault = violation
        place = place_of(self._topic, update)
        sentence = f"{place}: after time {time}, in batch {progress.batch}, {fault}"
        return Offence(sentence, progress.batch, place)

    def _upserts_fault(self, updates: Sequence[PlacedUpdate]) -> tuple[PlacedUpdate, str] | None:
        changed: dict[bytes, dict[bytes, int]] = {}
        for update in updates:
            counts = changed.setdefault(key_digest(update.key), {})
            _add(counts, digest(update.value), update.diff)
        for key, counts in changed.items():
            held = self._values.pop(key, None)
            if held is not None:
                _add(counts, held, 1)
            if fault := _fault(counts):
                return _last_of(updates, key), fault
            for value in counts:
                self._values[key] = value
        return None

    def _counts_fault(self, updates: Sequence[PlacedUpdate]) -> tuple[PlacedUpdate, str] | None:
        for update in updates:
            _add(self._counts, _datum(update), update.diff)
        if self._promise == "changes":
            return None
        for update in reversed(updates):
            if (count := self._counts.get(_datum(update), 0)) < 0:
                return update, f"a value of this key has the count {count}"
        return None


def batch_offence(
    topic: str, before: ProgressRecord | None, batch: ClosedBatch, *, counted: bool = True
) -> Offence | None:
    """Find a violation in a batch, alone and against its predecessor; sums are not checked.

    Unless `counted`, the number of its updates is not compared with its progress.
    """
    progress = batch.progress
    number = progress.batch
    for fault in _progress_faults(before, progress):
        return Offence(f'batch {number} of "{topic}" {fault}', number)
    for update in batch.updates:
        if not progress.lower <= update.time < progress.upper:
            place = place_of(topic, update)
            sentence = (
                f"{place}: time {update.time} is outside batch {number}, which holds "
                f"{progress.lower} <= time < {progress.upper}"
            )
            return Offence(sentence, number, place)
    if counted and len(batch.updates) != progress.count:
        updates = texts.counted(len(batch.updates), "update")
        sentence = (
            f'batch {number} of "{topic}" has {updates}, its progress counts {progress.count:,}'
        )
        return Offence(sentence, number)
    return None


def place_of(topic: str, update: PlacedUpdate) -> str:
    """Name a record in the form that errors use."""
    return f"{topic}[{update.partition}]@{update.offset}"


def _progress_faults(before: ProgressRecord | None, progress: ProgressRecord) -> Iterator[str]:
    if before is not None:
        if progress.checkpoint != before.checkpoint:
            yield (
                f"is of checkpoint {progress.checkpoint}, batch {before.batch} before it "
                f"of {before.checkpoint}"
            )
        if progress.batch != before.batch + 1:
            yield f"follows batch {before.batch}"
        if progress.lower != before.upper:
            yield f"begins at time {progress.lower}, the batch before it ends at {before.upper}"
        for partition, end in progress.ends.items():
            if end < before.ends.get(partition, 0):
                yield (
                    f"ends at offset {end} of partition {partition}, the batch before it "
                    f"at {before.ends[partition]}"
                )
    if progress.upper < progress.lower:
        yield f"ends at time {progress.upper}, before it begins at {progress.lower}"


def _strength(promise: Promise) -> int:
    return _WEAKEST_FIRST.index(promise)


def _fault(counts: Mapping[bytes, int]) -> str | None:
    """Describe the error in the values of a key; None if it has at most one value, once."""
    for count in counts.values():
        if count != 1:
            return f"a value of this key has the count {count}"
    return f"this key holds {len(counts)} values" if len(counts) > 1 else None


def _last_of(updates: Sequence[PlacedUpdate], key: bytes) -> PlacedUpdate:
    return next(u for u in reversed(updates) if key_digest(u.key) == key)


def _add(counts: dict[bytes, int], data: bytes, diff: int) -> None:
    count = counts.get(data, 0) + diff
    if count:
        counts[data] = count
    else:
        counts.pop(data, None)


def _datum(update: PlacedUpdate) -> bytes:
    return key_digest(update.key) + digest(update.value)


_time = attrgetter("time")


SIZE = 16
_MODULUS = 1 << 8 * SIZE


class CollectionDigest:
    """The sum of the hashes of (key, value, count); a count beyond 64 bits is hashed in pieces.

    Equal collections have equal digests.  Different ones have different digests, unless somebody
    constructs data with equal sums: it finds lost or repeated data, and is no signature.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, key: bytes | None, value: bytes, count: int) -> None:
        """Add a datum and its count; a datum comes once, or with each piece of its count."""
        self.add_digests(key_digest(key), digest(value), count)

    def add_digests(self, key: bytes, value: bytes, count: int) -> None:
        """Add a datum whose key and value are digests already."""
        for piece in pieces(count):
            hashed = digest(b"%b%b%d" % (key, value, piece))
            self._sum = (self._sum + int.from_bytes(hashed)) % _MODULUS

    def hexdigest(self) -> str:
        """Return the digest as text."""
        return f"{self._sum:0{2 * SIZE}x}"


def digest(data: bytes) -> bytes:
    """Hash a value."""
    return blake2b(data, digest_size=SIZE).digest()


def key_digest(key: bytes | None) -> bytes:
    """Hash a key."""
    # The missing key differs from the empty key: its digest is shorter than any other.
    return b"" if key is None else digest(key)

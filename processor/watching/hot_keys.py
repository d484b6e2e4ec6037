"""Hot keys, of records and in joins: as metrics, and as warnings.

A key is reported only by its hash (`base.skew.hash_of`).  The metrics have the hottest key of each
input, operator and join, and a limited number of hashes of each, so that the plan bounds the
number of series.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ikebana.processor.base.sharding import Hot, shown
from ikebana.processor.watching.metrics import HOT_KEY_SHARE, JOIN_KEY_MATCHES, MetricSample

SHARE = 0.2
"""A warning is given for a key with a greater share of a batch's records of an input."""
MATCHES = 10_000
"""A warning is given for a key that meets more data than this in the lookups of a batch."""
_EVERY_S = 600.0
# The most hashes of an input or join; later ones are reported as one.
_MOST_HASHES = 10
OTHER = "other"


class HotSeries:
    """The hottest keys so far as series: the present one has its value, earlier ones have 0."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, str], dict[str, None]] = {}
        self._last: dict[tuple[str, str], str] = {}

    def samples(self, keys: Iterable[Hot]) -> Iterator[MetricSample]:
        """Make the samples of a batch in which these keys were the hottest."""
        now = {(hot.kind, shown(hot.of)): hot for hot in keys if hot.hash}
        for name, before in self._last.items():
            if name not in now:
                yield _sample(*name, before, 0.0)
        self._last = {name: self._last[name] for name in self._last if name in now}
        for name, hot in now.items():
            hashes = self._hashes.setdefault(name, {})
            label = hot.hash if hot.hash in hashes or len(hashes) < _MOST_HASHES else OTHER
            hashes[label] = None
            before = self._last.get(name, label)
            if before != label:
                yield _sample(*name, before, 0.0)
            self._last[name] = label
            yield _sample(*name, label, hot.most if hot.kind == "matches" else share(hot))


def share(hot: Hot) -> float:
    """The share of the hottest key in all records."""
    return hot.most / hot.count if hot.count else 0.0


def _sample(kind: str, of: str, key: str, value: float) -> MetricSample:
    return MetricSample(JOIN_KEY_MATCHES if kind == "matches" else HOT_KEY_SHARE, (of, key), value)


class Warned(NamedTuple):
    """A warning: the words, and its fields for log lines as JSON."""

    words: str
    fields: dict[str, object]


class HotWarnings:
    """The warnings of a run: one for each input, operator or join in a period."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warned_at: dict[tuple[str, str], float] = {}

    def of(self, batch: int, keys: Iterable[Hot]) -> Iterator[Warned]:
        """Yield the warnings about a batch."""
        now_s = self._clock()
        for hot in keys:
            name = hot.kind, shown(hot.of)
            words = _warning(batch, hot)
            if words is None or now_s - self._warned_at.get(name, -_EVERY_S) < _EVERY_S:
                continue
            self._warned_at[name] = now_s
            yield words


def _warning(batch: int, hot: Hot) -> Warned | None:
    of = shown(hot.of)
    fields: dict[str, object] = {"batch": batch, "of": of, "hash": hot.hash}
    if hot.kind == "matches":
        if hot.most <= MATCHES:
            return None
        words = (
            f"the key with the hash {hot.hash} has met {hot.most:,} rows of join {of} in batch "
            f"{batch}: its results are as many, and all come from one shard"
        )
        return Warned(words, {**fields, "matches": hot.most})
    if not hot.hash or share(hot) <= SHARE:
        return None
    words = (
        f"the key with the hash {hot.hash} has {share(hot):.0%} of the {hot.count:,} records of "
        f"{of} in batch {batch}: its shard does more than the others"
    )
    return Warned(words, {**fields, "share": round(share(hot), 3), "records": hot.count})

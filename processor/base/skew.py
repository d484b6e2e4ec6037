"""The load of a shard in a batch, and its most frequent keys, by their hashes.

A key is never named, only its hash (`hash_of`), which one can compute for a known key.  Keys are
sampled only if a shard gets many records, so a small batch costs nothing and a large one next to
nothing.
"""

# Decision (hot keys in a sample): A sketch over all records would find keys that are hot over
# hours and in no batch, which hold nobody up. Hashes are plain SHA-256, so `sha256sum` finds a
# key.

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ikebana.processor.base.envelope import Records
from ikebana.processor.base.rows import NO_KEY, Facts, Updates, Upserts

LEAST = 10_000
"""If a shard gets fewer records of an input in a batch, their keys are not sampled."""
_SAMPLE = 1_000
_STEP = 2_654_435_761
# Fewer records are not reported in the commit record.
_LEAST_REPORTED = 500
_DIGITS = 12


class Hot(msgspec.Struct, array_like=True, frozen=True):
    """The load of a shard from an input, or in an operator, and its most frequent key.

    * `records`: `count` records of the input `of`, or updates that came to the operator `of` by an
      exchange; about `most` of them have the key with this `hash`.  Without a hash the keys were
      not sampled.
    * `matches`: the key with this `hash` has met `most` data in lookups of the join `of`; `count`
      is the same.
    """

    kind: Literal["records", "matches"]
    of: str
    count: int
    most: int = 0
    hash: str = ""


def hash_of(key: bytes) -> str:
    """Hash a key: the first digits of its SHA-256.

    >>> hash_of(b'{"id":7}')
    'a3c90e3b7448'
    """
    return hashlib.sha256(key).hexdigest()[:_DIGITS]


def hot_keys(rows: Iterable[Records]) -> list[Hot]:
    """The load and the hottest key of each input, and of each operator after an exchange."""
    chunks: dict[str, list[Sequence[bytes | None]]] = {}
    for row in rows:
        match row:
            case Upserts() | Facts():
                chunks.setdefault(row.input, []).append(row.keys)
            case Updates():
                for name in row.inlets:
                    chunks.setdefault(name, []).append(row.keys)
            case _:
                pass
    return [
        _hottest(of, keys, count)
        for of, keys in chunks.items()
        if (count := sum(map(len, keys))) >= _LEAST_REPORTED
    ]


def _hottest(of: str, chunks: Sequence[Sequence[bytes | None]], count: int) -> Hot:
    if count < LEAST:
        return Hot("records", of, count)
    sample: Counter[bytes | None] = Counter()
    for keys in chunks:
        among = len(keys)
        # Steps of a large prime: with small steps, keys that come in turns would be missed.
        sample.update(keys[at * _STEP % among] for at in range(-(-among * _SAMPLE // count)))
    ((key, hits),) = sample.most_common(1)
    most = count * hits // sample.total()
    return Hot("records", of, count, most, hash_of(NO_KEY if key is None else key))


def merged(hot: Iterable[Hot]) -> list[Hot]:
    """Add up the loads of shards, or stages of a join, with the hottest key of all.

    >>> one = Hot("records", "orders", 30_000, 20_000, "3fe2")
    >>> merged([one, Hot("records", "orders", 10_000)])
    [Hot(kind='records', of='orders', count=40000, most=20000, hash='3fe2')]
    """
    by_name: dict[tuple[str, str], Hot] = {}
    for each in hot:
        name = each.kind, each.of
        before = by_name.get(name)
        if before is None:
            by_name[name] = each
            continue
        # A key lies in one shard.
        most = max(before, each, key=lambda hot: hot.most)
        if each.kind == "records":
            most = msgspec.structs.replace(most, count=before.count + each.count)
        by_name[name] = most
    return list(by_name.values())

"""What a shard has taken in a batch, and the keys that bring much of it, by their hashes.

A key is never named: its hash is (`hash_of`), which whoever knows the key can compute.  Only
where a shard takes many records are their keys looked at, and then a sample of them, so a small
batch costs nothing and a large one next to nothing.
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
"""A shard that takes fewer records of an input in a batch does not look at their keys."""
_SAMPLE = 1_000
_STEP = 2_654_435_761
# With fewer the others are not worth a part of the commit record.
_TOLD = 500
_DIGITS = 12


class Hot(msgspec.Struct, array_like=True, frozen=True):
    """What a shard has taken of `of` in a batch, and the key that most of it has.

    * `records`: `count` records of the input `of`, or updates that came to the operator `of`
      by an exchange, of which about `most` have the key with this `hash`.  Without a hash the keys
      were not looked at.
    * `matches`: the key with this `hash` has met `most` data in lookups of the join `of`;
      `count` is the same.
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


def taken(rows: Iterable[Records]) -> list[Hot]:
    """Say of each input, and each operator behind an exchange, what its hottest key has."""
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
        _hottest(of, found, count)
        for of, found in chunks.items()
        if (count := sum(map(len, found))) >= _TOLD
    ]


def _hottest(of: str, chunks: Sequence[Sequence[bytes | None]], count: int) -> Hot:
    if count < LEAST:
        return Hot("records", of, count)
    sample: Counter[bytes | None] = Counter()
    for keys in chunks:
        among = len(keys)
        # Steps of a large prime: keys that come in turns would fool those of a small number.
        sample.update(keys[at * _STEP % among] for at in range(-(-among * _SAMPLE // count)))
    ((key, hits),) = sample.most_common(1)
    most = count * hits // sample.total()
    return Hot("records", of, count, most, hash_of(NO_KEY if key is None else key))


def merged(found: Iterable[Hot]) -> list[Hot]:
    """Add up what shards, or stages of a join, have taken, with the hottest key of all.

    >>> one = Hot("records", "orders", 30_000, 20_000, "3fe2")
    >>> merged([one, Hot("records", "orders", 10_000)])
    [Hot(kind='records', of='orders', count=40000, most=20000, hash='3fe2')]
    """
    by_name: dict[tuple[str, str], Hot] = {}
    for each in found:
        name = each.kind, each.of
        known = by_name.get(name)
        if known is None:
            by_name[name] = each
            continue
        # A key lies in one shard.
        most = max(known, each, key=lambda hot: hot.most)
        if each.kind == "records":
            most = msgspec.structs.replace(most, count=known.count + each.count)
        by_name[name] = most
    return list(by_name.values())

"""Which host owns which shard, if a run has several hosts: evenly, and with few moves.

A move costs a shard one batch that fences, looks and catches up.  Correctness does not depend on
the placement: if two owners have a shard at once, the later one has fenced the other.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ikebana.processor.base.machine import write_whole
from ikebana.processor.spark.workers.network import Address
from ikebana.processor.spark.workers.owners import Owners

PLACEMENT = -1
"""In place of a shard's number: the row is the placement of shards on hosts."""


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """The hosts by the ids of their executors, in the form of `Owners.text`; each shard's host."""

    hosts: dict[str, str]
    shards: list[str]


def placed(shards: int, hosts: Mapping[str, str], before: Placement | None = None) -> Placement:
    """Place shards on hosts, so that numbers of shards differ by one at most.

    >>> placed(4, {"1": "a", "2": "b"}, Placement({"2": "b"}, ["2", "2", "2", "2"])).shards
    ['2', '2', '1', '1']
    """
    if not hosts:
        return Placement({}, [])
    former = before.shards if before is not None and len(before.shards) == shards else []
    least, more = divmod(shards, len(hosts))
    counts = dict.fromkeys(sorted(hosts), 0)
    by_shard: dict[int, str] = {}
    for shard, name in enumerate(former):
        if name not in counts or counts[name] > least or (counts[name] == least and not more):
            continue
        # `more` counts the hosts that may still have one shard more than the others.
        more -= counts[name] == least
        by_shard[shard] = name
        counts[name] += 1
    for shard in range(shards):
        if shard not in by_shard:
            by_shard[shard] = min(counts, key=lambda name: counts[name])
            counts[by_shard[shard]] += 1
    return Placement(dict(hosts), [by_shard[shard] for shard in range(shards)])


def hosts_of(raw: bytes) -> dict[int, Owners]:
    """Return the host of each shard, as far as it has one."""
    placement = msgspec.msgpack.decode(raw, type=Placement)
    hosts = {name: Owners.read_from(text) for name, text in placement.hosts.items()}
    return {shard: hosts[name] for shard, name in enumerate(placement.shards)}


def readers_of(raw: bytes) -> list[Address]:
    """Return the readers of all hosts, alternating between hosts."""
    placement = msgspec.msgpack.decode(raw, type=Placement)
    hosts = [Owners.read_from(placement.hosts[name]) for name in sorted(placement.hosts)]
    most = max((host.readers for host in hosts), default=0)
    return [host.reader(at) for at in range(most) for host in hosts if at < host.readers]


def encoded(placement: Placement) -> bytes:
    """Encode a placement, as batches carry it."""
    return msgspec.msgpack.encode(placement)


def tell(path: Path, placement: Placement) -> None:
    """Write a placement for the source of a query."""
    write_whole(path, encoded(placement))


def read(path: Path) -> bytes | None:
    """Read an encoded placement that `tell` has written; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None

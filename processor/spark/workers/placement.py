"""Which host owns which shard, where a run has several: evenly, and as seldom moved as can be.

A move costs a shard one batch that fences, looks and catches up.  Nothing depends on a placement
but time: a shard that two owners have at once is one that the later of them has fenced.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ikebana.processor.base.whole_files import write_whole
from ikebana.processor.spark.workers.network import Address
from ikebana.processor.spark.workers.owners import Owners

PLACEMENT = -1
"""In place of a shard's number: the row says on which hosts shards have their owners."""


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """The hosts, by the ids of their executors, as `Owners` names them; and each shard's host."""

    hosts: dict[str, str]
    shards: list[str]


def placed(shards: int, hosts: Mapping[str, str], before: Placement | None = None) -> Placement:
    """Place shards on hosts, whose numbers of shards differ by one at most.

    >>> placed(4, {"1": "a", "2": "b"}, Placement({"2": "b"}, ["2", "2", "2", "2"])).shards
    ['2', '2', '1', '1']
    """
    if not hosts:
        return Placement({}, [])
    known = before.shards if before is not None and len(before.shards) == shards else []
    least, more = divmod(shards, len(hosts))
    counts = dict.fromkeys(sorted(hosts), 0)
    found: dict[int, str] = {}
    for shard, name in enumerate(known):
        if name not in counts or counts[name] > least or (counts[name] == least and not more):
            continue
        # So many hosts have one shard more than the others.
        more -= counts[name] == least
        found[shard] = name
        counts[name] += 1
    for shard in range(shards):
        if shard not in found:
            found[shard] = min(counts, key=lambda name: counts[name])
            counts[found[shard]] += 1
    return Placement(dict(hosts), [found[shard] for shard in range(shards)])


def hosts_of(told: bytes) -> dict[int, Owners]:
    """Return the host of each shard, as far as it has one."""
    found = msgspec.msgpack.decode(told, type=Placement)
    hosts = {name: Owners.read_from(text) for name, text in found.hosts.items()}
    return {shard: hosts[name] for shard, name in enumerate(found.shards)}


def readers_of(told: bytes) -> list[Address]:
    """Return the readers of all hosts, those of different ones beside each other."""
    found = msgspec.msgpack.decode(told, type=Placement)
    hosts = [Owners.read_from(found.hosts[name]) for name in sorted(found.hosts)]
    most = max((host.readers for host in hosts), default=0)
    return [host.reader(at) for at in range(most) for host in hosts if at < host.readers]


def encoded(placement: Placement) -> bytes:
    """A placement as it travels with a batch."""
    return msgspec.msgpack.encode(placement)


def tell(path: Path, placement: Placement) -> None:
    """Write a placement for the source of a query."""
    write_whole(path, encoded(placement))


def told(path: Path) -> bytes | None:
    """Return a placement that has been written, as it travels with a batch."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None

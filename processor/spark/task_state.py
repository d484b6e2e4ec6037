"""The state row of a task: the manifests of its shards.


For one shard, the row is its manifest; for several, a list of their manifests in the order of the
shards.
"""

# Decision (all shards in one task): A task costs the same for one row or ten thousand, and with
# owners it only passes rows on. Each shard keeps its transaction and files. Where tasks are
# needed (no owners, or encryption) the state is rewritten, as for another number of shards.

from collections.abc import Sequence

import msgspec

_BEGINS_A_LIST = b"["


def joined(states: Sequence[bytes]) -> bytes:
    """Make the state row of a task from the states of its shards, each of which is JSON."""
    return states[0] if len(states) == 1 else b"[" + b",".join(states) + b"]"


def parted(row: bytes) -> list[bytes]:
    """Return the states of the shards in a state row."""
    if not row.startswith(_BEGINS_A_LIST):
        return [row]
    return [bytes(each) for each in msgspec.json.decode(row, type=list[msgspec.Raw])]

"""Claim a shard from the instance that had it: make its next marker, or refuse."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ikebana.errors import FencedError
from ikebana.processor.checkpoint.commits import NEWER_GOES_ON, Marker
from ikebana.processor.checkpoint.refusal import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Claim:
    """The marker that makes a shard ours, and the digest of the last offset that it committed."""

    marker: Marker
    offset: str


def claim(first: Marker, earlier: Marker | None, incarnation: int) -> Claim | Refusal:
    """Make the marker by which an instance claims a shard; `earlier` is the shard's last one.

    `first` is the marker of the shard before any batch since the checkpoint was made or last
    rescaled; it is `retired` if the checkpoint has fewer shards now.
    """
    last = earlier or first
    if last.incarnation > incarnation:
        return Refusal(
            Reason.REPLACED,
            f"instance {last.incarnation} has taken over shard {first.shard} of checkpoint "
            f"{first.checkpoint} meanwhile",
            NEWER_GOES_ON,
            FencedError,
        )
    if last.epoch != first.epoch:
        same = last.batch == first.batch
        if not same and not last.retired:
            return Refusal(
                Reason.RAN_AFTER_RESCALING,
                f"cannot take over shard {first.shard} of checkpoint {first.checkpoint}: it has "
                f"committed batch {last.batch}, and the checkpoint was rescaled after batch "
                f"{first.batch}",
                "The checkpoint from before the rescaling has run since. Stop it, and rescale "
                "it again.",
            )
        # The next batch still needs the last one's reports on inputs' times.
        last = replace(first, seen=last.seen, facts=last.facts) if same else first
    return Claim(replace(last, incarnation=incarnation, retired=first.retired), last.offset)


def adopted(offsets: Sequence[str]) -> str | None:
    """Find the digest of the batch that all shards have committed last; None if they differ.

    `offsets` has the digest of each shard that the checkpoint has now.
    """
    return offsets[0] if len(set(offsets)) == 1 else None

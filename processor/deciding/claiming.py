"""Taking a shard from whoever had it: what its next marker says, or why it cannot be had."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ikebana.errors import FencedError
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.deciding.refusal import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Claim:
    """The marker that makes a shard ours, and the digest of the last offset that it ran."""

    marker: Marker
    offset: str


def claim(first: Marker, found: Marker | None, incarnation: int) -> Claim | Refusal:
    """How an instance takes a shard whose last marker is `found`.

    `first` is what the shard says that has not run since the checkpoint's birth or its last
    rescaling; it is `retired` if the checkpoint has had fewer shards since.
    """
    last = found or first
    if last.incarnation > incarnation:
        return Refusal(
            Reason.REPLACED,
            f"instance {last.incarnation} has taken over meanwhile",
            kind=FencedError,
        )
    if last.epoch != first.epoch:
        same = last.batch == first.batch
        if not same and not last.retired:
            return Refusal(
                Reason.RAN_AFTER_RESCALING,
                f"shard {first.shard} has committed batch {last.batch}, the checkpoint "
                f"was rescaled after batch {first.batch}",
                "The old checkpoint has run since: stop it, and rescale it again.",
            )
        # What the last batch saw of inputs' times is still to be learned.
        last = replace(first, seen=last.seen, facts=last.facts) if same else first
    return Claim(replace(last, incarnation=incarnation, retired=first.retired), last.offset)


def adopted(offsets: Sequence[str]) -> str | None:
    """The digest of the batch that every shard has committed last, if it is one.

    `offsets` are those of the shards that the checkpoint has now.
    """
    return offsets[0] if len(set(offsets)) == 1 else None

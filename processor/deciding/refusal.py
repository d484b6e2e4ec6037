"""Why something is not gone on with: the verdict that every decision here may come to."""

from dataclasses import dataclass
from enum import Enum, auto

from ikebana.errors import CheckpointError, IkebanaError


class Reason(Enum):
    """What is wrong; the message of a refusal says it in full."""

    PIPELINE_OF_ANOTHER_CHECKPOINT = auto()
    RESCALED_SINCE = auto()
    TOPIC_DELETED = auto()
    TOPIC_MADE_ANEW = auto()
    OUTPUT_OF_ANOTHER_CHECKPOINT = auto()
    ROLLED_BACK = auto()
    TOPIC_OF_AN_OLDER_OUTPUT = auto()
    COMPACTED = auto()
    OTHER_PARTITIONS = auto()
    UNFINISHED_BATCH_OF_ANOTHER_PLAN = auto()
    UPDATES_ON_THEIR_WAY = auto()
    NO_MARKER = auto()
    MARKER_OF_ANOTHER_CHECKPOINT = auto()
    MARKER_BEHIND = auto()
    OTHER_OFFSET = auto()
    RAN_AFTER_RESCALING = auto()
    REPLACED = auto()
    OTHER_BATCH = auto()
    OTHER_STATE = auto()
    LOST_BEGINNING = auto()
    LOST_END = auto()
    MISSING_INPUT = auto()
    TRANSACTIONS_IN_PARTS = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, in a word and in full, and what to do about it."""

    reason: Reason
    message: str
    hint: str | None = None
    kind: type[IkebanaError] = CheckpointError

    def error(self) -> IkebanaError:
        """The error that ends what is refused."""
        return self.kind(self.message, hint=self.hint)

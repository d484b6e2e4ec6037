"""Refusals: the results of decisions not to go on, with the reason and the remedy."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from ikebana.errors import CheckpointError, IkebanaError

if TYPE_CHECKING:
    # Commands that only read outputs begin without the planner.
    from ikebana.processor.planning.edits import EditProblem


class Reason(Enum):
    """The kind of a refusal; its message names the objects."""

    PIPELINE_OF_ANOTHER_CHECKPOINT = auto()
    RESCALED_SINCE = auto()
    TOPIC_DELETED = auto()
    TOPIC_CREATED_AGAIN = auto()
    OUTPUT_OF_ANOTHER_CHECKPOINT = auto()
    ROLLED_BACK = auto()
    TOPIC_OF_AN_OLDER_OUTPUT = auto()
    COMPACTED = auto()
    OTHER_PARTITIONS = auto()
    NO_COMMIT_RECORD = auto()
    COMMIT_OF_ANOTHER_CHECKPOINT = auto()
    COMMIT_RECORD_BEHIND = auto()
    OTHER_OFFSET = auto()
    RAN_AFTER_RESCALING = auto()
    REPLACED = auto()
    OTHER_BATCH = auto()
    OTHER_STATE = auto()
    LOST_BEGINNING = auto()
    LOST_END = auto()
    MISSING_INPUT = auto()
    NO_SUCH_START = auto()
    TRANSACTIONS_IN_PARTS = auto()
    UNREADABLE_PLAN = auto()
    IMPOSSIBLE_EDIT = auto()
    REBUILD_UNDER_WAY = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason not to go on, the message with its objects, and the remedy.

    `problems` are those of the plan's parts, if it is refused for these.
    """

    reason: Reason
    message: str
    hint: str | None = None
    kind: type[IkebanaError] = CheckpointError
    problems: "tuple[EditProblem, ...]" = ()

    def error(self) -> IkebanaError:
        """Make the error to raise."""
        if self.problems:
            paths = [each.path for each in self.problems]
            return CheckpointError(self.message, hint=self.hint, paths=paths)
        return self.kind(self.message, hint=self.hint)

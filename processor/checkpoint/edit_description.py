"""The effects of an edit of a running pipeline, part by part, for people and programs.

`describing_edits.describe` makes it, and `explain.text` prints it.  The metadata of a checkpoint
have that of the last edit.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ikebana.errors import CheckpointError
from ikebana.processor.base.texts import counted, moment
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata

# An arrangement is the index that joins look up; every other part within the plan is an operator.
EditedKind = Literal["input", "operator", "arrangement", "output"]
Does = Literal["stays", "new", "replaced", "renamed", "dropped", "refused"]
# The updates that the topic of an output gets at the frontier of the edit.
Shows = Literal["nothing", "difference", "everything", "end"]
EditResult = Literal["nothing", "changes", "refused"]
EXIT_STATUS: dict[EditResult, int] = {"nothing": 0, "changes": 2, "refused": 1}

_LISTED = 4


class FillSource(msgspec.Struct, frozen=True):
    """The source from which a fresh part is filled.

    * `state`: the state of an operator.
    * `arrangement`: an arrangement of joins.
    * `topic`: a topic from its beginning.
    * `operator`: another operator that begins with the same edit.
    * `join`: the results of a join of the old plan, recomputed from its arrangements.
    * `own`: the own topic of an output, if no state has its old contents.

    `rows` is the number of keys to read there, None if they were not counted; for a join, the
    keys of its first input.
    """

    kind: Literal["state", "arrangement", "topic", "operator", "join", "own"]
    name: str
    rows: int | None = None


class PartChange(msgspec.Struct, frozen=True):
    """The effect of an edit on one part; names are the users' names.

    `type` is the kind of operator, as in "reduce", or the format of an output.  `was` is the
    part's name in the checkpoint, if that differs.  `why` is a reason in words.  `bytes` is the
    part's size in the state now, None if it was not counted.
    """

    kind: EditedKind
    name: str
    does: Does
    type: str = ""
    was: str | None = None
    why: str = ""
    filled_from: tuple[FillSource, ...] = ()
    shows: Shows = "nothing"
    topic: str | None = None
    bytes: int | None = None


class RefusedChange(msgspec.Struct, frozen=True):
    """A refused change: its path in the pipeline file, the reason, and the remedy.

    `line` is the path's line in the file, if it is known.
    """

    path: str
    reason: str
    remedy: str
    line: int | None = None


class StateSize(msgspec.Struct, frozen=True):
    """The size of the state: its files, and if these were counted, how much of it stays.

    `rows_to_read` is the number of keys that an edit reads.  The size of new parts is not known
    before they are filled.
    """

    files_bytes: int
    rows_to_read: int | None = None
    kept_bytes: int | None = None
    released_bytes: int | None = None


class Finishing(msgspec.Struct, frozen=True):
    """Unfinished work: the last logged batch, or updates that are still between operators."""

    batch: int
    unfinished: bool
    between_operators: bool

    @property
    def facts(self) -> str:
        """Describe the work."""
        facts = []
        if self.unfinished:
            facts.append(f"batch {self.batch} is unfinished")
        if self.between_operators:
            facts.append(f"updates are on their way between operators after batch {self.batch}")
        return " and ".join(facts)

    def words(self) -> str:
        """Describe the work, and how a start handles it."""
        words = f"{self.facts}: finished under the plan of before first"
        return f"{words}, or dropped if no shard has written it" if self.unfinished else words


class Rescaled(msgspec.Struct, frozen=True):
    """Another number of shards, for which a start rewrites the state."""

    before: int
    after: int

    def words(self) -> str:
        """Describe what happens to the state."""
        return f"the state is rewritten for {counted(self.after, 'shard')}, from {self.before}"


class EditDescription(msgspec.Struct, frozen=True):
    """The effects of a run with a plan on a checkpoint.

    With `is_new`, there is no checkpoint yet, so nothing is edited.  `edited` says whether the
    plan differs from the checkpoint's plan at all.  `finishes` is the unfinished work that the old
    plan finishes first; `rescaled` is a change of the number of shards, which comes next.
    """

    pipeline: str
    checkpoint: str
    edited: bool
    parts: tuple[PartChange, ...]
    is_new: bool = False
    frontier: int | None = None
    refused: tuple[RefusedChange, ...] = ()
    state: StateSize | None = None
    finishes: Finishing | None = None
    rescaled: Rescaled | None = None

    @property
    def result(self) -> EditResult:
        """The result in one word."""
        if self.refused:
            return "refused"
        changes = self.edited or self.is_new or self.rescaled is not None
        return "changes" if changes else "nothing"

    @property
    def counts(self) -> Counter[Does]:
        """The numbers of parts by their effect."""
        return Counter(part.does for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """The description as data for programs, as docs/edits.md has it."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {"result": self.result, "counts": dict(self.counts), **fields}

    def summary(self) -> str:
        """The counts in a line, as in "1 new, 2 replaced; 1 output gets a difference"."""
        counts = self.counts
        words = [f"{counts[does]} {word}" for does, word in _COUNTED.items() if counts[does]]
        shown = Counter(part.shows for part in self.parts)
        effects = [
            f"{counted(shown[what], 'output')} {one if shown[what] == 1 else many}"
            for what, (one, many) in _EFFECTS.items()
            if shown[what] and not self.is_new
        ]
        return "; ".join(filter(None, [", ".join(words), ", ".join(effects)]))

    def gist(self) -> list[str]:
        """Describe the changes in one to five lines; no lines if nothing changes."""
        if self.result == "nothing" or self.is_new:
            return []
        at = "" if self.frontier is None else f" at frontier {moment(self.frontier)}"
        if self.refused:
            return [f"the plan is not the checkpoint's, and is refused: {_refusals(self.refused)}"]
        first = self.before_that()
        if not self.edited:
            return [f"the plan stays, the number of shards changes{at}", *first]
        return [f"the plan changes{at}: {self.summary()}", *first, *self._gist_lines()]

    def before_that(self) -> list[str]:
        """Describe the steps of a start before it goes on with the plan."""
        return [each.words() for each in (self.finishes, self.rescaled) if each is not None]

    def _gist_lines(self) -> Iterator[str]:
        named = {
            does: [part for part in self.parts if part.does == does]
            for does in ("new", "replaced", "renamed", "dropped")
        }
        changes = [
            f"{does} {_listed([f'{part.kind} {part.name}' for part in parts])}"
            for does, parts in named.items()
            if parts
        ]
        if changes:
            yield "; ".join(changes)
        origins = dict.fromkeys(
            f"{_KINDS[origin.kind]} {origin.name}"
            for part in self.parts
            for origin in part.filled_from
            if origin.kind != "operator"
        )
        if origins:
            rows = self.state.rows_to_read if self.state is not None else None
            count = "" if not rows else f": {counted(rows, 'row')} to read"
            yield f"filled from {_listed(list(origins))}{count}"


_KINDS = {
    "state": "the state of",
    "arrangement": "arrangement",
    "topic": "topic",
    "join": "the results of",
    "own": "an output's own topic",
}
_COUNTED: dict[Does, str] = {
    "new": "new",
    "replaced": "replaced",
    "renamed": "renamed",
    "dropped": "dropped",
    "refused": "refused",
    "stays": "as before",
}
_EFFECTS: dict[Shows, tuple[str, str]] = {
    "difference": ("gets the difference", "get the difference"),
    "everything": ("begins", "begin"),
    "end": ("ends", "end"),
}


def _refusals(refused: tuple[RefusedChange, ...]) -> str:
    return "; ".join(f"{each.path} {each.reason}".lstrip() for each in refused)


def _listed(words: list[str]) -> str:
    """List the first of some words, and the number of the others."""
    more = len(words) - _LISTED
    if more <= 1:
        return ", ".join(words)
    return f"{', '.join(words[:_LISTED])} and {more} more"


def with_last_edit(
    metadata: CheckpointMetadata, description: EditDescription
) -> CheckpointMetadata:
    """The metadata with the description of its last edit."""
    return msgspec.structs.replace(metadata, last_edit=msgspec.to_builtins(description))


def last_edit(location: str) -> EditDescription | None:
    """Read the description of a checkpoint's last edit; None if it is missing or unreadable."""
    try:
        metadata = Checkpoint(location).metadata()
        if metadata is None or not metadata.last_edit:
            return None
        return msgspec.convert(metadata.last_edit, EditDescription)
    except (CheckpointError, msgspec.ValidationError):
        # Later versions may describe an edit in a form that this one does not know.
        return None

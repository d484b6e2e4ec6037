"""The updates that follow from the old and the new image of a change alone, without state."""

from collections.abc import Iterator

from ikebana.codecs.change import Change
from ikebana.codecs.errors import DecodeError
from ikebana.processor.base.rows import KeyedUpdate


def images_of(change: Change, time: int) -> Iterator[KeyedUpdate]:
    """Yield the updates that follow from the images of a change alone.

    Raises: DecodeError, if an image that is needed is missing or lacks columns.
    """
    if missing := untold(change):
        raise DecodeError(*missing)
    key, after, before = change.key, change.after, change.before
    if before is not None and before == after:
        return  # nothing has changed in the columns that are read
    if before is not None:
        yield KeyedUpdate(key, before, time, -1)
    if after is not None:
        yield KeyedUpdate(key, after, time, 1)


def untold(change: Change) -> tuple[str, str] | None:
    """Name the missing part of a change's images, and the reason; None if they are complete."""
    if change.kind == "truncate":
        return "truncate", "without state there is nothing to tell what is gone"
    if change.replaces and change.before is None:
        reason = "it is missing, or lacks columns, and without state nothing else tells it"
        return "old image", reason
    if change.absent:
        return "new image", f"it lacks {len(change.absent)} columns"
    return None

"""Find the contents of outputs in their own topics, for an edit that retracts them."""

from collections.abc import Collection, Mapping
from functools import partial

from ikebana.errors import SourceError
from ikebana.processor.base.notices import Check, checked
from ikebana.processor.base.texts import counted
from ikebana.processor.base.transition import ReadBack
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.snapshots import Snapshots
from ikebana.processor.topics import replays
from ikebana.processor.topics.replays import Ends

_INSTEAD = (
    "The edit needs all that the output has had, and nothing else has it. Show the new collection "
    "in a new topic by another output, or leave this one as it was."
)


def look(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> Ends:
    """Find the offsets of all updates of outputs, from their newest snapshots on, if any.

    Nobody may be writing to the topics.  An error topic `errors` without its beginning is left
    out: its errors are not retracted, and retention deletes them like the earlier ones.

    Raises: SourceError, if the beginning of a topic is gone, or the topic is.
    """
    if not names:
        return {}
    admin, reader = client.admin(settings), RangeReader(settings)
    try:
        described = topics.describe(admin, names)
        offsets: dict[str, Mapping[int, tuple[int, int]]] = {}
        for name in names:
            if name not in described:
                raise SourceError(f'topic "{name}" is gone', hint=_INSTEAD)
            asked = {name: described[name].partitions}
            begins = topics.beginnings(admin, asked)[name]
            # What is committed lies before these, even if readers have to wait for it.
            ends = topics.high_watermarks(admin, asked)[name]
            snapshots = Snapshots(admin, reader, name, described[name].id)
            try:
                snapshot = snapshots.choose(None)
            except SourceError:
                if name != errors:
                    raise
                continue
            offsets |= replays.to_read(name, begins, ends, snapshot)
    except SourceError as error:
        raise SourceError(
            f"what an output has had cannot be taken back: {error.message}", hint=_INSTEAD
        ) from error
    finally:
        reader.close()
    return offsets


def begun(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> ReadBack:
    """The positions in outputs' own topics that the first batch of an edit logs."""
    return replays.nothing_read(look(settings, names, errors))


def checks(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> list[Check]:
    """Check for each output's topic that an edit can retract its contents."""
    return [
        checked(f'topic "{name}": what it has had', partial(_described, settings, name, errors))
        for name in names
    ]


def _described(settings: Mapping[str, str], name: str, errors: str) -> str:
    return words(look(settings, [name], errors))


def words(offsets: Ends) -> str:
    """Describe the offsets that are read of an output's topic."""
    if not offsets:
        return "left as it is, since its beginning is gone"
    count = replays.left(replays.nothing_read(offsets))
    where = "its own topic" if len(offsets) == 1 else "a snapshot of its own topic"
    return f"read from {where}, {counted(count, 'offset')}"

"""Look for what outputs have had in their own topics, for an edit that takes it back."""

from collections.abc import Collection, Mapping
from functools import partial

from ikebana.errors import SourceError
from ikebana.processor.base.check import Check, checked
from ikebana.processor.base.counting import counted
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.kafka.snapshots import Snapshots
from ikebana.processor.topics import own_topics
from ikebana.processor.topics.own_topics import Ends
from ikebana.processor.topics.source_offset import Own

_INSTEAD = (
    "The edit needs all that the output has had, and nothing else has it. Show the new collection "
    "in a new topic by another output, or leave this one as it was."
)


def look(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> Ends:
    """Find the offsets of all that outputs have written: from the newest snapshots on, if any.

    Nobody may be writing to the topics.  An error topic `errors` whose beginning is gone is left
    out: what it still has stays there, and goes as the rest has gone.

    Raises: SourceError, if the beginning of a topic is gone, or the topic is.
    """
    if not names:
        return {}
    admin, reader = client.admin(settings), Reader(settings)
    try:
        described = topics.describe(admin, names)
        found: dict[str, Mapping[int, tuple[int, int]]] = {}
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
            found |= own_topics.to_read(name, begins, ends, snapshot)
    except SourceError as error:
        raise SourceError(
            f"what an output has had cannot be taken back: {error.message}", hint=_INSTEAD
        ) from error
    finally:
        reader.close()
    return found


def begun(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> Own:
    """What the first batch of an edit logs of the topics of outputs."""
    return own_topics.begun(look(settings, names, errors))


def checks(settings: Mapping[str, str], names: Collection[str], errors: str = "") -> list[Check]:
    """Check for each output's topic that an edit can take back what it has had."""
    return [
        checked(f'topic "{name}": what it has had', partial(_told, settings, name, errors))
        for name in names
    ]


def _told(settings: Mapping[str, str], name: str, errors: str) -> str:
    return words(look(settings, [name], errors))


def words(found: Ends) -> str:
    """Say what is read of an output's topic."""
    if not found:
        return "left as it is, since its beginning is gone"
    count = own_topics.left(own_topics.begun(found))
    where = "its own topic" if len(found) == 1 else "a snapshot of its own topic"
    return f"read from {where}, {counted(count, 'offset')}"

"""The reader of one slice of a batch: messages of an input, or of a transaction topic."""

from collections.abc import Callable, Iterator

from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.decoding import Decoding
from ikebana.processor.topics.history import key_columns, rows_of
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Slice
from ikebana.processor.topics.source_dating import BoundaryReading, dating_of, watch_of
from ikebana.processor.topics.update_intake import UpdateIntake


def rows_in(source: Input, piece: Slice) -> Iterator[list[Message]]:
    """The rows of a slice of a history.

    Raises:
        SourceError: the file is gone, or has changed.
    """
    assert piece.file is not None, "a slice of a topic"
    # Few pipelines have files, and pyarrow takes a while to import.
    from ikebana.processor.topics import row_files

    key, bare = key_columns(source)
    return row_files.read(piece.file, piece.place.start, piece.end, key, bare=bare)


def reading_of(
    plan: Plan, piece: Slice, intake: Callable[[Input], Intake | UpdateIntake], shards: int
) -> Decoding | BoundaryReading:
    """Make the reader of a slice; `intake` gives the intake of an input.

    If several inputs read a topic, the first one counts its records, and the first one with
    transactions counts the changes of these.
    """
    place = piece.place
    where = place.topic, place.partition
    if place.topic in plan.transaction_topics:
        watch = watch_of(plan, place.topic, where, piece.transactions)
        return BoundaryReading(watch, where, place.base)
    source = plan.input(piece.input)
    if piece.file is not None:
        rows = rows_of(source)
        return Decoding(rows, intake(rows), place, shards)
    dating = dating_of(plan, source, where, piece.transactions, piece.furthest)
    # A snapshot has a topic of its own, and the same readers.
    topic = place.topic if place.topic in source.topics else source.topics[0]
    counted = plan.readers(topic)[0] != source
    return Decoding(source, intake(source), place, shards, dating, counted=counted)

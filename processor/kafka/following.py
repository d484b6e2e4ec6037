"""Follow an output's topic in any format: closed times as they come, from a place that is text.

A place says where reading goes on, and may be before the last updates that were read.  So a
reader also names the frontier that it had reached, and gets no earlier time: each update comes
once.

Topics that `ikebana compact` compacts are read from a snapshot on: all updates of the snapshot
have its time, and the collection can be read as of that time and later ones.

In a CDCv2 topic, facts of a time may lie before facts of earlier times.  So reading can go on only
at a place where all facts before it were yielded.  A pipeline publishes the progress of a batch
after its updates, so there is such a place after each batch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from ikebana.codecs.diff import ProgressRecord, Times
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FACT_FORMATS, OUTPUT_FORMATS, fact_codec
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import Cdcv2Reader, EarlierUpdates, Published
from ikebana.processor.base.rows import KeyedUpdate, maker
from ikebana.processor.base.verify import batch_offence
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.diff_topic import DiffTopic, PassedError
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.topics import ReadTopics

# If a topic is compacted before its reader has yielded anything, the reader begins again at a
# newer snapshot, at most so often.
_BEGINNINGS = 5


class AnotherTopicError(SourceError):
    """The topic of a place was deleted, and there is another one with its name."""


class ClosedTimes(NamedTuple):
    """All updates with `lower <= time < upper`, and the place after them.

    If progress was deleted, the first one has earlier times, too.  `lower` of the first one is
    the earliest time as of which the collection can be read.
    """

    lower: int
    upper: int
    updates: list[KeyedUpdate]
    place: str
    times: Times | None = None
    """The kind of the times, if the topic has it."""
    columns: Mapping[str, str] = MappingProxyType({})
    """The SQL types of the columns of values, as far as the topic has them."""


class Piece(NamedTuple):
    """Updates of times that a later `ClosedTimes` closes, split so that they fit into memory.

    If it `restarts`, all pieces since the last `ClosedTimes` are void.
    """

    updates: list[KeyedUpdate]
    restarts: bool = False


class Resume(NamedTuple):
    """Where a reader goes on: at a place or the beginning, and with times from `upper` on."""

    place: str | None
    upper: int


class Since(NamedTuple):
    """The time from which a collection is to be read.

    `at` computes it from a topic and its present frontier.  If that time cannot be read any more,
    it is an error, or, unless `strict`, the earliest readable time is taken.
    """

    at: Callable[[str, int], int]
    strict: bool = True


class Following(Protocol):
    """A reader of one topic."""

    topic: str

    def closed(self) -> Iterator[ClosedTimes]:
        """Yield the closed times that were not yielded yet; call it again for later ones.

        Raises:
            SourceError: records are missing, or are not of this format, or the topic was deleted.
        """
        ...

    def pieces(self) -> Iterator[Piece | ClosedTimes]:
        """Yield the same in pieces: a history is not gathered in memory.

        Raises:
            SourceError: as `closed`.
        """
        ...

    def horizon(self) -> int | None:
        """Read the present frontier of the topic; None if it is not known."""
        ...

    def behind(self) -> int:
        """Count the offsets of the topic after the last yielded times."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def follow(
    settings: Mapping[str, str],
    topic: str,
    form: str,
    resume: Resume | None = None,
    since: Since | None = None,
) -> Following:
    """Open a topic where another reader has stopped, at a snapshot, or at its beginning.

    Without `since`, reading begins at the newest snapshot.

    Raises:
        SourceError: the topic does not exist, is no output, lacks records that are needed, or
            is not the topic of the place.
    """
    if form in FACT_FORMATS:
        return _Facts(settings, topic, form, resume)
    return _Batches(settings, topic, form, resume, since)


def can_go_on(form: str) -> bool:
    """Return whether a reader of this format can go on where another one has stopped.

    In other formats the old value of a key is in an earlier message, which may be compacted away.
    """
    return not OUTPUT_FORMATS[form].needs_earlier


class _BatchPlace(msgspec.Struct, frozen=True):
    topic_id: str
    last: ProgressRecord
    progress_at: int


class _Batches:
    """Batches that a progress topic closes."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        form: str,
        resume: Resume | None,
        since: Since | None,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._form = form
        self._since = since
        self._goes_on = resume is not None
        self._counted = OUTPUT_FORMATS[form].as_updates
        self._reading = DiffTopic(settings, topic, form)
        self._last: ProgressRecord | None = None
        self._from: int | None = None
        try:
            self._reading.require_output()
            if resume is None:
                self._begin()
                return
            self._from = resume.upper
            if resume.place is None:
                # A snapshot must not repeat updates from before this frontier.
                self._reading.begin(resume.upper - 1)
            else:
                self._resume(resume.place)
        except BaseException:
            self._reading.close()
            raise

    def _begin(self) -> None:
        if self._since is None:
            self._reading.begin()
        elif (last := self._reading.last_closed()) is not None:
            at = self._since.at(self.topic, last.upper)
            self._reading.begin(at, strict=self._since.strict)
        else:
            self._reading.require_beginning()

    def _resume(self, text: str) -> None:
        place = msgspec.json.decode(text, type=_BatchPlace)
        if place.topic_id != self._reading.topic_id:
            raise _another(self.topic)
        self._last = place.last
        self._reading.resume(place.last, place.progress_at)

    def closed(self) -> Iterator[ClosedTimes]:
        return _gathered(self.pieces())

    def pieces(self) -> Iterator[Piece | ClosedTimes]:
        for left in reversed(range(_BEGINNINGS)):
            try:
                yield from self._pieces()
                return
            except PassedError:
                if self._goes_on or self._last is not None or not left:
                    raise
                self._reading.close()
                self._reading = DiffTopic(self._settings, self.topic, self._form)
                self._begin()
                yield Piece([], restarts=True)

    def _pieces(self) -> Iterator[Piece | ClosedTimes]:
        with closing(self._reading.closed()) as parts:
            for part in parts:
                updates = list(map(_keyed, map(_without_place, part.updates)))
                if isinstance(part, EarlierUpdates):
                    yield Piece(_not_before(updates, self._from))
                    continue
                progress = part.progress
                offence = batch_offence(self.topic, self._last, part, counted=self._counted)
                if offence is not None:
                    raise SourceError(
                        f"cannot go on: {offence.sentence}",
                        hint=f"ikebana check {self.topic} verifies the topic.",
                    )
                self._last = progress
                place = _BatchPlace(self._reading.topic_id, progress, self._reading.progress_at)
                closed = ClosedTimes(
                    progress.lower,
                    progress.upper,
                    updates,
                    msgspec.json.encode(place).decode(),
                    progress.times,
                    progress.columns,
                )
                if (later := _later(closed, self._from)) is not None:
                    yield later

    def horizon(self) -> int | None:
        last = self._reading.last_closed()
        return None if last is None else last.upper

    def behind(self) -> int:
        return self._reading.behind()

    def close(self) -> None:
        self._reading.close()


class FactPlace(msgspec.Struct, frozen=True):
    """A place in a topic: all times before `upper` were read, with all facts before `offsets`."""

    topic_id: str
    upper: int
    offsets: dict[int, int]


class Cdcv2Topic:
    """One pass over a CDCv2 topic.

    Raises:
        SourceError: the topic does not exist, or was deleted, or records that are needed were.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        form: str,
        place: FactPlace | None = None,
    ) -> None:
        self.topic = topic
        self._form = form
        self._decode = fact_codec(form).decode
        self._topics = ReadTopics(client.admin(settings), topic)
        self.topic_id = self._topics.existing_id()
        if place is None:
            place = FactPlace(self.topic_id, 0, {})
        self.place = place
        """The last place from which reading can go on without missing a fact."""
        self._facts = Cdcv2Reader(place.upper)
        self._positions = dict(place.offsets)
        for partition, begin in sorted(self._topics.offsets(topics.beginnings, topic).items()):
            if begin > self._positions.get(partition, 0):
                raise SourceError(
                    f'cannot accumulate "{topic}": the beginning of {topic}[{partition}] was '
                    "deleted",
                    hint="CDCv2 topics need retention.ms=-1 and retention.bytes=-1.",
                )
        self._reader = RangeReader(settings)

    def published(self) -> Iterator[list[Published]]:
        """Yield complete times in order, up to the time that progress covers now.

        `place` is then after all yielded times, or before some of them.

        Raises:
            SourceError: the topic has messages in another format, or was deleted.
            ContradictionError: two of its facts contradict each other.
        """
        ends = self._topics.offsets(topics.ends, self.topic)
        ranges = [
            Range(self.topic, partition, self._positions.get(partition, 0), end)
            for partition, end in ends.items()
        ]
        for at, messages in self._reader.read(ranges):
            for message in messages:
                try:
                    self._facts.feed(self._decode(message.value()))
                except DecodeError as error:
                    raise SourceError(
                        f"cannot read {self.topic}[{at.partition}]@{message.offset()}: "
                        f"{error.reason}",
                        hint=f"Is it a topic of {self._form}? --format says what to expect.",
                    ) from None
            self._positions[at.partition] = messages[-1].offset() + 1
            if complete := self._facts.take():
                if self._facts.is_level:
                    self.place = FactPlace(self.topic_id, self._facts.upper, dict(self._positions))
                yield complete
        self._positions |= {p: max(end, self._positions.get(p, 0)) for p, end in ends.items()}

    def behind(self) -> int:
        """Count the offsets that were not read yet."""
        ends = self._topics.offsets(topics.ends, self.topic)
        return sum(max(0, end - self._positions.get(p, 0)) for p, end in ends.items())

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


class _Facts(Cdcv2Topic):
    """Times that the statements of a CDCv2 topic complete."""

    def __init__(
        self, settings: Mapping[str, str], topic: str, form: str, resume: Resume | None
    ) -> None:
        place = None
        if resume is not None and resume.place is not None:
            place = msgspec.json.decode(resume.place, type=FactPlace)
        super().__init__(settings, topic, form, place)
        if place is not None and place.topic_id != self.topic_id:
            self.close()
            raise _another(topic)
        self._from = None if resume is None else resume.upper
        self._upper = 0 if place is None else place.upper

    def closed(self) -> Iterator[ClosedTimes]:
        for times in self.published():
            updates = [update for each in times for update in each.updates]
            lower, self._upper = self._upper, times[-1].upper
            place = msgspec.json.encode(self.place).decode()
            closed = ClosedTimes(lower, self._upper, updates, place)
            if (later := _later(closed, self._from)) is not None:
                yield later

    def pieces(self) -> Iterator[Piece | ClosedTimes]:
        return self.closed()

    def horizon(self) -> int | None:
        return None


def published(settings: Mapping[str, str], topic: str, form: str) -> Iterator[Published]:
    """Yield the complete times of a topic once, up to the time that progress covers now.

    Raises:
        SourceError: the topic does not exist, or records at its beginning were deleted, or it
            has messages in another format.
        ContradictionError: two of its facts contradict each other.
    """
    reading = Cdcv2Topic(settings, topic, form)
    try:
        for times in reading.published():
            yield from times
    finally:
        reading.close()


_without_place = itemgetter(0, 1, 2, 3)
_keyed = maker(KeyedUpdate)


def _another(topic: str) -> AnotherTopicError:
    return AnotherTopicError(
        f'cannot go on reading "{topic}": it was deleted and created again since',
        hint="Read it from its beginning: leave the token out, or give --rebuild; a sink begins "
        "again under another name.",
    )


def _later(closed: ClosedTimes, reached: int | None) -> ClosedTimes | None:
    """Drop the times before a frontier; None if there are no others."""
    if reached is None or closed.lower >= reached:
        return closed
    if closed.upper <= reached:
        return None
    return closed._replace(lower=reached, updates=_not_before(closed.updates, reached))


def _not_before(updates: list[KeyedUpdate], reached: int | None) -> list[KeyedUpdate]:
    if reached is None:
        return updates
    return [update for update in updates if update.time >= reached]


def _gathered(pieces: Iterator[Piece | ClosedTimes]) -> Iterator[ClosedTimes]:
    """Put the pieces of each closed batch together, in memory."""
    before: list[KeyedUpdate] = []
    for piece in pieces:
        if isinstance(piece, ClosedTimes):
            yield piece._replace(updates=before + piece.updates) if before else piece
            before = []
        elif piece.restarts:
            before = []
        else:
            before += piece.updates

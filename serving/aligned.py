"""Follow several topics at once: batches of closed times at a frontier that all of them share.

A batch has all updates of all topics with times in `[lower, upper)`, where `upper` is the least
frontier of the topics.  Only a topic with the least frontier is read, so no topic is held more
than one batch ahead of another.

A batch's `token` is the position after it.  A reader that stores the token in one transaction with
the effects of the batch, and resumes with it, applies each update exactly once.
"""

# Decision (readers of several topics begin together): A topic that begins at a snapshot looks
# empty before it, and is not.

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ikebana.codecs.diff import Times
from ikebana.codecs.formats import OUTPUT_FORMATS
from ikebana.errors import ConfigError
from ikebana.processor.base.diff_reader import kind_of, refuse_mixed
from ikebana.processor.base.processes import Closes, uncollected
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import suggestion
from ikebana.processor.kafka import following, reading_rights
from ikebana.processor.kafka.following import ClosedTimes, Following, Piece, Resume, Since
from ikebana.processor.linear.settled import TextOrTexts, texts

OpenTopic = Callable[[str, str, Resume | None], Following]
_ASK_EVERY_S = 0.1
Content = TypeVar("Content", covariant=True)


class TopicUpdate(NamedTuple):
    """The multiplicity of (key, value) in the collection of `topic` changes by `diff`."""

    topic: str
    key: bytes | None
    value: bytes
    time: int
    diff: int


class AlignedBatch(NamedTuple):
    """All updates with `lower <= time < upper`, in order of time; `token` resumes after them.

    The first batch also has earlier times if topics begin at different times, as a compacted topic
    begins at the time of a snapshot.  All collections can be read as of `lower`.
    """

    lower: int
    upper: int
    updates: list[TopicUpdate]
    token: str


class _Token(msgspec.Struct, frozen=True):
    upper: int
    # By topic, with the format.
    places: dict[str, tuple[str, str | None]]


class Keeper(Protocol[Content]):
    """Buffers updates of one topic beyond the common frontier."""

    def add(self, piece: Piece | ClosedTimes) -> None:
        """Buffer a piece, in the order in which `Following.pieces` yields them."""
        ...

    def take(self, upper: int) -> Content:
        """Remove and return all closed updates with times before `upper`."""
        ...

    def close(self) -> None:
        """Release the buffer."""
        ...


class Span(NamedTuple, Generic[Content]):
    """The updates of each topic in an aligned batch; see `AlignedBatch`."""

    lower: int
    upper: int
    updates: dict[str, Content]
    token: str
    times: Times | None


class _Ahead(Generic[Content]):
    """A topic, which may be read further than the common frontier."""

    def __init__(
        self, following: Following, form: str, resume: Resume | None, keeper: Keeper[Content]
    ) -> None:
        self.following = following
        self.form = form
        self.keeper = keeper
        self.upper: int | None = None if resume is None else resume.upper
        self.lower: int | None = self.upper
        self.times: Times | None = None
        # The place to resume at; it advances when the batch before it has been yielded.
        self._place = None if resume is None else resume.place
        self._places: list[tuple[int, str]] = []
        self._pieces: Iterator[Piece | ClosedTimes] | None = None

    def read(self) -> bool:
        """Read up to the end of one more batch; return whether there was one."""
        if self._pieces is None:
            self._pieces = self.following.pieces()
        for piece in self._pieces:
            self.keeper.add(piece)
            if isinstance(piece, ClosedTimes):
                if self.lower is None:
                    self.lower = piece.lower
                self.upper, self.times = piece.upper, piece.times or self.times
                self._places.append((piece.upper, piece.place))
                return True
        self._pieces = None
        return False

    def place(self, upper: int) -> str | None:
        """The place at which to resume for times from `upper` on."""
        while self._places and self._places[0][0] <= upper:
            self._place = self._places.pop(0)[1]
        return self._place

    def close(self) -> None:
        self.following.close()
        self.keeper.close()


class Aligning(Closes, Generic[Content]):
    """Yields spans at the common frontier of topics, and waits for more; a context manager.

    `formats` names the topics, `open_topic` opens one of them, and `keeper` makes the buffer of a
    topic's updates, which wait until all topics have reached their times.  `caught_up` is called
    whenever everything that is closed now was yielded, if it waits for more.
    """

    def __init__(
        self,
        open_topic: OpenTopic,
        formats: Mapping[str, str],
        keeper: Callable[[], Keeper[Content]],
        *,
        resume: str | None,
        until: int | None = None,
        wait: bool = True,
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._until = until
        self._wait = wait
        self._caught_up = caught_up
        self._stopping = threading.Event()
        self._topics: list[_Ahead[Content]] = []
        token = None if resume is None else _token(resume, formats)
        self._upper: int | None = None if token is None else token.upper
        try:
            for topic, form in formats.items():
                at = None
                if token is not None:
                    at = Resume(token.places[topic][1], token.upper)
                opened = open_topic(topic, form, at)
                self._topics.append(_Ahead(opened, form, at, keeper()))
        except BaseException:
            self.close()
            raise

    @property
    def upper(self) -> int | None:
        """The common frontier of the batches so far; None before the first."""
        return self._upper

    def stop(self) -> None:
        """End the iteration soon, from another thread or a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connections."""
        for each in self._topics:
            each.close()

    def behind(self) -> int:
        """Count the offsets of all topics that were not read yet."""
        return sum(each.following.behind() for each in self._topics)

    def spans(self) -> Iterator[Span[Content]]:
        """Yield each span once, in order.

        Raises:
            MixedTimesError: the times of the topics are of different kinds.
            SourceError: as `Following.closed`.
        """
        while not self._stopping.is_set():
            if self._until is not None and self._upper is not None and self._upper >= self._until:
                return
            waits = [each for each in self._topics if each.upper is None]
            least = waits[0] if waits else min(self._topics, key=lambda each: each.upper or 0)
            with uncollected():
                has_more = least.read()
            if not has_more:
                if not self._wait:
                    return
                self._caught_up()
                self._stopping.wait(_ASK_EVERY_S)
                continue
            begun = {e.following.topic: (e.times, e.upper) for e in self._topics if e.upper}
            refuse_mixed({topic: kind_of(*each) for topic, each in begun.items()})
            uppers = [each.upper for each in self._topics if each.upper is not None]
            if len(uppers) == len(self._topics) and min(uppers) > self._lower():
                with uncollected():
                    span = self._span(min(uppers))
                yield span

    def _lower(self) -> int:
        """The begin of the next batch: the frontier, or at first the latest begin of a topic."""
        if self._upper is not None:
            return self._upper
        return max(each.lower for each in self._topics if each.lower is not None)

    def _span(self, upper: int) -> Span[Content]:
        lower, self._upper = self._lower(), upper
        updates = {each.following.topic: each.keeper.take(upper) for each in self._topics}
        places = {each.following.topic: (each.form, each.place(upper)) for each in self._topics}
        token = msgspec.json.encode(_Token(upper, places)).decode()
        times = next((each.times for each in self._topics if each.times is not None), None)
        return Span(lower, upper, updates, token, times)


class InMemory:
    """Keeps updates as a list."""

    def __init__(self) -> None:
        self._pieces: list[KeyedUpdate] = []
        self._held: list[ClosedTimes] = []

    def add(self, piece: Piece | ClosedTimes) -> None:
        if isinstance(piece, ClosedTimes):
            self._held.append(piece._replace(updates=self._pieces + piece.updates))
            self._pieces = []
        else:
            self._pieces = piece.updates if piece.restarts else self._pieces + piece.updates

    def take(self, upper: int) -> list[KeyedUpdate]:
        updates: list[KeyedUpdate] = []
        held = []
        for batch in self._held:
            if batch.upper <= upper:
                updates += batch.updates
                continue
            updates += (update for update in batch.updates if update.time < upper)
            left = [update for update in batch.updates if update.time >= upper]
            held.append(batch._replace(updates=left))
        self._held = held
        return updates

    def close(self) -> None:
        pass


class Follower(Aligning[list[KeyedUpdate]]):
    """Yields aligned batches, and waits for more; use it as a context manager.

    An iteration raises MixedTimesError if the times of the topics are of different kinds.
    """

    def __iter__(self) -> Iterator[AlignedBatch]:
        for span in self.spans():
            with uncollected():
                updates = [
                    TopicUpdate(topic, *update)
                    for topic, of_topic in span.updates.items()
                    for update in of_topic
                ]
                updates.sort(key=_by_time)
            yield AlignedBatch(span.lower, span.upper, updates, span.token)


def follow(
    topics: TextOrTexts,
    *,
    bootstrap_servers: str = "localhost:9092",
    format: str | Mapping[str, str] = "diff",  # noqa: A002 - as in the pipeline file
    config: Mapping[str, str] | None = None,
    resume: str | None = None,
    since: int | None = None,
    until: int | None = None,
    wait: bool = True,
) -> Follower:
    """Follow outputs of pipelines from where a token says, or from a snapshot or the beginning.

    A topic that was compacted begins at its newest snapshot, or at the newest one that is not
    after `since`; topics without any begin at their beginning.  `since=0` reads all from there.

    `format` is that of all topics, or by topic.  `config` has settings of the Kafka client, and
    those of a schema registry, which outputs in Avro need, as `schema.registry.url`.  The
    iteration ends when the common frontier is at or beyond `until`, or, unless `wait`, when all
    that is closed now was given out; otherwise it waits for more.  Neither Spark nor Java is used.

    An example::

        with ikebana.follow("whereabouts", bootstrap_servers="localhost:9092", wait=False) as read:
            changes = [tuple(update)[1:] for batch in read for update in batch.updates]

    An update is (topic, key, value, time, diff): a new value comes with +1, the old one with -1.

    Raises:
        ConfigError: the topics, a format, or the token are not right.
        SourceError: a topic does not exist, is no output, or lacks records that are needed.
        AwayError: the brokers do not answer.
    """
    names = texts(topics, "topics")
    formats = _formats(names, format, resumes=resume is not None)
    settings = {**(config or {}), "bootstrap.servers": bootstrap_servers}
    reading_rights.reach(settings, formats)
    from_when = None if since is None else Since(lambda *_: since)
    open_topic = functools.partial(following.follow, settings, since=from_when)
    return Follower(open_topic, formats, InMemory, resume=resume, until=until, wait=wait)


def _formats(
    names: Sequence[str], asked: str | Mapping[str, str], *, resumes: bool
) -> dict[str, str]:
    if not names or len(set(names)) < len(names):
        raise ConfigError("cannot follow topics: name at least one, and each once")
    formats = {name: asked if isinstance(asked, str) else asked[name] for name in names}
    for name, form in formats.items():
        if form not in OUTPUT_FORMATS:
            raise ConfigError(
                f'cannot follow "{name}": a reader knows no format "{form}"'
                f"{suggestion(form, OUTPUT_FORMATS)}"
            )
        if resumes and not following.can_go_on(form):
            raise ConfigError(
                f'cannot resume "{name}": in the format {form} the old value of a key is in an '
                "earlier message, which may be gone",
                hint="Follow it from its beginning, or write the output in the format diff.",
            )
    return formats


def _token(text: str, formats: Mapping[str, str]) -> _Token:
    try:
        token = msgspec.json.decode(text, type=_Token)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"cannot resume: the token cannot be read: {error}") from error
    formats_of_token = {topic: form for topic, (form, _) in token.places.items()}
    if formats_of_token != dict(formats):
        listed = ", ".join(f"{topic} ({form})" for topic, form in formats_of_token.items())
        raise ConfigError(
            f"cannot resume: the token is of {listed}",
            hint="Follow the same topics, in the same formats, or start without a token.",
        )
    return token


def _by_time(update: TopicUpdate) -> int:
    return update.time

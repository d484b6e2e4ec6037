"""Topics in memory that a service follows, and a service with its web application."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ikebana.codecs.diff import Times
from ikebana.processor.base.listening import Address, Listening, Tls
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kafka.following import AnotherTopicError, ClosedTimes, Piece, Resume
from ikebana.processor.kafka.topics import NoTopicError
from ikebana.processor.watching.console import PlanView, no_plan
from ikebana.processor.watching.guard import AccessLimits
from ikebana.serving import http_server
from ikebana.serving.arrangement import Retention
from ikebana.serving.service import Service, ServiceOptions
from support.served_collections import Batch
from support.waiting import wait_until

KEEP_ALL = Retention(10**15, is_duration=False)


class _Place(msgspec.Struct):
    """A place in a topic that has an id, as a reader of brokers writes it."""

    topic_id: str
    at: int


class MemoryTopics:
    """Topics whose batches a test closes; followed as topics of brokers are."""

    def __init__(self) -> None:
        self._batches: dict[str, list[Batch]] = {}
        self._lock = threading.Lock()
        self.ids: dict[str, str] = {}
        self.times: dict[str, Times] = {}
        """The kinds of the times of topics that tell it."""
        self.failure: Exception | None = None
        self.missing: set[str] = set()
        """The topics that do not exist yet."""

    def close(
        self, topic: str, upper: int, *updates: tuple[bytes | None, bytes, int, int]
    ) -> None:
        """Close a batch of a topic."""
        with self._lock:
            batches = self._batches.setdefault(topic, [])
            lower = batches[-1].upper if batches else 0
            batches.append(Batch(lower, upper, [KeyedUpdate(*update) for update in updates]))

    def make_anew(self, topic: str, topic_id: str) -> None:
        """Delete a topic, and make another one of its name."""
        with self._lock:
            self._batches.pop(topic, None)
            self.ids[topic] = topic_id

    def follow(self, topic: str, _: str, resume: Resume | None) -> "_Followed":
        """Open a topic, as `following.follow` does."""
        if topic in self.missing:
            raise NoTopicError(f'cannot read topic "{topic}": it does not exist')
        place = None if resume is None else resume.place
        if not place:
            return _Followed(self, topic, 0)
        if topic not in self.ids:
            return _Followed(self, topic, int(place))
        found = msgspec.json.decode(place, type=_Place)
        if found.topic_id != self.ids[topic]:
            raise AnotherTopicError(f'"{topic}" was made anew')
        return _Followed(self, topic, found.at)

    def after(self, topic: str, place: int) -> Iterator[ClosedTimes]:
        """Yield the batches behind a place."""
        with self._lock:
            found = self._batches.get(topic, [])[place:]
        for number, batch in enumerate(found, place + 1):
            yield ClosedTimes(*batch, self._place(topic, number), self.times.get(topic))

    def _place(self, topic: str, number: int) -> str:
        if topic not in self.ids:
            return str(number)
        return msgspec.json.encode(_Place(self.ids[topic], number)).decode()

    def upper(self, topic: str) -> int | None:
        """The frontier of a topic."""
        with self._lock:
            found = self._batches.get(topic)
            return found[-1].upper if found else None


class _Followed:
    def __init__(self, topics: MemoryTopics, topic: str, place: int) -> None:
        self.topic = topic
        self._topics = topics
        self._place = place

    def closed(self) -> Iterator[ClosedTimes]:
        if self._topics.failure is not None:
            raise self._topics.failure
        for batch in self._topics.after(self.topic, self._place):
            self._place += 1
            yield batch

    def pieces(self) -> Iterator[Piece | ClosedTimes]:
        return self.closed()

    def horizon(self) -> int | None:
        return self._topics.upper(self.topic)

    def behind(self) -> int:
        return 0

    def close(self) -> None:
        pass


@contextlib.contextmanager
def serving(
    topics: MemoryTopics,
    folder: Path,
    *names: str,
    retention: Retention = KEEP_ALL,
    say: Callable[[str], None] = print,
    start: bool = True,
) -> Iterator[Service]:
    """Follow topics into a folder; without `start`, who is yielded it starts it."""
    wanted = ServiceOptions(dict.fromkeys(names, "diff"), folder, retention)
    service = Service(wanted, topics.follow, say)
    if start:
        service.start()
    try:
        yield service
    finally:
        service.close()


def caught_up(service: Service, topics: MemoryTopics, *names: str) -> None:
    """Wait until a service has all that is closed."""
    for name in names:
        wait_until(
            lambda: service.view(name).meta.upper == topics.upper(name),  # noqa: B023
            20,
            f"{name} is followed",
        )


@contextlib.contextmanager
def answering(
    service: Service,
    limits: AccessLimits = AccessLimits(),  # noqa: B008
    plan: Callable[[], PlanView] = no_plan,
    tls: Tls | None = None,
) -> Iterator[str]:
    """Answer requests to a service in a thread; gets the URL."""
    listening = Listening(Address("127.0.0.1", 0), tls)
    with http_server.answering(service, listening, limits, 60, plan) as front:
        yield front.url

"""What must hold of an output topic, judged from the topics alone.

It shares no code with ikebana on purpose: it knows the record formats and nothing of
how they came about.  Every prefix of closed times holds at most one value a key, once;
progress has no gap; counts and end offsets are right; what all updates come to is
the plain truth of the input.
"""

import functools
import json
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from support.waiting import wait_until

Positions = dict[tuple[str, int], int]
_time = attrgetter("time")
_ASK_AGAIN = {
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    # librdkafka's own: it knows no leader of a partition yet.
    KafkaError._NOENT,
}


class Progress(NamedTuple):
    """One progress record."""

    checkpoint: str
    batch: int
    lower: int
    upper: int
    updates: int
    ends: dict[int, int]


def offsets(servers: str, topics: Iterable[str], *, committed_only: bool) -> Positions:
    """The end of every partition of the topics that exist."""
    topics = list(topics)
    admin = _admin(servers)
    found: dict[tuple[str, int], int] = {}

    def answered() -> bool:
        try:
            found.update(_offsets(admin, topics, committed_only=committed_only))
        except KafkaException as error:
            # The leader that the client knows was another one a moment before.
            if error.args[0].code() not in _ASK_AGAIN:
                raise
            return False
        return True

    wait_until(answered, 30, "the ends of topics")
    return found


@functools.lru_cache(maxsize=2)
def _admin(servers: str) -> AdminClient:
    """One client for all questions: some tests ask ten times a second."""
    settings = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500}
    return AdminClient(settings)


def _offsets(admin: AdminClient, topics: Iterable[str], *, committed_only: bool) -> Positions:
    known = admin.list_topics(timeout=30).topics
    asked = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for topic in topics
        if topic in known
        for partition in known[topic].partitions
    }
    isolation = (
        IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    )
    if not asked:
        return {}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=30)
    return {(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}


def committed(
    servers: str, topic: str, begin: Mapping[int, int] = MappingProxyType({})
) -> list[Message]:
    """Every committed record, partition by partition, up to what is stable now.

    `begin` has the first offsets to read, by partition; 0 without.
    """
    found: dict[int, list[Message]] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, begin.get(each, 0)) for each in known])
        left, deadline = set(known), time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"could not read {topic}{sorted(left)}"
            for message in consumer.consume(10_000, 0.01):
                error = message.error()
                if error is None:
                    found.setdefault(message.partition(), []).append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return [message for partition in sorted(found) for message in found[partition]]


def settled(
    servers: str, topic: str, begin: Mapping[int, int] = MappingProxyType({})
) -> list[Message]:
    """Every committed record of a topic, once no transaction is open in it; see `committed`."""

    def closed() -> bool:
        return offsets(servers, [topic], committed_only=True) == offsets(
            servers, [topic], committed_only=False
        )

    wait_until(closed, 60, f"the end of all transactions in {topic}")
    return committed(servers, topic, begin)


def progress_of(servers: str, target: str) -> list[Progress]:
    """The progress of an output so far; nothing if its topic is not there yet."""
    topic = target + ".progress"
    if not offsets(servers, [topic], committed_only=True):
        return []
    found = []
    for message in committed(servers, topic):
        told = json.loads(message.value())
        ends = {int(partition): end for partition, end in told["ends"].items()}
        known = {name: told[name] for name in ("checkpoint", "batch", "lower", "upper")}
        found.append(Progress(**known, updates=told["count"], ends=ends))
    return found


def truth_of(servers: str, topic: str) -> dict[bytes, bytes]:
    """What an upsert topic says in the end: the last value of each key."""
    return Reader(servers).truth(topic)


class Update(NamedTuple):
    """One record of an output."""

    key: bytes | None
    value: bytes | None
    time: int
    diff: int
    partition: int
    offset: int


class Reader:
    """Reads topics, each record once: a long life is judged again and again."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._next: dict[str, dict[int, int]] = defaultdict(dict)
        self._updates: dict[str, list[Update]] = defaultdict(list)
        self._last: dict[str, dict[bytes, bytes | None]] = defaultdict(dict)

    def updates(self, topic: str) -> list[Update]:
        """All updates of an output so far."""
        self._updates[topic] += [
            Update(each.key(), each.value(), *time_and_diff(each), each.partition(), each.offset())
            for each in self._new(topic)
        ]
        return self._updates[topic]

    def truth(self, topic: str) -> dict[bytes, bytes]:
        """The last value of each key of an upsert topic."""
        last = self._last[topic]
        last.update((each.key(), each.value()) for each in self._new(topic))
        return {key: value for key, value in last.items() if value is not None}

    def _new(self, topic: str) -> list[Message]:
        messages = settled(self._servers, topic, self._next[topic])
        # What is read twice is a fault of the reader, and no duplicate in the topic.
        places = Counter((each.partition(), each.offset()) for each in messages)
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"{topic} was read twice at {twice[:5]}"
        self._next[topic].update((each.partition(), each.offset() + 1) for each in messages)
        return messages


def judge(
    servers: str,
    target: str,
    truth: Mapping[bytes, bytes],
    *,
    may_stand: bool = False,
    reader: Reader | None = None,
) -> dict[str, int]:
    """Count what is wrong with an output; nothing is wrong with an empty answer.

    Batches whose progress records were deleted are taken on trust, their updates are
    not.  With `may_stand` a batch may close no time of the output, as behind an exchange or in
    an edit.  A `reader` goes on where it has stopped.
    """
    records = (reader or Reader(servers)).updates(target)
    progress = progress_of(servers, target)
    bad: Counter[str] = Counter()
    for before, after in pairwise(progress):
        bad["gap in progress"] += after.batch != before.batch + 1 or after.lower != before.upper
        bad["ends go back"] += any(after.ends[p] < end for p, end in before.ends.items())
        bad["another checkpoint"] += after.checkpoint != before.checkpoint
    for one in progress:
        stands = may_stand and one.updates == 0
        bad["empty interval"] += one.lower > one.upper or (one.lower == one.upper and not stands)
    _placed(records, progress, bad)
    _accumulated(records, truth, bad)
    if bad := Counter({what: count for what, count in bad.items() if count}):
        _show(target, records, progress)
    return dict(bad)


def _show(target: str, records: list[Update], progress: list[Progress]) -> None:
    """Print what is there more than once with its batch, for whoever looks for the cause."""
    counts = Counter((each.key, each.value, each.time) for each in records)
    uppers = [one.upper for one in progress]
    for each in [each for each in records if counts[each.key, each.value, each.time] > 1][:20]:
        at = bisect_right(uppers, each.time)
        of = progress[at] if at < len(progress) else None
        print(f"{target}: more than once: {each} of {of}", flush=True)


def _placed(records: list[Update], progress: list[Progress], bad: Counter[str]) -> None:
    """Each update lies in its batch's interval of time, and in that of its offsets."""
    uppers = [one.upper for one in progress]
    first = progress[0].lower if progress else 0
    counts: Counter[int] = Counter()
    for _, _, when, _, partition, offset in records:
        at = bisect_right(uppers, when)
        if at == len(uppers):
            bad["beyond the frontier"] += 1
        elif when >= first:
            counts[at] += 1
            bad["after its batch's ends"] += offset >= progress[at].ends[partition]
            if at:
                bad["before its batch's ends"] += offset < progress[at - 1].ends[partition]
    bad["wrong count"] = sum(counts[at] != one.updates for at, one in enumerate(progress))


def _accumulated(records: list[Update], truth: Mapping[bytes, bytes], bad: Counter[str]) -> None:
    """Each key has at most one value at each time, and those of the truth in the end."""
    by_key: dict[bytes | None, list[Update]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(record)
    last: dict[bytes | None, bytes | None] = {}
    for key, updates in by_key.items():
        seen = Counter((update.time, update.value) for update in updates)
        bad["not consolidated"] += sum(count > 1 for count in seen.values())
        held: dict[bytes | None, int] = {}
        for _, changes in groupby(sorted(updates, key=_time), key=_time):
            for change in changes:
                count = held.get(change.value, 0) + change.diff
                if count:
                    held[change.value] = count
                else:
                    held.pop(change.value, None)
            bad["prefix"] += len(held) > 1 or any(count != 1 for count in held.values())
        last.update((key, value) for value in held)
    bad["accumulated differs"] = len(set(last.items()) ^ set(truth.items()))


def time_and_diff(record: Message) -> tuple[int, int]:
    headers = dict(record.headers() or ())
    return int(headers["time"]), int(headers["diff"])

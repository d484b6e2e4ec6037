"""Two topics between whose accounts amounts move, and what is in them at each time."""

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

from confluent_kafka import KafkaException, Message, Producer

from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.kafka import client, topics
from support.output_judge import settled, time_and_diff
from support.pipeline_processes import insist
from support.sending import Sending

TOPICS = ("here", "there")
_EACH = 1_000
_KEYS = 60
_MOVES = 10
_PARTITIONS = 2
_TRANSACTION_S = 30
Account = tuple[str, int]
Amounts = dict[Account, int]


class Bank(Sending):
    """Closes times in both topics until it is stopped, some of them with moves."""

    def __init__(self, servers: str, seed: int) -> None:
        super().__init__()
        settings = {"bootstrap.servers": servers}
        self._admin = client.admin(settings)
        for topic in TOPICS:
            topics.create(self._admin, topic, _PARTITIONS, 1, {})
            topics.create(self._admin, topic + ".progress", 1, 1, {})
        self._servers = servers
        self._name = f"bank-{seed}"
        self._producer = self._fresh()
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._batches = 0
        self._upper = 0
        # When something has changed, and what was in the accounts from then on.
        self._changes: list[int] = []
        self._states: list[Amounts] = []
        opened = {(topic, n): _EACH for topic in TOPICS for n in range(_KEYS)}
        self._close(opened, 0)

    @property
    def upper(self) -> int:
        """All times before this one are closed."""
        with self._lock:
            return self._upper

    def at(self, time: int) -> Amounts:
        """What is in the accounts at a time."""
        with self._lock:
            return self._states[bisect_right(self._changes, time) - 1]

    def _send(self) -> None:
        while not self._end.wait(0.1):
            state = dict(self._states[-1])
            for _ in range(_MOVES):
                one, other = self._random.sample(list(state), 2)
                amount = self._random.randrange(1, 100)
                state[one] -= amount
                state[other] += amount
            self._close(state, self._upper + self._random.randrange(3))

    def _close(self, state: Amounts, time: int) -> None:
        before = self._states[-1] if self._states else {}
        changed = sorted(a for a in state if state[a] != before.get(a))
        updates = [(a, before[a], -1) for a in changed if a in before]
        updates += [(a, state[a], 1) for a in changed]
        with self._lock:
            # A reader may see them as soon as they are closed.
            self._changes.append(time)
            self._states.append(state)
        self._insisted(
            lambda: self._updates(updates, time),
            lambda: self._has(TOPICS, lambda m: time_and_diff(m)[0] == time),
        )
        counts = Counter(topic for (topic, _), _, _ in updates)
        told = [topic + ".progress" for topic in TOPICS]
        self._insisted(
            lambda: self._progress(counts, time + 1),
            lambda: self._has(told, lambda m: m.key() == b"%d" % self._batches),
        )
        with self._lock:
            self._upper = time + 1
        self._batches += 1

    def _updates(self, updates: list[tuple[Account, int, int]], time: int) -> None:
        for (topic, number), amount, by in updates:
            self._producer.produce(
                topic,
                b'{"amount":%d}' % amount,
                b"%d" % number,
                number % _PARTITIONS,
                headers=diff.headers(time, by),
            )

    def _progress(self, counts: Counter[str], upper: int) -> None:
        ends = topics.high_watermarks(self._admin, dict.fromkeys(TOPICS, _PARTITIONS))
        for topic in TOPICS:
            told = (self._batches, self._upper, upper, counts[topic])
            record = ProgressRecord("c", "p", topic, *told, ends[topic], "upserts")
            self._producer.produce(topic + ".progress", record.encode(), record.key())

    def _insisted(self, send: Callable[[], None], is_there: Callable[[], bool]) -> None:
        """Send in a transaction, again and again until it is committed."""
        while True:
            self._producer.begin_transaction()
            try:
                send()
                insist(self._producer.commit_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort() and not error.args[0].fatal():
                    raise
                # A broker that was killed meanwhile may have committed it.
                self._producer = self._fresh()
                if is_there():
                    return
            else:
                return

    def _fresh(self) -> Producer:
        """A producer, before which no transaction is left open."""
        settings = {"bootstrap.servers": self._servers}
        return client.transactional_producer(settings, self._name, _TRANSACTION_S)

    def _has(self, topics: Iterable[str], what: Callable[[Message], bool]) -> bool:
        return any(map(what, (m for topic in topics for m in settled(self._servers, topic))))

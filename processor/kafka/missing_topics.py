"""Wait for input topics that do not exist yet, and suggest topics with similar names.

A topic that a checkpoint has begun to read is not waited for: if it is gone, records are lost.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ikebana.processor.base import texts
from ikebana.processor.base.notices import Notice
from ikebana.processor.checkpoint.inputs import read_whole
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.client import patiently
from ikebana.processor.planning.plan import Plan

# Topics are looked for this often; the missing ones are reported at pauses that double.
_LOOK_EVERY_S = 1.0
_SAY_AFTER_S = 10.0
_SAY_EVERY_S = 300.0
# How often the wait checks whether the run is to stop.
_SLICE_S = 0.1


class MissingTopic(NamedTuple):
    """A topic of an input that does not exist, and an existing topic with a similar name."""

    input: str
    topic: str
    near: str | None

    def words(self) -> str:
        """Name it, and the topic that may be meant.

        >>> MissingTopic("people", "custmers", "customers").words()
        'topic "custmers" of input people; did you mean "customers"?'
        """
        meant = f'; did you mean "{self.near}"?' if self.near else ""
        return f'topic "{self.topic}" of input {self.input}{meant}'


def near(admin: AdminClient, topic: str) -> str | None:
    """The existing topic with a name similar to this one; None if the brokers list none."""

    def ask() -> Collection[str]:
        listed: Mapping[str, object] = admin.list_topics(timeout=topics.REQUEST_S).topics
        return listed.keys()

    return texts.did_you_mean(topic, patiently(ask, "the brokers"))


def missing(plan: Plan, admin: AdminClient) -> dict[str, str]:
    """The missing topics, each with its input; empty if the brokers refuse to describe them."""
    beside = read_whole(plan)
    readers: dict[str, str] = {}
    for source in plan.inputs:
        for topic in (*source.topics, *filter(None, [source.transaction_topic])):
            for name in (topic, *beside.get(topic, ())):
                readers.setdefault(name, source.name)
    try:
        there = topics.describe(admin, readers)
    except KafkaException:
        return {}  # what comes next asks the same, and says what is wrong
    return {name: reader for name, reader in readers.items() if name not in there}


def waited_for(
    plan: Plan,
    settings: Mapping[str, str],
    read_before: Callable[[], Collection[str]],
    tell: Callable[[Sequence[Notice]], None],
    say: Callable[[str], None],
    stopped: Callable[[], bool],
) -> bool:
    """Wait for all missing topics; False if `stopped`.

    The wait ends if one of them is among the topics that the checkpoint has read before
    (`read_before`).  `tell` gets a notice for each missing topic, and `say` the same in words,
    now and then.

    Raises:
        AwayError: the brokers do not answer.
    """
    client.reach(settings)
    admin = client.admin(settings)
    pause_s, due = _SAY_AFTER_S, 0.0
    said: dict[str, str] = {}
    while absent := missing(plan, admin):
        now = time.monotonic()
        if absent != said and not absent.keys().isdisjoint(read_before()):
            break
        if absent != said or now >= due:
            # Which topics there are is asked no more often than something is said.
            lacking = [
                MissingTopic(reader, name, near(admin, name)) for name, reader in absent.items()
            ]
            tell([_notice(each) for each in lacking])
            say(f"waiting for {' and '.join(each.words() for each in lacking)}")
            said, due = absent, now + pause_s
            pause_s = min(2 * pause_s, _SAY_EVERY_S)
        until = now + _LOOK_EVERY_S
        while time.monotonic() < until:
            if stopped():
                return False
            time.sleep(_SLICE_S)
    tell([])
    return True


def _notice(lacking: MissingTopic) -> Notice:
    remedy = "" if lacking.near else "; it is read as soon as it is there"
    words = f"waiting for {lacking.words()}{remedy}"
    return Notice("topic", lacking.input, lacking.topic, words)

"""How clients of the brokers are made, and what is waited for when brokers are away.

Settings of the user's come first and ours last, so that what exactly-once stands on
cannot be undone by a setting.  A broker that is away is waited for up to a deadline:
librdkafka reconnects by itself, and what is left to us is to ask again.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient

from ikebana.errors import AccessError, AwayError, ConfigError, IkebanaError
from ikebana.processor.kafka.acl import grant

Result = TypeVar("Result")

# How long a broker may be away before the pipeline stops with an error.
PATIENCE_S = 90.0
_REQUEST_S = 10.0
# A person waits for the first answer, and a mistake is likelier than an outage.
_FIRST_PATIENCE_S = 10.0

# The consumers' group, which is named and never joined: nothing is committed to it.
GROUP = "ikebana"
# What all transactional ids begin with; the checkpoint's id follows.
TRANSACTIONS = "ikebana-"

_QUIET = {"log_level": "0"}
# Without these a client that lost its broker waits up to 10 s before it tries again.
_RECONNECT = {"reconnect.backoff.ms": "20", "reconnect.backoff.max.ms": "500"}
# Errors that mean: ask again later.
AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
# What a client says that asks the leaders that it remembers, of before a broker came back.
_STALE = {
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


# As librdkafka's errors are written where only their text comes through.
_AWAY_IN_TEXT = re.compile(
    r"KafkaError\{code=(" + "|".join(KafkaError(code).name() for code in AWAY) + r"),[^\n]*"
)


def away(error: BaseException) -> AwayError | None:
    """What an error of Kafka's says, if it may be well again by itself."""
    if not isinstance(error, KafkaException):
        return None
    cause = error.args[0]
    if cause.fatal() or not (cause.code() in AWAY or cause.retriable()):
        return None
    return AwayError(f"the brokers did not answer: {cause.str()}")


def away_in(text: str) -> str | None:
    """The same of a text that has such an error in it."""
    found = _AWAY_IN_TEXT.search(text)
    return found[0] if found else None


def admin(settings: Mapping[str, str]) -> AdminClient:
    """A client for questions about topics."""
    return AdminClient({**_QUIET, **_RECONNECT, **settings})


def reach(settings: Mapping[str, str]) -> None:
    """Connect once, so that a mistake in the settings is told now and as one.

    Raises:
        ConfigError: librdkafka knows no such setting or value.
        AwayError: the brokers did not answer in ten seconds.
    """
    try:
        asking = admin(settings)
    except KafkaException as error:
        raise ConfigError(f"cannot make a Kafka client: {error.args[0].str()}") from error
    patiently(
        lambda: asking.list_topics(timeout=_REQUEST_S / 2),
        f"the brokers at {settings['bootstrap.servers']}",
        _FIRST_PATIENCE_S,
    )


def consumer(settings: Mapping[str, str]) -> Consumer:
    """A client that reads committed records from assigned offsets, and only those."""
    return Consumer(consumer_settings(settings))


def consumer_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The user's settings of a consumer, and those that cannot be undone."""
    return {
        **_QUIET,
        **_RECONNECT,
        "fetch.wait.max.ms": "5",
        # What is prefetched beyond a range is thrown away: hold little.
        "queued.min.messages": "10000",
        "queued.max.messages.kbytes": "16384",
        # By default a partition whose queue was full is not fetched from for a second.
        "fetch.queue.backoff.ms": "5",
        "message.max.bytes": "104857600",
        **settings,
        "group.id": GROUP,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
        # A range that is gone is an error, not a reason to read another one.
        "auto.offset.reset": "error",
    }


def transactional_producer(
    settings: Mapping[str, str], transactional_id: str, timeout_s: float
) -> Producer:
    """A producer that has fenced every earlier one of this transactional id.

    Whatever they left open is aborted.  The caller must look at what they committed
    *after* this, and before it begins a transaction of its own.

    Raises:
        AccessError: the brokers do not let us have transactions of this name.
        ConfigError: they do not let transactions last as long.
        AwayError: they did not answer.
    """
    made = Producer(producer_settings(settings, transactional_id, timeout_s))
    # Connecting first keeps init_transactions from its half-second of waiting.
    patiently(lambda: made.list_topics(timeout=_REQUEST_S), "the brokers")
    try:
        patiently(lambda: made.init_transactions(_REQUEST_S), f"transaction {transactional_id}")
    except KafkaException as error:
        if (named := _refused(error, settings, timeout_s)) is None:
            raise
        raise named from error
    return made


def producer_settings(
    settings: Mapping[str, str], transactional_id: str, timeout_s: float
) -> dict[str, str]:
    """The user's settings of a producer, and those that cannot be undone."""
    return {
        **_QUIET,
        **_RECONNECT,
        "linger.ms": "5",
        "compression.type": "lz4",
        "message.max.bytes": "104857600",
        "queue.buffering.max.messages": "200000",
        "queue.buffering.max.kbytes": "131072",
        **settings,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": str(int(timeout_s * 1000)),
        "partitioner": "murmur2_random",
    }


def _refused(
    error: KafkaException, settings: Mapping[str, str], timeout_s: float
) -> IkebanaError | None:
    """Why there are no transactions for us, if it has a name."""
    code = error.args[0].code()
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        prefixed = ("--transactional-id", TRANSACTIONS, "--resource-pattern-type", "prefixed")
        return AccessError(
            f'transactional ids "{TRANSACTIONS}…" may not be written',
            hint=grant(settings, {AclOperation.WRITE}, *prefixed),
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"run.max_batch is {timeout_s:.0f} s, brokers do not let transactions last so long",
            hint="Lower run.max_batch, or raise transaction.max.timeout.ms on the brokers.",
        )
    return None


def enqueue(producer: Producer, topic: str, **record: Any) -> None:
    """Produce one record, waiting while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, **record)
            return
        except BufferError:
            producer.poll(0.1)


def with_leaders(
    ask: Callable[[], Result], asked: AdminClient | Consumer, names: Iterable[str]
) -> Result:
    """Ask for offsets of topics; if it fails for want of the right leader, look for that.

    The error is then one to ask again after.  A client that is not told to look asks
    the leaders that it knew for minutes.
    """
    try:
        return ask()
    except KafkaException as error:
        if error.args[0].code() not in _STALE:
            raise
        known = asked.list_topics(timeout=_REQUEST_S).topics
        if not all(name in known for name in names):
            raise
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from error


def patiently(ask: Callable[[], Result], what: str, patience_s: float = PATIENCE_S) -> Result:
    """Ask until there is an answer; other errors than a broker that is away are raised.

    Raises:
        AwayError: there was no answer in `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    pause_s = 0.05
    while True:
        try:
            return ask()
        except KafkaException as error:
            cause = error.args[0]
            away = cause.code() in AWAY or cause.retriable()
            if not away or cause.fatal():
                raise
            if time.monotonic() > deadline:
                raise AwayError(
                    f"could not reach {what} for {patience_s:.0f} s: {cause.str()}",
                    hint="Check kafka.bootstrap.servers and that the brokers are up.",
                ) from error
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 2)

"""Make clients of the brokers, and wait for brokers that are away.

Our settings override the user's, so that no setting can undo exactly-once.  If a broker is away,
a request is repeated up to a deadline, while librdkafka reconnects by itself.

Brokers that lack a rule for a client refuse it; the messages name the right, and the command that
grants it.
"""

# Decision (full queues fetch again soon): librdkafka's default pause of a second dominated
# batches as long as there was a backlog.

import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient

from ikebana.errors import AccessError, AwayError, ConfigError, IkebanaError

Result = TypeVar("Result")

# How long a broker may be away before the pipeline stops with an error.
PATIENCE_S = 90.0
REQUEST_S = 10.0
# Shorter for the first answer: a person waits for it, and a mistake is likelier than an outage.
_FIRST_PATIENCE_S = 10.0
_FIRST_REQUEST_S = 1.0

# The consumers' group, which is named and never joined: nothing is committed to it.
GROUP = "ikebana"
# The prefix of all transactional ids, before the checkpoint's id.
TRANSACTIONS = "ikebana-"

# What librdkafka adds to a reason.
_AFTER = re.compile(r" \(after \d+ms in state \w+.*\)$")

_OF_TLS = re.compile(r"SSL routines|SSL alert")

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
    # While replicas come and go.
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.LISTENER_NOT_FOUND,
    KafkaError.NOT_CONTROLLER,
    KafkaError.KAFKA_STORAGE_ERROR,
    # librdkafka forgets a broker that metadata do not name for a while, and what it was asked.
    KafkaError._DESTROY_BROKER,
}
# Errors of a client that asks a former leader, because it remembers the time before an outage.
_STALE = {
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


# The same errors as text, where only the text of librdkafka's errors is passed on.
_AWAY_IN_TEXT = re.compile(
    r"KafkaError\{code=(" + "|".join(KafkaError(code).name() for code in AWAY) + r"),[^\n]*"
)


def may_pass(error: KafkaError) -> bool:
    """Whether an error may pass by itself, since brokers are away or busy."""
    return bool(error.code() in AWAY or error.retriable()) and not error.fatal()


def away_error(error: BaseException) -> AwayError | None:
    """Make an AwayError of an error of Kafka that may pass by itself; None for others."""
    if not isinstance(error, KafkaException) or not may_pass(error.args[0]):
        return None
    return AwayError(f"the brokers did not answer: {error.args[0].str()}")


def away_name_in(text: str) -> str | None:
    """Find the name of such an error in a text; None if there is none."""
    match = _AWAY_IN_TEXT.search(text)
    return match[0] if match else None


def admin(settings: Mapping[str, Any]) -> AdminClient:
    """Make a client for questions about topics."""
    return AdminClient({**_QUIET, **_RECONNECT, **of_brokers(settings)})


# As clients of Confluent have the settings of a schema registry among those of Kafka.
_OF_REGISTRY = "schema.registry."


def of_brokers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those of a schema registry, which a reader of topics may have."""
    return {name: v for name, v in settings.items() if not name.startswith(_OF_REGISTRY)}


def of_registry(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a schema registry among those of a reader of topics.

    >>> of_registry(with_registry({"client.id": "a"}, {"url": "http://localhost:8081"}))
    {'url': 'http://localhost:8081'}
    """
    length = len(_OF_REGISTRY)
    return {name[length:]: v for name, v in settings.items() if name.startswith(_OF_REGISTRY)}


def with_registry(settings: Mapping[str, str], registry: Mapping[str, str]) -> dict[str, str]:
    """The settings of a reader of topics, with those of a schema registry."""
    return {**settings, **{_OF_REGISTRY + name: value for name, value in registry.items()}}


def reach(settings: Mapping[str, str]) -> None:
    """Connect once, so that a mistake in the settings is reported at once and as such.

    Raises:
        ConfigError: librdkafka knows no such setting or value, or no brokers are named.
        AccessError: the brokers refuse the user, or TLS cannot be agreed on with them.
        AwayError: the brokers did not answer in ten seconds.
    """
    errors: list[KafkaError] = []
    servers = settings["bootstrap.servers"]
    if not servers.strip():
        raise ConfigError("no brokers are named", hint="Give --bootstrap-servers HOST:PORT.")
    try:
        asking = admin({**settings, "error_cb": errors.append})
    except KafkaException as error:
        raise ConfigError(f"cannot make a Kafka client: {error.args[0].str()}") from error
    # Brokers that refuse the user say so before the first request, a short one, is over.
    waits_s = chain([_FIRST_REQUEST_S], repeat(REQUEST_S / 2))

    def ask() -> None:
        try:
            asking.list_topics(timeout=next(waits_s))
        except KafkaException:
            asking.poll(0)
            refusal = _why(settings, errors)
            # Another one of the brokers may still answer, unless all connections have ended.
            all_down = any(each.code() == KafkaError._ALL_BROKERS_DOWN for each in errors)
            if all_down and isinstance(refusal, AccessError):
                raise refusal from None
            raise

    try:
        patiently(ask, f"the brokers at {servers}", _FIRST_PATIENCE_S)
    except AwayError as error:
        asking.poll(0)
        raise _why(settings, errors) or error from error


def _why(settings: Mapping[str, str], errors: Iterable[KafkaError]) -> IkebanaError | None:
    """Make an error of the last reason that librdkafka reported; None if it reported none."""
    servers = settings["bootstrap.servers"]
    reasons = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
    if not reasons:
        return None
    last = reasons[-1]
    # Without the address before it and the state after it.
    reason = _AFTER.sub("", last.str().partition("/bootstrap: ")[2] or last.str())
    code = last.code()
    if code == KafkaError._TRANSPORT and _OF_TLS.search(reason):
        # With TLS 1.3 a broker refuses a client's certificate after the handshake.
        code = KafkaError._SSL
    match code:
        case KafkaError._AUTHENTICATION:
            return AccessError(
                f"the brokers at {servers} refuse the user: {reason}",
                hint=_credentials(settings),
            )
        case KafkaError._SSL:
            return AccessError(
                f"cannot agree on TLS with the brokers at {servers}: {reason}",
                hint="Check kafka's security.protocol, ssl.ca.location or ssl.ca.pem, and "
                "the client's certificate if the brokers ask for one.",
            )
        case _:
            return _unreachable(f"the brokers at {servers}", _FIRST_PATIENCE_S, reason)


def _credentials(settings: Mapping[str, str]) -> str:
    """Name the settings of the client that identify its user."""
    if "OAUTHBEARER" not in (settings.get("sasl.mechanism"), settings.get("sasl.mechanisms")):
        return "Check kafka's sasl.mechanism, sasl.username and sasl.password."
    return (
        "Check kafka's sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and "
        "sasl.oauthbearer.client.secret, and that the brokers accept tokens of this issuer."
    )


def _unreachable(what: str, patience_s: float, reason: str) -> AwayError:
    return AwayError(
        f"could not reach {what} for {patience_s:.0f} s: {reason}",
        hint="Check the address (--bootstrap-servers, or kafka.bootstrap.servers in the file), "
        "the security.protocol, and that the brokers are up.",
    )


def consumer(settings: Mapping[str, str]) -> Consumer:
    """Make a client that reads only committed records, from assigned offsets."""
    return Consumer(consumer_settings(settings))


def consumer_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Combine the user's settings of a consumer with those that cannot be changed."""
    return {
        **_QUIET,
        **_RECONNECT,
        "fetch.wait.max.ms": "5",
        # Records that are prefetched beyond a range are discarded, so few are prefetched.
        "queued.min.messages": "10000",
        "queued.max.messages.kbytes": "16384",
        # By default a partition whose queue was full is not fetched from for a second.
        "fetch.queue.backoff.ms": "5",
        "message.max.bytes": "104857600",
        **of_brokers(settings),
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
    """Make a producer, which fences all earlier ones of this transactional id.

    Their open transactions are aborted.  The caller must read what they have committed *after*
    this, and before it begins a transaction of its own.

    Raises:
        AccessError: the brokers do not allow this transactional id.
        ConfigError: the brokers do not allow transactions of this length.
        AwayError: the brokers did not answer.
    """
    producer = Producer(producer_settings(settings, transactional_id, timeout_s))
    # Connecting first keeps init_transactions from its half-second of waiting.
    patiently(lambda: producer.list_topics(timeout=REQUEST_S), "the brokers")
    try:
        patiently(lambda: producer.init_transactions(REQUEST_S), f"transaction {transactional_id}")
    except KafkaException as error:
        if (named := _refused(error, settings, timeout_s)) is None:
            raise
        raise named from error
    return producer


def producer_settings(
    settings: Mapping[str, str], transactional_id: str, timeout_s: float
) -> dict[str, str]:
    """Combine the user's settings of a producer with those that cannot be changed."""
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
    """Name the reason why the brokers refuse transactions, if it is known."""
    code = error.args[0].code()
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        prefixed = ("--transactional-id", TRANSACTIONS, "--resource-pattern-type", "prefixed")
        return AccessError(
            f'transactional ids "{TRANSACTIONS}…" may not be written',
            hint=grant(settings, {AclOperation.WRITE}, *prefixed),
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"run.max_batch is {timeout_s:.0f} s, and the brokers end transactions before that",
            hint="Lower run.max_batch, or raise transaction.max.timeout.ms on the brokers.",
        )
    return None


def enqueue(producer: Producer, topic: str, **record: Any) -> None:
    """Produce one record, waiting while the producer's queue is full."""
    unless_full(partial(producer.produce, topic, **record), lambda: producer.poll(0.1))


def unless_full(produce: Callable[[], object], wait: Callable[[], object]) -> None:
    """Call `produce`, after waiting as long as its queue is full."""
    while True:
        try:
            produce()
            return
        except BufferError:
            wait()


def with_leaders(
    ask: Callable[[], Result], asked: AdminClient | Consumer, names: Iterable[str]
) -> Result:
    """Ask for offsets of topics; if the client asked a former leader, refresh its metadata.

    Then a retriable error is raised.  Without the refresh a client asks former leaders for
    minutes.
    """
    try:
        return ask()
    except KafkaException as error:
        if error.args[0].code() not in _STALE:
            raise
        listed = asked.list_topics(timeout=REQUEST_S).topics
        if not all(name in listed for name in names):
            raise
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from error


def patiently(ask: Callable[[], Result], what: str, patience_s: float = PATIENCE_S) -> Result:
    """Ask until there is an answer; errors other than an absent broker are raised at once.

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
            # A transaction that has to be aborted gives the same answer for ever.
            if not may_pass(cause) or cause.txn_requires_abort():
                raise
            if time.monotonic() > deadline:
                raise _unreachable(what, patience_s, cause.str()) from error
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 2)


Operations: TypeAlias = set[AclOperation]

# The name of each right, and the consequence of its lack, for messages.
_RIGHTS = {
    AclOperation.DESCRIBE: ("Describe", "may not be seen"),
    AclOperation.READ: ("Read", "may not be read"),
    AclOperation.WRITE: ("Write", "may not be written"),
    AclOperation.CREATE: ("Create", "may not be made"),
    AclOperation.ALTER: ("Alter", "may not get the partitions of new shards"),
    AclOperation.DELETE: ("Delete", "may not be trimmed"),
    AclOperation.DESCRIBE_CONFIGS: ("DescribeConfigs", "may not be asked for its settings"),
}
# Each of these rights implies Describe, unless a rule denies it.
_SEEING = {AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.DELETE}


def ordered(operations: Collection[AclOperation]) -> list[AclOperation]:
    """Sort operations in the order in which messages name them."""
    return [each for each in _RIGHTS if each in operations]


def missing_right(operation: AclOperation) -> str:
    """Describe what a client without this right cannot do."""
    return _RIGHTS[operation][1]


def grant(
    settings: Mapping[str, str], operations: Operations, *resource: str, whom: str = ""
) -> str:
    """Write the command of Kafka that grants missing rights to the user of these settings.

    `resource` are the options of the command that name the resource.

    >>> ann = {"bootstrap.servers": "kafka:9093", "sasl.username": "ann"}
    >>> grant(ann, {AclOperation.READ}, "--topic", "orders")
    'Grant Read: kafka-acls --bootstrap-server kafka:9093 --add --allow-principal User:ann \
--operation Read --topic orders'
    """
    if operations & _SEEING:
        operations = operations - {AclOperation.DESCRIBE}
    named = [_RIGHTS[each][0] for each in ordered(operations)]
    user = settings.get("sasl.username")
    command = ["kafka-acls", "--bootstrap-server", settings["bootstrap.servers"], "--add"]
    command += ["--allow-principal", f"User:{user or 'NAME'}"]
    command += [part for each in named for part in ("--operation", each)]
    whose = "" if user else ", where NAME is whom the brokers take this client for"
    return f"Grant {' and '.join(named)}{whom}: {shlex.join([*command, *resource])}{whose}"

"""Where and how a plan runs: brokers, checkpoint, sizes of micro-batches, Spark.

Settings do not change what is computed; the plan does.  A `Settings` is always in range and
sets nothing that only ikebana may set; otherwise its constructor raises a `SettingsError`
with every problem under its path in the pipeline file.  Its repr shows no secret.  Kafka
settings have librdkafka's names; their values are checked when a file is read, by the library
itself (`value_problem`).
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ikebana.errors import ConfigError
from ikebana.processor.base.texts import hint

if TYPE_CHECKING:
    from ikebana.processor.authoring.deliver_section import DeliverSection

# Client settings that ikebana sets itself, each with the key to use instead, if there is one.
OWNED_KAFKA: Mapping[str, str] = {
    "auto.offset.reset": "inputs.<name>.start",
    "enable.auto.commit": "",
    "enable.idempotence": "",
    "enable.partition.eof": "",
    "group.id": "",
    "isolation.level": "",
    "partitioner": "",
    "transaction.timeout.ms": "run.max_batch",
    "transactional.id": "",
}
OWNED_SPARK: Mapping[str, str] = {
    "spark.driver.memory": "run.driver_memory",
    "spark.master": "run.master",
    "spark.speculation": "",
    "spark.sql.adaptive.enabled": "",
    "spark.sql.shuffle.partitions": "run.shards",
    "spark.sql.streaming.checkpointLocation": "run.checkpoint",
    "spark.sql.streaming.minBatchesToRetain": "run.retained_batches",
    "spark.sql.streaming.stateStore.providerClass": "",
}

_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|user\.info|jaas|sasl\.oauthbearer\.config|ssl\.key"
    r"|account\.key|private",
    re.IGNORECASE,
)
# Settings of the registry's client to show; any other name may be a misspelt secret.
_HARMLESS = {"url", "ssl.ca.location", "ssl.certificate.location", "timeout", "max.retries"}
_USER_OF_URI = re.compile(r"(?<=://)[^/@]*(?=@)")
_MEMORY = re.compile(r"[1-9][0-9]*[kmgt]b?", re.IGNORECASE)


class SettingsError(ConfigError):
    """Settings are out of range; `problems` are (path, problem) pairs."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        count = "1 setting needs" if len(problems) == 1 else f"{len(problems)} settings need"
        listed = "; ".join(f"{path}: {problem}" for path, problem in problems)
        super().__init__(f"{count} attention: {listed}")
        self.problems = list(problems)


# Without slots, since the sections of the pipeline file take their defaults from the class.
@dataclass(frozen=True, repr=False)
class Settings:
    """Where and how a plan runs."""

    checkpoint: str
    """A path or a URI, such as `s3a://bucket/x`."""
    kafka: Mapping[str, str]
    """Settings of every Kafka client; `bootstrap.servers` is needed."""
    source_kafka: Mapping[str, str] = field(default_factory=dict)
    """More settings for consumers only; they win over `kafka`."""
    sink_kafka: Mapping[str, str] = field(default_factory=dict)
    """More settings for producers only; they win over `kafka`."""
    registry: Mapping[str, str] = field(default_factory=dict)
    """Settings of the schema registry's client; `url` is needed if any input or output does."""
    shards: int = 4
    max_records_per_batch: int = 250_000
    trigger_interval_s: float = 0.45
    """The least time between the starts of two micro-batches; 0: no wait."""
    heartbeat_s: float = 10.0
    """How often the frontier advances without records; 0: never."""
    local_directory: str | None = None
    """The folder of the shards' local databases; None: a temporary directory."""
    master: str = "local[*]"
    driver_memory: str = "1g"
    spark: Mapping[str, str] = field(default_factory=dict)
    retained_batches: int = 2
    max_batch_s: float = 300.0
    """The longest time of a micro-batch, which is the timeout of its transactions."""
    restarts: int = 10
    """How often per hour the query restarts after errors that may pass by themselves."""
    max_executors: int = 0
    """The most executors to request from Spark while batches take long; 0: never more."""
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of topics that a run creates, such as `min.insync.replicas`."""
    replication_factor: int = 1
    deliver: "Mapping[str, DeliverSection]" = field(default_factory=dict)
    """The sinks that run beside it, by name."""

    def __post_init__(self) -> None:
        if problems := list(_problems(self)):
            raise SettingsError(problems)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs tasks in its driver, and has no executors."""
        return self.master.startswith("local")

    @property
    def reading_kafka(self) -> dict[str, str]:
        """The settings of consumers, and of clients that ask about input topics."""
        return {**self.kafka, **self.source_kafka}

    @property
    def writing_kafka(self) -> dict[str, str]:
        """The settings of producers."""
        return {**self.kafka, **self.sink_kafka}

    @property
    def least_executors(self) -> int:
        """The number of executors at the start, from `spark.executor.instances`; else 0."""
        count = self.spark.get("spark.executor.instances", "0")
        return int(count) if count.isdigit() else 0

    def __repr__(self) -> str:
        # Sinks have passwords in places of their own.
        names = (f.name for f in fields(self) if f.name != "deliver")
        shown = (f"{name}={_shown(getattr(self, name))}" for name in names)
        return f"Settings({', '.join(shown)})"


def redacted(mapping: Mapping[str, str]) -> dict[str, str]:
    """Hide values of secret and of unknown keys, and user names in URIs.

    >>> redacted({"sasl.username": "ann", "sasl.pasword": "hunter2"})
    {'sasl.username': 'ann', 'sasl.pasword': '***'}
    """
    return {
        key: _USER_OF_URI.sub("***", value) if _may_be_shown(key) else "***"
        for key, value in mapping.items()
    }


def _may_be_shown(key: str) -> bool:
    is_expected = key in KAFKA_NAMES or key in _HARMLESS or key.startswith("spark.")
    return is_expected and not _SECRET.search(key)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return repr(redacted(value))
    if isinstance(value, str):
        return repr(_USER_OF_URI.sub("***", value))
    return repr(value)


def _problems_of_executors(settings: Settings) -> Iterator[tuple[str, str]]:
    least, most = settings.least_executors, settings.max_executors
    if settings.is_local:
        yield "run.max_executors", f"run.master {settings.master} has no executors"
    elif not least:
        yield (
            "run.max_executors",
            "needs the number to begin with, which is the least; set spark.executor.instances",
        )
    elif most < least:
        yield "run.max_executors", f"is {most}, and spark.executor.instances {least}"
    elif settings.spark.get("spark.dynamicAllocation.enabled") == "true":
        yield (
            "run.max_executors",
            "spark.dynamicAllocation.enabled is true: one of them can ask for executors",
        )


def _problems(settings: Settings) -> Iterator[tuple[str, str]]:
    if not settings.checkpoint:
        yield "run.checkpoint", "is missing; set it here or with --checkpoint"
    if not settings.kafka.get("bootstrap.servers"):
        yield (
            "kafka.bootstrap.servers",
            "is missing; set it here or with --bootstrap-servers",
        )
    for path, mapping, owned in (
        ("kafka", settings.kafka, OWNED_KAFKA),
        ("source.kafka", settings.source_kafka, OWNED_KAFKA),
        ("sink.kafka", settings.sink_kafka, OWNED_KAFKA),
        ("spark", settings.spark, OWNED_SPARK),
    ):
        for key in mapping:
            if key in owned:
                instead = f"; use {owned[key]}" if owned[key] else ""
                yield f"{path}.{key}", f"is for ikebana alone to set{instead}"
            elif path != "spark" and key not in KAFKA_NAMES:
                meant = hint(key, KAFKA_NAMES - owned.keys())
                yield f"{path}.{key}", f"Kafka's client has no such setting{meant}"
    for path, count in (
        ("run.shards", settings.shards),
        ("source.max_records_per_batch", settings.max_records_per_batch),
        ("run.retained_batches", settings.retained_batches),
        ("sink.replication_factor", settings.replication_factor),
    ):
        if count < 1:
            yield path, f"must be at least 1; is {count}"
    if settings.max_executors:
        yield from _problems_of_executors(settings)
    if settings.restarts < 0:
        yield "run.restarts", f"must be 0 or more; is {settings.restarts}"
    for path, seconds in (
        ("run.trigger_interval", settings.trigger_interval_s),
        ("run.heartbeat", settings.heartbeat_s),
    ):
        if not (math.isfinite(seconds) and seconds >= 0):
            yield path, f"must be 0 seconds or more; is {seconds}"
    if not (math.isfinite(settings.max_batch_s) and settings.max_batch_s >= 1):
        yield "run.max_batch", f"must be at least 1 second; is {settings.max_batch_s}"
    if not settings.master:
        yield "run.master", "is empty"
    if not _MEMORY.fullmatch(settings.driver_memory):
        yield (
            "run.driver_memory",
            f'must be a size such as "512m" or "2g"; is "{settings.driver_memory}"',
        )


# The names of the settings that librdkafka takes as text, as its CONFIGURATION.md lists them; a
# test holds them against the library that is installed.
KAFKA_NAMES = frozenset(
    """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms auto.commit.enable auto.commit.interval.ms
    auto.offset.reset batch.num.messages batch.size bootstrap.servers
    broker.address.family broker.address.ttl broker.version.fallback builtin.features
    check.crcs client.dns.lookup client.id client.rack compression.codec
    compression.level compression.type connections.max.idle.ms
    consume.callback.max.messages coordinator.query.interval.ms debug
    delivery.report.only.error delivery.timeout.ms enable.auto.commit
    enable.auto.offset.store enable.gapless.guarantee enable.idempotence
    enable.metrics.push enable.partition.eof enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol
    group.protocol.type group.remote.assignor heartbeat.interval.ms https.ca.location
    https.ca.pem internal.termination.signal isolation.level linger.ms
    log.connection.close log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records message.copy.max.bytes message.max.bytes message.send.max.retries
    message.timeout.ms metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    offset.store.method offset.store.path offset.store.sync.interval.ms
    partition.assignment.strategy partitioner plugin.library.paths produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes
    queued.min.messages queuing.strategy receive.message.max.bytes
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
    request.required.acks request.timeout.ms retries retry.backoff.max.ms
    retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
    statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
    """.split()  # noqa: SIM905 -- a list would take a line for each
)


_NONE = "ikebana.no.such.setting"
# Not checked, since the library would load the file.
_UNASKED = {"plugin.library.paths"}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The library checks these only when it connects, so they are listed here.
_MECHANISMS = ("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_CHOICES = {
    "security.protocol": _PROTOCOLS,
    "sasl.mechanism": _MECHANISMS,
    "sasl.mechanisms": _MECHANISMS,
}
_RANGE = re.compile(r"value \S+ is outside allowed range (\S+)\.\.(\S+)")


def value_problem(name: str, value: str) -> str | None:
    """Why a Kafka setting cannot have a value; None if it can.  Secret values are not shown.

    No client is created and nothing connects: after the setting comes one that does not exist, at
    which the library stops in any case.

    >>> value_problem("security.protocol", "SASL_SLL")
    'must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; is "SASL_SLL"; did you mean \
"SASL_SSL"?'
    """
    expected = _expected(name, value)
    if expected is None:
        return None
    shown = redacted({name: value})[name]
    meant = hint(value, _CHOICES.get(name, ())) if shown == value else ""
    return f'must be {expected}; is "{shown}"{meant}'


def _expected(name: str, value: str) -> str | None:
    """What the value must be; None if the client accepts it."""
    if (choices := _CHOICES.get(name)) is not None:
        return None if value.upper() in choices else f"one of {', '.join(choices)}"
    if name in _UNASKED or (said := _refusal(name, value)) is None:
        return None
    if limits := _RANGE.search(said):
        return f"a whole number from {limits[1]} to {limits[2]}"
    if said.startswith("Expected bool"):
        return "true or false"
    return "a value that Kafka's client takes (librdkafka's CONFIGURATION.md lists them)"


@functools.lru_cache(maxsize=1024)
def _refusal(name: str, value: str) -> str | None:
    # The library takes a while to load, and most files have no such setting.
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({name: value, _NONE: ""})
    except (KafkaException, TypeError, ValueError) as error:
        said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        return None if _NONE in said else said
    raise AssertionError(f"Kafka's client has a setting {_NONE}")

"""A secured broker for tests, its users, and the rules that say what they may do."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ikebana.processor.kafka.broker import Broker, Security, running
from support.certificates import Authority
from support.waiting import wait_until

_WAIT_S = 60.0
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# Beside passwords the broker takes tokens, of whoever writes them: it asks for no signature, which
# is Kafka's way for tests.  What a client does to get one is the same.
_TOKENS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
        f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";'
    ),
}


class Rule(NamedTuple):
    """One thing that somebody may do."""

    kind: ResourceType
    name: str
    operation: AclOperation
    pattern: ResourcePatternType = ResourcePatternType.LITERAL

    def of(self, principal: str) -> AclBinding:
        """The rule as brokers have it."""
        allow = AclPermissionType.ALLOW
        return AclBinding(
            self.kind, self.name, self.pattern, principal, "*", self.operation, allow
        )


class Secured:
    """A secured broker as its administrator has it, and as users see it."""

    def __init__(self, broker: Broker, security: Security, authority: Authority) -> None:
        self.broker = broker
        self.authority = authority
        self._security = security
        self.admin = AdminClient({**broker.admin_settings, "log_level": 0})

    def user(
        self, name: str, mechanism: str = "SCRAM-SHA-512", secret: str | None = None
    ) -> dict[str, str]:
        """The settings of a client of this user; with another password, or a reference to it."""
        return {
            "bootstrap.servers": self.broker.listeners["SASL_SSL"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": self.authority.certificate,
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password(name) if secret is None else secret,
        }

    def admit(
        self, may: Mapping[str, Iterable[Rule]], passwords: Mapping[str, str] | None = None
    ) -> None:
        """Make users that may do this and nothing else; return when the broker knows it."""
        users = {name: password(name) for name in may} | dict(passwords or {})
        dataclasses.replace(self._security, users=users).admit(self.admin)
        self.allow({f"User:{name}": rules for name, rules in may.items()})

    def allow(self, may: Mapping[str, Iterable[Rule]]) -> None:
        """Let principals do this; return when the broker knows it."""
        wanted = {rule.of(principal) for principal, rules in may.items() for rule in rules}
        for answer in self.admin.create_acls(list(wanted)).values():
            answer.result(_WAIT_S)
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )

        def known() -> bool:
            return wanted <= set(self.admin.describe_acls(everything).result(_WAIT_S))

        wait_until(known, _WAIT_S, "the broker knows its rules")

    def create(self, partitions: Mapping[str, int]) -> None:
        """Make topics, and wait until they are led."""
        new = [NewTopic(topic, count, 1) for topic, count in partitions.items()]
        for answer in self.admin.create_topics(new).values():
            answer.result(_WAIT_S)

        def led() -> bool:
            known = self.admin.list_topics(timeout=_WAIT_S).topics
            return all(
                topic in known and all(p.leader >= 0 for p in known[topic].partitions.values())
                for topic in partitions
            )

        wait_until(led, _WAIT_S, f"leaders of {sorted(partitions)}")

    def topics(self) -> set[str]:
        """The topics that there are, but for the broker's own."""
        known = self.admin.list_topics(timeout=_WAIT_S).topics
        return {topic for topic in known if not topic.startswith("__")}

    def produce(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Produce as the administrator; return when all is acknowledged."""
        producer = Producer({**self.broker.admin_settings, "log_level": 0})
        for key, value in records:
            producer.produce(topic, key=key, value=value)
        assert producer.flush(_WAIT_S) == 0

    def committed(self, topic: str, count: int) -> list[tuple[bytes, bytes]]:
        """The first committed records of partition 0, as the administrator reads them."""
        consumer = self._consumer()
        found: list[tuple[bytes, bytes]] = []
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])

            def read() -> bool:
                for message in consumer.consume(count, timeout=0.2):
                    assert message.error() is None, message.error()
                    found.append((message.key(), message.value()))
                return len(found) >= count

            wait_until(read, _WAIT_S, f"{count} records in {topic}")
        finally:
            consumer.close()
        return found

    def everything(self, topic: str) -> bytes:
        """Keys, values and headers of all committed records of a topic, one after the other."""
        consumer = self._consumer(tells_ends=True)
        found: list[bytes] = []
        left = {
            TopicPartition(topic, number, 0)
            for number in consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions
        }

        def read() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    left.discard(TopicPartition(topic, message.partition(), 0))
                    continue
                headers = repr(message.headers()).encode()
                found.extend((message.key() or b"", message.value() or b"", headers))
            return not left

        try:
            consumer.assign(list(left))
            wait_until(read, _WAIT_S, f"all of {topic}")
        finally:
            consumer.close()
        return b"".join(found)

    def _consumer(self, *, tells_ends: bool = False) -> Consumer:
        own = {"group.id": "tests", "enable.auto.commit": False, "log_level": 0}
        ends = {"enable.partition.eof": tells_ends}
        return Consumer({**self.broker.admin_settings, **own, **ends})


def password(name: str) -> str:
    """A user's password, with what properties files and JAAS have a meaning for."""
    return f'the "secret" of\\{name}='


@contextmanager
def secured_broker() -> Iterator[Secured]:
    """Run one for the length of a `with` block; user `everybody` has no rights."""
    authority = Authority("tests")
    own = authority.certified("broker")
    users = {"everybody": password("everybody")}
    security = Security(authority.certificate, own.certificate, own.key, own.principal, users)
    with running(settings=_TOKENS, security=security) as broker:
        yield Secured(broker, security, authority)

"""A secured broker for tests, its users, and the rules that say what they may do.

It has two listeners, both encrypted.  `SASL_SSL` is for users with passwords (`PLAIN` and
`SCRAM-SHA-512`), `SSL` for clients with a certificate of the authority.  Only super users may do
what no rule allows.  The broker itself is a super user: with its own certificate it connects to
itself, and we ask it whether it is ready.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import Broker, free_port, jars
from support.certificates import Authority, Certificate
from support.waiting import wait_until

_WAIT_S = 60.0
_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
# The minimum that Kafka accepts; these passwords guard only the topics of tests.
_SCRAM_ITERATIONS = 4096
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


class SecuredBroker(Broker):
    """The broker, with certificates of an authority; `users` has the passwords of users."""

    def __init__(self, data: Path, authority: Authority, users: Mapping[str, str]) -> None:
        java, own = find_java(os.environ), authority.certified("broker")
        settings = {**_settings(authority, own, users), **_TOKENS}
        super().__init__(data, free_port(), settings, java, jars(java))
        servers = f"127.0.0.1:{free_port()}"
        self.listeners = {"SASL_SSL": self.bootstrap_servers, "SSL": servers}
        self.admin_settings = {
            "bootstrap.servers": servers,
            "security.protocol": "SSL",
            "ssl.ca.pem": authority.certificate,
            "ssl.certificate.pem": own.certificate,
            "ssl.key.pem": own.key,
        }


def _settings(authority: Authority, own: Certificate, users: Mapping[str, str]) -> dict[str, str]:
    known = "".join(f" user_{name}={_quoted(word)}" for name, word in users.items())
    plain = f"{_MODULES}.plain.PlainLoginModule required{known};"
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": own.principal,
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "SSL",
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key,
        "ssl.keystore.certificate.chain": own.certificate,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate,
    }


def _quoted(word: str) -> str:
    """Quote a value for JAAS."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Secured:
    """A secured broker as its administrator has it, and as users see it."""

    def __init__(self, broker: SecuredBroker, authority: Authority) -> None:
        self.broker = broker
        self.authority = authority
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
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _SCRAM_ITERATIONS)
        new = [
            UserScramCredentialUpsertion(who, how, word.encode()) for who, word in users.items()
        ]
        for answer in self.admin.alter_user_scram_credentials(new).values():
            answer.result(_WAIT_S)
        self.allow({f"User:{name}": rules for name, rules in may.items()})

    def allow(self, may: Mapping[str, Iterable[Rule]]) -> None:
        """Let principals do this; return when the broker knows it."""
        wanted = {rule.of(principal) for principal, rules in may.items() for rule in rules}
        if not wanted:
            return
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
    authority, name = Authority("tests"), "everybody"
    folder = Path(tempfile.mkdtemp(prefix="ikebana-secured-broker-"))
    broker = SecuredBroker(folder, authority, {name: password(name)})
    try:
        broker.start()
        secured = Secured(broker, authority)
        secured.admit({name: []})
        yield secured
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)

"""A secured broker lets in who shows who they are, and lets them do what rules say."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from support.certificates import Authority
from support.secured_broker import Rule, Secured

pytestmark = pytest.mark.kafka


def certified(secured: Secured, authority: Authority, name: str) -> dict[str, str]:
    """The settings of a client that shows a certificate."""
    shown = authority.certified(name)
    return {
        "bootstrap.servers": secured.broker.listeners["SSL"],
        "security.protocol": "SSL",
        "ssl.ca.pem": secured.authority.certificate,
        "ssl.certificate.pem": shown.certificate,
        "ssl.key.pem": shown.key,
    }


def written(settings: dict[str, str], topic: str) -> KafkaError | None:
    """Why a record could not be produced; None if it could."""
    results: list[KafkaError | None] = []
    producer = Producer({**settings, "log_level": 0, "message.timeout.ms": 60_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: results.append(error))
    producer.flush(60)
    return results[0]


CLIENTS: list[tuple[str, Callable[[Secured], dict[str, str]]]] = [
    ("User:everybody", lambda secured: secured.user("everybody", "PLAIN")),
    ("User:everybody", lambda secured: secured.user("everybody", "SCRAM-SHA-512")),
    ("User:CN=someone", lambda secured: certified(secured, secured.authority, "someone")),
]


@pytest.mark.parametrize(("principal", "client"), CLIENTS, ids=["plain", "scram", "certificate"])
def test_clients_are_known_by_what_they_show_and_may_do_what_rules_say(
    secured: Secured,
    topic_name: Callable[[str], str],
    principal: str,
    client: Callable[[Secured], dict[str, str]],
) -> None:
    """Without a rule nothing may be written; with one for the principal it may."""
    topic = topic_name("known")
    secured.create({topic: 1})

    refused = written(client(secured), topic)
    secured.allow({principal: [Rule(ResourceType.TOPIC, topic, AclOperation.WRITE)]})

    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert written(client(secured), topic) is None


STRANGERS: list[Callable[[Secured], dict[str, str]]] = [
    lambda secured: {**secured.user("everybody"), "sasl.password": "guessed"},
    lambda secured: {**secured.user("everybody", "PLAIN"), "sasl.password": "guessed"},
    lambda secured: certified(secured, Authority("another"), "broker"),
    lambda secured: {
        name: value
        for name, value in certified(secured, secured.authority, "someone").items()
        if name not in ("ssl.certificate.pem", "ssl.key.pem")
    },
    lambda secured: {
        **certified(secured, secured.authority, "someone"),
        "ssl.ca.pem": Authority("another").certificate,
    },
    lambda secured: {"bootstrap.servers": secured.broker.bootstrap_servers},
]


@pytest.mark.parametrize(
    "stranger",
    STRANGERS,
    ids=["scram", "plain", "other authority", "no certificate", "distrusts us", "in the open"],
)
def test_strangers_get_no_answer(
    secured: Secured, stranger: Callable[[Secured], dict[str, str]]
) -> None:
    """Wrong passwords, certificates of others, and clients that do not encrypt."""
    with pytest.raises(KafkaException):
        AdminClient({**stranger(secured), "log_level": 0}).list_topics(timeout=3)

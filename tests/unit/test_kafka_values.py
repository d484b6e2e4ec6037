"""Values of Kafka's settings: told when the file is read, by their lines, without a broker."""

import pytest

from ikebana.errors import ConfigError
from ikebana.processor.authoring import settings as setting_values
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.authoring.settings import value_problem

FILE = """\
pipeline: p
inputs: {i: {topic: in}}
operators: {o: {upsert: i}}
outputs: {d: {from: o, topic: out}}
kafka:
  bootstrap.servers: "nobody:1"
  security.protocol: SASL_SLL
  sasl.mechanism: SCRAM-SHA512
  session.timeout.ms: abc
  socket.keepalive.enable: "yes"
source:
  kafka:
    fetch.wait.max.ms: -5
sink:
  kafka:
    compression.type: zip
    linger.ms: 5
run: {checkpoint: c}
"""
TAKES = "must be a value that Kafka's client takes (librdkafka's CONFIGURATION.md lists them)"


def test_values_are_told_all_at_once() -> None:
    """Of all sections, with what may stand there and what is meant."""
    with pytest.raises(ConfigError) as refused:
        parse(FILE, "p.yaml", environ={})

    assert [line.strip() for line in str(refused.value).splitlines()[1:]] == [
        "kafka.security.protocol: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; is "
        '"SASL_SLL"; did you mean "SASL_SSL"? (line 7)',
        "kafka.sasl.mechanism: must be one of GSSAPI, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        'OAUTHBEARER; is "SCRAM-SHA512"; did you mean "SCRAM-SHA-512"? (line 8)',
        f'kafka.session.timeout.ms: {TAKES}; is "abc" (line 9)',
        'kafka.socket.keepalive.enable: must be true or false; is "yes" (line 10)',
        'source.kafka.fetch.wait.max.ms: must be a whole number from 0 to 300000; is "-5" '
        "(line 13)",
        f'sink.kafka.compression.type: {TAKES}; is "zip" (line 16)',
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "all"),
        ("security.protocol", "sasl_ssl"),
        ("ssl.ca.location", "/where/the/driver/has/it.pem"),
        ("ssl.key.pem", "no key"),
        ("plugin.library.paths", "/no/such/library"),
        ("sasl.password", "hunter2"),
        ("client.id", "é"),
    ],
)
def test_what_only_a_client_can_judge_is_left_to_it(name: str, value: str) -> None:
    """Files need not be where a pipeline is only explained, and nothing is loaded."""
    assert value_problem(name, value) is None


def test_the_value_of_a_secret_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the library tells it."""
    told = 'Invalid value "hunter2" for configuration property "sasl.password"'
    monkeypatch.setattr(setting_values, "_refusal", lambda name, value: told)

    assert value_problem("sasl.password", "hunter2") == f'{TAKES}; is "***"'

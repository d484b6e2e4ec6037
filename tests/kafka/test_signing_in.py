"""All that reads and writes topics signs in by password, by token and by certificate."""

import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from ikebana.errors import AccessError, AwayError, IkebanaError
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.preflight import checks
from ikebana.processor.kafka import client
from support.certificates import Authority
from support.guarded_pipelines import Guarded
from support.secured_broker import Rule, Secured
from support.token_issuer import Issuer, issuing
from support.waiting import patient, wait_until
from support.written_topics import Row, Written

pytestmark = pytest.mark.kafka

COMMAND = [sys.executable, "-c", "from ikebana.processor.cli.main import main; main()"]
ROWS: list[Row] = [(0, b'"a"', b"1", 1, 1), (1, b'"b"', b"2", 2, 1)]
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, CREATE, WRITE = AclOperation.READ, AclOperation.CREATE, AclOperation.WRITE
EVERYTHING = [
    Rule(kind, "*", AclOperation.ALL, ResourcePatternType.LITERAL)
    for kind in (TOPIC, GROUP, ResourceType.TRANSACTIONAL_ID)
]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """Who gives tokens of the user `app`."""
    with issuing("app") as found:
        yield found


def sasl(secured: Secured) -> dict[str, str]:
    return {
        "bootstrap.servers": secured.broker.listeners["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": secured.authority.certificate,
    }


def shown(secured: Secured, authority: Authority, name: str) -> dict[str, str]:
    ours = authority.certified(name)
    return {
        "bootstrap.servers": secured.broker.listeners["SSL"],
        "security.protocol": "SSL",
        "ssl.ca.pem": secured.authority.certificate,
        "ssl.certificate.pem": ours.certificate,
        "ssl.key.pem": ours.key,
    }


class Way(NamedTuple):
    """A way to sign in: whom the brokers take a client for, and its settings."""

    principal: str
    settings: Callable[[Secured, Issuer], dict[str, str]]


WAYS = {
    "scram": Way("User:everybody", lambda secured, _: secured.user("everybody")),
    "token": Way("User:app", lambda secured, issuer: {**sasl(secured), **issuer.settings()}),
    "certificate": Way("User:CN=app", lambda secured, _: shown(secured, secured.authority, "app")),
}


def config(folder: Path, settings: dict[str, str]) -> Path:
    """The settings as a file of `--config`, whose lines hold no PEM."""
    lines = []
    for name, value in settings.items():
        if name.endswith(".pem"):
            kept = name.replace("ssl.ca", "ssl.ca").removesuffix(".pem")
            (folder / f"{kept}.pem").write_text(value)
            name, value = f"{kept}.location", str(folder / f"{kept}.pem")
        lines.append(f"{name}={value}\n")
    file = folder / "client.properties"
    file.write_text("".join(lines))
    return file


@pytest.mark.parametrize("way", WAYS)
def test_each_client_of_a_pipeline_and_each_command_signs_in(
    secured: Secured, issuer: Issuer, tmp_path: Path, way: str
) -> None:
    """Driver, source and sink; then what reads the topic that they have written."""
    principal, settings = WAYS[way].principal, WAYS[way].settings(secured, issuer)
    secured.allow({principal: EVERYTHING})
    name = f"in-{uuid.uuid4().hex[:8]}"
    secured.create({f"{name}.in": 1})

    clients = {"kafka": settings, "source": settings, "sink": settings}
    pipe = Guarded(tmp_path, "", name, f"{name}.in", clients=clients)
    assert [check for check in checks(pipe.file(), None, None) if check.status != "ok"] == []
    written = Written(settings["bootstrap.servers"], f"{name}.diffs", settings=settings)
    written.batch(ROWS, 10)

    file = str(config(tmp_path, settings))
    for words, said in (
        (["check"], "2 keys, 2 values, 2 with their counts"),
        (["snapshot"], '{"key": "a", "value": 1, "count": 1}'),
        (["follow", "--until", "9"], '"b"'),
        (["compact"], "snapshot as of 9, 2 updates"),
    ):
        done = CliRunner().invoke(cli, [words[0], written.name, *words[1:], "--config", file])
        assert (done.exit_code, said in done.output) == (0, True), (words, done.output)
    assert ready(written.name, file, tmp_path)


def ready(topic: str, file: str, folder: Path) -> bool:
    """Whether `ikebana serve` of the topic becomes ready."""
    words = ["serve", topic, "--config", file, "--http", "127.0.0.1:0"]
    with (folder / "serve.log").open("wb") as log:
        served = subprocess.Popen(
            [*COMMAND, *words, "--data", str(folder / "served")], stdout=log, stderr=log
        )

    def told() -> bool:
        text = (folder / "serve.log").read_text()
        assert served.poll() is None, text
        found = re.search(r"http://127\.0\.0\.1:\d+", text)
        if found is None:
            return False
        try:
            with urllib.request.urlopen(f"{found[0]}/ready", timeout=patient(20)) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until(told, 120, "it is ready")
    finally:
        served.terminate()
        served.wait(patient(60))
    return True


STRANGERS: list[tuple[str, Callable[[Secured, Issuer], dict[str, str]], type[IkebanaError], str]]
STRANGERS = [
    (
        "wrong password",
        lambda secured, _: secured.user("everybody", secret="guessed"),
        AccessError,
        "sasl.username and sasl.password",
    ),
    (
        "wrong client secret",
        lambda secured, issuer: {**sasl(secured), **issuer.settings("guessed")},
        AccessError,
        "sasl.oauthbearer.client.secret",
    ),
    (
        "no one gives tokens",
        lambda secured, issuer: {
            **sasl(secured),
            **issuer._replace(url="http://127.0.0.1:1/token").settings(),
        },
        AccessError,
        "sasl.oauthbearer.token.endpoint.url",
    ),
    (
        "certificate of another authority",
        lambda secured, _: shown(secured, Authority("another"), "app"),
        AccessError,
        "the client's certificate if the brokers ask for one",
    ),
    (
        "no certificate",
        lambda secured, _: {**sasl(secured), **_only_tls(secured)},
        AccessError,
        "the client's certificate if the brokers ask for one",
    ),
]


def _only_tls(secured: Secured) -> dict[str, str]:
    return {
        "bootstrap.servers": secured.broker.listeners["SSL"],
        "security.protocol": "SSL",
    }


@pytest.mark.parametrize(
    ("settings", "kind", "remedy"),
    [row[1:] for row in STRANGERS],
    ids=[row[0] for row in STRANGERS],
)
def test_who_cannot_sign_in_is_told_which_settings_to_look_at(
    secured: Secured,
    issuer: Issuer,
    settings: Callable[[Secured, Issuer], dict[str, str]],
    kind: type[IkebanaError],
    remedy: str,
) -> None:
    """Within seconds, by name, and without the secret."""
    with pytest.raises((AccessError, AwayError)) as refused:
        client.reach(settings(secured, issuer))

    assert isinstance(refused.value, kind), refused.value
    assert remedy in (refused.value.hint or "")
    assert "guessed" not in str(refused.value)


# What each command needs to read a topic, by the name that stands for it.
NEEDS = {
    "check": [(TOPIC, "{}", READ), (TOPIC, "{}.progress", READ)],
    "snapshot": [(TOPIC, "{}", READ), (TOPIC, "{}.progress", READ)],
    "follow": [(TOPIC, "{}", READ), (TOPIC, "{}.progress", READ)],
    "compact": [
        (TOPIC, "{}", READ),
        (TOPIC, "{}.progress", READ),
        (TOPIC, "{}.snapshot", CREATE),
    ],
}


def test_rights_of_readers_as_they_are(secured: Secured, tmp_path: Path) -> None:
    """To look at."""
    written = Written(
        secured.broker.admin_settings["bootstrap.servers"],
        f"read-{uuid.uuid4().hex[:8]}",
        settings=secured.broker.admin_settings,
    )
    written.batch(ROWS, 10)
    name = written.name
    told = []
    for command in ("check", "snapshot", "follow", "compact"):
        for number, rules in enumerate(
            (
                [],
                [Rule(TOPIC, name, READ)],
                [Rule(TOPIC, f"{name}.progress", READ)],
                [Rule(TOPIC, name, READ), Rule(TOPIC, f"{name}.progress", READ)],
                [
                    Rule(TOPIC, name, READ),
                    Rule(TOPIC, f"{name}.progress", READ),
                    Rule(GROUP, "ikebana", AclOperation.DESCRIBE),
                ],
                [
                    Rule(TOPIC, name, READ),
                    Rule(TOPIC, f"{name}.progress", READ),
                    Rule(GROUP, "ikebana", AclOperation.DESCRIBE),
                    Rule(TOPIC, f"{name}.snapshot", CREATE),
                    Rule(TOPIC, f"{name}.snapshot", READ),
                    Rule(TOPIC, f"{name}.snapshot", WRITE),
                    Rule(
                        ResourceType.TRANSACTIONAL_ID,
                        "ikebana-",
                        WRITE,
                        ResourcePatternType.PREFIXED,
                    ),
                ],
            )
        ):
            user = f"{command}{number}"
            secured.admit({user: rules})
            folder = tmp_path / user
            folder.mkdir()
            file = config(folder, secured.user(user))
            more = ["--until", "9"] if command == "follow" else []
            done = CliRunner().invoke(cli, [command, name, *more, "--config", str(file)])
            told.append((user, done.exit_code, done.output[-300:], repr(done.exception)[:600]))
    print("\n".join(map(str, told)))
    raise AssertionError(told)

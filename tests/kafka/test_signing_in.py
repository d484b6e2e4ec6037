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
from ikebana.processor.cli.pipeline_argument import PipelineArgument
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
            kept = name.removesuffix(".pem")
            (folder / f"{kept}.pem").write_text(value)
            name, value = f"{kept}.location", str(folder / f"{kept}.pem")
        lines.append(f"{name}={value}\n")
    file = folder / "client.properties"
    file.write_text("".join(lines))
    return file


# By password all commands read and compact below, and test_secrets.py has a run.
@pytest.mark.parametrize("way", [pytest.param("scram", marks=pytest.mark.full), *list(WAYS)[1:]])
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
    assert [check for check in checks(PipelineArgument(pipe.file())) if check.status != "ok"] == []
    written = Written(settings["bootstrap.servers"], f"{name}.diffs", settings=settings)
    written.batch(ROWS, 10)

    file = str(config(tmp_path, settings))
    for words, said in (
        (["check"], "2 keys, 2 values, 2 with their counts"),
        (["snapshot"], '{"key":"a","value":1,"count":1}'),
        (["follow", "--until", "9"], '"b"'),
        (["compact"], "snapshot as of 9, 2 updates"),
    ):
        done = CliRunner().invoke(cli, [words[0], written.name, *words[1:], "--config", file])
        assert (done.exit_code, said in done.output) == (0, True), (words, done.output)
    assert ready(written.name, file, tmp_path)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("way", ["token", "certificate"])
def test_a_run_signs_in_from_all_of_its_processes(
    secured: Secured, issuer: Issuer, tmp_path: Path, way: str
) -> None:
    """Driver, Spark's source and workers, and the owners of shards."""
    principal, settings = WAYS[way].principal, WAYS[way].settings(secured, issuer)
    secured.allow({principal: EVERYTHING})
    name = f"run-{uuid.uuid4().hex[:8]}"
    secured.create({f"{name}.in": 1})
    secured.produce(f"{name}.in", [(b"a", b'"x"'), (b"b", b'"y"')])

    Guarded(tmp_path, "", name, f"{name}.in", clients={"kafka": settings}).drained(timeout_s=240)

    one = b'{"n":1}'
    assert set(secured.committed(f"{name}.out", 2)) == {(b'"x"', one), (b'"y"', one)}


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


@pytest.fixture(scope="module")
def topic(secured: Secured) -> str:
    """The name of a diff topic with two updates, which the administrator has written."""
    settings = secured.broker.admin_settings
    name = f"read-{uuid.uuid4().hex[:8]}"
    Written(settings["bootstrap.servers"], name, settings=settings).batch(ROWS, 10)
    return name


def readers(name: str) -> list[Rule]:
    """What a reader of a topic needs."""
    topics = (name, f"{name}.progress", f"{name}.snapshot")
    return [
        *(Rule(TOPIC, each, READ) for each in topics),
        Rule(GROUP, "ikebana", AclOperation.DESCRIBE),
    ]


def compacters(name: str) -> list[Rule]:
    """What `ikebana compact` needs beside that."""
    snapshots = f"{name}.snapshot"
    operations = (WRITE, AclOperation.DELETE, CREATE)
    return [*(Rule(TOPIC, snapshots, each) for each in operations), IDS]


IDS = Rule(ResourceType.TRANSACTIONAL_ID, "ikebana-", WRITE, ResourcePatternType.PREFIXED)


def asked(secured: Secured, folder: Path, user: str, *words: str) -> tuple[int, str, object]:
    """Status, output and error of a command that is given as this user."""
    file = config(folder, secured.user(user))
    done = CliRunner().invoke(cli, [*words, "--config", str(file)])
    return done.exit_code, done.output, done.exception


def test_reading_needs_four_rights_and_each_is_told_when_it_is_missing(
    secured: Secured, topic: str, tmp_path: Path
) -> None:
    """With all of them each command reads; without one it says which, before it reads anything."""
    rules = readers(topic)
    may = {f"lacks{at}": [r for r in rules if r != lost] for at, lost in enumerate(rules)}
    secured.admit({**may, "reader": rules})

    for words in (
        ("check", topic),
        ("snapshot", topic),
        ("follow", topic, "--until", "9"),
        ("sql", f'SELECT count(*) FROM "{topic}"', topic),
    ):
        status, output, error = asked(secured, tmp_path, "reader", *words)
        assert (status, error) == (0, None), (words, output)
    for at, lost in enumerate(rules):
        for words in (("check", topic), ("sql", f'SELECT 1 FROM "{topic}"', topic)):
            _, _, error = asked(secured, tmp_path, f"lacks{at}", *words)
            assert isinstance(error, AccessError), (words, lost, error)
            assert f'"{lost.name}" may not be seen' in error.message
            assert f"User:lacks{at}" in (error.hint or "")


def test_compacting_needs_four_more(secured: Secured, topic: str, tmp_path: Path) -> None:
    """Each is told when it is missing; the last one of all is that nothing is missing."""
    more = compacters(topic)
    users = {f"writes{at}": [r for r in more if r != lost] for at, lost in enumerate(more)}
    secured.admit({user: [*readers(topic), *rules] for user, rules in users.items()})
    secured.admit({"compacter": [*readers(topic), *more]})
    # Once its topic is there, no right to make it is needed any more.
    order = sorted(range(len(more)), key=lambda at: more[at].operation != CREATE)

    for at in order:
        _, _, error = asked(secured, tmp_path, f"writes{at}", "compact", topic)
        assert isinstance(error, AccessError), (more[at], error)
        if more[at].operation == CREATE:
            assert "does not exist and may not be made" in error.message
            assert asked(secured, tmp_path, "compacter", "compact", topic)[0] == 0

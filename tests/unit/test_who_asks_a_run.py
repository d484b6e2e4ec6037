"""Who may ask a run by its `--http`: tokens, certificates, and addresses that others reach."""

import hashlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import expect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ikebana.errors import ConfigError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.listening import Address, Listening, Tls
from ikebana.processor.cli.http_options import AccessOptions
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.run import Watching, serving_metrics
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.watching import front, health
from ikebana.processor.watching.answering import serving
from ikebana.processor.watching.guard import (
    METRICS,
    PROBES,
    Access,
    AccessLimits,
    Grant,
    Guard,
    Rules,
)
from ikebana.processor.watching.monitor import Monitor
from ikebana.processor.watching.sinks import no_sinks
from support.browsers import chromium, looking
from support.certificates import Authority
from support.http_answers import ask
from support.pipeline_processes import Pipeline
from support.waiting import patient
from support.watched_runs import monitored

PLAN = Plan(
    "shop",
    inputs=(Input("orders", ("orders",)),),
    operators=(Upsert("current", "orders"),),
    outputs=(Output("hidden_out", "current", "orders.diffs"),),
)
TOKENS = """
tokens:
- {name: all, token: everything, collections: all}
- {name: prometheus, token: metrics, collections: []}
"""
GRANTS = {"everything": Grant("all"), "metrics": Grant("prometheus", {})}
ACCESS = Access({hashlib.sha256(token.encode()).digest(): GRANTS[token] for token in GRANTS})
CONSOLE = ("/v1/plan", "/v1/run", "/v1/history", "/v1/noted", "/v1/edit", "/v1/records?topic=t")
# All that the run knows by name.
NAMES = ("orders", "current", "hidden_out", "shop")


@pytest.fixture
def monitor() -> Monitor:
    """Of a run that has just begun."""
    return Monitor(PLAN, health.Health(health.HealthLimits(60, 900, 3600), time.monotonic))


def test_without_a_token_a_run_tells_whether_and_nothing_else(monitor: Monitor) -> None:
    """Where there are tokens; the files of the page have no data."""
    with monitored(monitor, AccessLimits(ACCESS)) as url:
        assert ask(f"{url}/live") == (200, "live\n")
        status, text = ask(f"{url}/ready")
        assert (status, json.loads(text)) == (503, {"ready": False})
        for path in (*METRICS, *CONSOLE, "/openapi.json", "/nothing"):
            for token in (None, "wrong", ""):
                status, text = ask(url + path, token)
                assert (status, any(name in text for name in NAMES)) == (401, False), path
        for path in PROBES:
            assert ask(url + path, "wrong")[0] == 401
        assert ask(f"{url}/console/main.js")[0] == 200
        assert not any(name in ask(f"{url}/")[1] for name in NAMES)


def test_a_token_sees_metrics_and_one_for_everything_the_console(monitor: Monitor) -> None:
    """So who scrapes need not see the plan."""
    with monitored(monitor, AccessLimits(ACCESS)) as url:
        for token, expected in (("metrics", 403), ("everything", 200)):
            assert ask(f"{url}/live", token)[1].startswith("live: ")
            assert "reason" in ask(f"{url}/ready", token)[1]
            assert "hidden_out" in ask(f"{url}/metrics", token)[1]
            assert ask(f"{url}/metrics/spark", token)[0] == 404
            for path in CONSOLE[:-1]:
                assert ask(url + path, token)[0] == expected, path
        _, text = ask(f"{url}/v1/plan", "metrics")
        assert "needs a token that may see all collections" in text
        assert not any(name in text for name in NAMES)


def test_a_name_that_points_here_is_not_answered(monitor: Monitor) -> None:
    """A web page could read what it says; unless anyone may, or tokens decide."""
    with monitored(monitor) as url:
        for path in (*PROBES, *METRICS, *CONSOLE):
            assert ask(url + path, headers={"Host": "evil.example"})[0] == 403, path
        for host in ("localhost", "localhost:9464", "127.0.0.1", "[::1]:9464"):
            assert ask(f"{url}/live", headers={"Host": host})[0] == 200, host
    with monitored(monitor, AccessLimits(any_host=True)) as url:
        assert ask(f"{url}/v1/run", headers={"Host": "driver.shops.svc"})[0] == 200
    with monitored(monitor, AccessLimits(ACCESS)) as url:
        assert ask(f"{url}/v1/run", "everything", headers={"Host": "driver.shops.svc"})[0] == 200


def test_probes_have_an_address_of_their_own(monitor: Monitor) -> None:
    """With what Prometheus reads, for whoever reaches it by whatever name; without a console."""
    ours = Address("127.0.0.1", 0)
    with serving(monitor, Listening(ours, probes=ours), AccessLimits(ACCESS)) as listening:
        url = f"http://127.0.0.1:{listening.probes_port}"
        assert ask(f"{url}/live", headers={"Host": "driver.shops.svc"})[1].startswith("live: ")
        assert "reason" in ask(f"{url}/ready")[1]
        assert "hidden_out" in ask(f"{url}/metrics")[1]
        for path in (*CONSOLE, "/console/", "/", "/openapi.json"):
            assert ask(url + path, "everything")[0] == 404, path


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands behind a guard that is asked alone."""


def test_who_guesses_tokens_has_to_wait() -> None:
    """Each address for itself, and who has a token does not."""
    guard = Guard(nothing, AccessLimits(ACCESS), Rules("", PROBES, (*PROBES, *METRICS)))

    def verdict(token: str | None, address: str) -> Grant | Response:
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        client = address, 1
        return guard.judged({"path": "/metrics", "headers": headers, "client": client})

    guesses = [verdict("no", "10.0.0.1") for _ in range(300)]
    refusals = [each for each in guesses if isinstance(each, Response)]
    assert len(refusals) == len(guesses)
    assert {each.status_code for each in refusals} == {401, 429}
    assert "Retry-After" in refusals[-1].headers
    other = verdict(None, "10.0.0.2")
    assert isinstance(other, Response)
    assert other.status_code == 401
    assert verdict("metrics", "10.0.0.1") is GRANTS["metrics"]


def test_a_token_asks_a_run_as_often_as_it_may(monitor: Monitor) -> None:
    """As a server; metrics and probes are asked for as often as wanted."""
    grant = Grant("slow", rate=0.001)
    limits = AccessLimits(Access({hashlib.sha256(b"slow").digest(): grant}))
    with monitored(monitor, limits) as url:
        assert [ask(f"{url}/v1/plan", "slow")[0] for _ in range(2)] == [200, 429]
        assert [ask(f"{url}/metrics", "slow")[0] for _ in range(2)] == [200, 200]


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Authority, Tls]:
    """A certificate of this machine, and who has signed it."""
    authority = Authority("runs")
    ours = authority.certified("localhost")
    (tmp_path / "ca.pem").write_text(authority.certificate)
    (tmp_path / "cert.pem").write_text(ours.certificate)
    (tmp_path / "key.pem").write_text(ours.key)
    return authority, Tls(tmp_path / "cert.pem", tmp_path / "key.pem")


def trusting(folder: Path, shown: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.check_hostname = False
    if shown is not None:
        (folder / "client.pem").write_text(shown)
        context.load_cert_chain(folder / "client.pem")
    return context


def test_a_run_answers_over_tls(
    monitor: Monitor,
    certified: tuple[Authority, Tls],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """To who trusts its certificate; who does not begin, or in the open, holds nobody up."""
    with monitored(monitor, tls=certified[1]) as url, ExitStack() as hanging:
        assert url.startswith("https://")
        port = int(url.rpartition(":")[2])
        hanging.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ask(f"{url}/live", trusting=trusting(tmp_path))[0] == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(f"{url}/live", trusting=ssl.create_default_context())
        with pytest.raises(OSError, match=r"."):
            ask(f"http://127.0.0.1:{port}/live")
        assert ask(f"{url}/v1/run", trusting=trusting(tmp_path))[0] == 200
    assert capfd.readouterr().err == ""


def test_a_connection_that_asks_for_nothing_is_closed(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Or begins and does not go on, so that there are some for others; and leaves no trace."""
    monkeypatch.setattr(front, "_REQUEST_S", 0.1)
    with monitored(monitor) as url:
        port = int(url.rpartition(":")[2])
        for begun in (b"", b"GET /live HTTP/1.1\r\n"):
            with socket.create_connection(("127.0.0.1", port), patient(20)) as asking:
                asking.sendall(begun)
                assert asking.recv(1) == b""
        with socket.create_connection(("127.0.0.1", port), patient(20)) as asking:
            asking.sendall(b"nonsense\r\n\r\n")
            assert asking.recv(12) == b"HTTP/1.1 400"
        assert ask(f"{url}/live")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_run_asks_for_certificates_of_clients(
    monitor: Monitor, certified: tuple[Authority, Tls], tmp_path: Path
) -> None:
    """And one of another authority is none; probes ask elsewhere."""
    authority, tls = certified
    asking = tls._replace(client_ca=tmp_path / "ca.pem")
    with monitored(monitor, tls=asking) as url:
        for signs, good in ((None, False), (Authority("runs"), False), (authority, True)):
            ours = None if signs is None else signs.certified("client")
            shown = None if ours is None else ours.certificate + ours.key
            context = trusting(tmp_path, shown)
            if good:
                assert ask(f"{url}/live", trusting=context)[0] == 200
            else:
                with pytest.raises(OSError, match=r"."):
                    ask(f"{url}/live", trusting=context)


def test_a_certificate_that_cannot_be_used_is_refused(monitor: Monitor, tmp_path: Path) -> None:
    """Before anything is started, with its file."""
    with (
        pytest.raises(ConfigError, match=r"none\.pem"),
        monitored(monitor, tls=Tls(tmp_path / "none.pem")),
    ):
        pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline whose brokers are not there."""
    return Pipeline(tmp_path, "localhost:1", "shop", "orders").file()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "driver.example", ""])
def test_an_address_that_others_reach_needs_to_know_who_asks(file: Path, host: str) -> None:
    """Or it would tell everybody by mistake."""
    refused = CliRunner().invoke(cli, ["run", str(file), "--http", f"{host}:0"])
    assert refused.exit_code == 1
    assert isinstance(refused.exception, ConfigError)
    assert "everybody who reaches it could read everything" in refused.exception.message
    assert "--token-file" in (refused.exception.hint or "")


def test_parts_of_a_certificate_need_it(file: Path) -> None:
    """A key or an authority alone make no TLS."""
    for option in ("--tls-key", "--tls-client-ca"):
        words = ["run", str(file), "--http", "127.0.0.1:0", option, "f.pem"]
        assert "need --tls-cert" in str(CliRunner().invoke(cli, words).exception)


NOBODY = AccessOptions(
    token_file=None,
    anyone=False,
    tls_cert=None,
    tls_key=None,
    tls_client_ca=None,
    probes=None,
)
OPEN = Watching(
    http=("127.0.0.1", 0),
    access=NOBODY,
    ready_within=60,
    stuck_after=None,
    start_within=3600,
)


@pytest.fixture
def told(
    certified: tuple[Authority, Tls], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[list[str]]:
    """What a run says of its addresses, with all options at once."""
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    given = OPEN._replace(
        http=("0.0.0.0", 0),
        access=NOBODY._replace(
            token_file=tmp_path / "tokens.yaml",
            tls_cert=certified[1].certificate,
            tls_key=certified[1].key,
            probes=("127.0.0.1", 0),
        ),
    )
    where = given.listening()
    assert where is not None
    # It has TLS.
    assert "warning" not in capfd.readouterr().err
    said: list[str] = []
    settings = Settings(checkpoint="./c", kafka={"bootstrap.servers": "localhost:1"})
    with serving_metrics(PLAN, settings, given, where, said.append, ({}, no_sinks)):
        yield said


def test_the_options_of_the_command_do_all_of_it(told: list[str], tmp_path: Path) -> None:
    """Tokens of a file, over TLS, with probes beside."""
    https = told[0].split()[1].removesuffix("/metrics,").replace("0.0.0.0", "127.0.0.1")
    context = trusting(tmp_path)
    assert ask(f"{https}/metrics", trusting=context)[0] == 401
    assert ask(f"{https}/metrics", "metrics", trusting=context)[0] == 200
    assert ask(f"{https}/v1/plan", "metrics", trusting=context)[0] == 403
    assert ask(f"{https}/v1/plan", "everything", trusting=context)[0] == 200
    # Where records can be looked at, the place of one that was not noted is no place.
    place = "/v1/records?topic=orders&partition=0&offset=0"
    assert ask(https + place, "everything", trusting=context)[0] == 404
    port = told[1].split()[-2].rstrip(",")
    assert ask(f"http://127.0.0.1:{port}/ready")[0] == 503


def test_tokens_without_tls_are_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    """Once others can reach the address."""
    OPEN._replace(access=NOBODY._replace(token_file=Path("t"))).listening()
    assert capfd.readouterr().err == ""
    OPEN._replace(http=("0.0.0.0", 0), access=NOBODY._replace(anyone=True)).listening()
    assert "0.0.0.0 is answered without TLS" in capfd.readouterr().err


def test_the_page_asks_for_a_token_and_goes_on_with_it(monitor: Monitor) -> None:
    """And says what one that sees metrics only is refused."""
    with (
        monitored(monitor, AccessLimits(ACCESS)) as url,
        chromium() as browser,
        looking(browser) as page,
    ):
        page.goto(f"{url}/console/")
        page.get_by_label("Token", exact=True).fill("metrics")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#state")).to_contain_text("the token may see metrics only")
        page.locator("#token").click()
        page.get_by_label("Token", exact=True).fill("everything")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("h1")).to_have_text("shop")
        expect(page.locator("td", has_text="hidden_out").first).to_be_visible()

"""`ikebana top`: watch a run or a server in a terminal, by its answers over HTTP."""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ikebana.errors import AccessError, AwayError, ConfigError
from ikebana.processor.base.texts import counted, moment
from ikebana.processor.cli.http_options import Credentials, Number, with_credentials

_PATIENCE_S = 10.0
# Between the two looks of --once, for rates.
_ONCE_S = 1.0


class StatusAnswer(NamedTuple):
    """The answer of a run or of a server at a moment."""

    at: float
    is_run: bool
    answer: Mapping[str, Any]

    def counts(self) -> dict[str, float]:
        """Return the counters to compute rates from, by name."""
        if self.is_run:
            outputs = {name: each["updates"] for name, each in self.answer["outputs"].items()}
            return {**outputs, "": self.answer["records"]}
        return {each["collection"]["name"]: each["updates"] for each in self.answer["collections"]}


class Rates:
    """Rates per second between two looks; empty texts after a single look."""

    def __init__(self, before: StatusAnswer | None, now: StatusAnswer) -> None:
        self._before = {} if before is None else before.counts()
        self._now = now.counts()
        self._seconds = 0.0 if before is None else now.at - before.at

    def of(self, name: str) -> str:
        """Return the rate of a counter; empty if the counter was reset by a restart."""
        before, now = self._before.get(name), self._now[name]
        if before is None or now < before or self._seconds <= 0:
            return ""
        return f"{(now - before) / self._seconds:,.0f}"


@click.command("top")
@click.argument("address", metavar="URL|HOST:PORT")
@click.option(
    "--every",
    metavar="SECONDS",
    type=Number(min=0.1),
    default=2.0,
    show_default=True,
    help="The time between two requests.",
)
@click.option("--once", is_flag=True, help="Watch for a second, print what was seen, and end.")
@with_credentials
def top_command(
    address: str,
    *,
    every: float,
    once: bool,
    credentials: Credentials,
) -> None:
    """Watch the run or the server whose --http is HOST:PORT: frontiers, lag, rates, keys.

    \b
    ikebana top 127.0.0.1:9464

    Ctrl-C ends it.  If the server does not answer, the last page stays, and says so.

    Exit status 0: ended.  1: it does not answer, or refuses.
    """
    server = Server(address, *credentials)
    before, console = server.look(), Console(highlight=False)
    if once:
        time.sleep(_ONCE_S)
        console.print(page(before, server.look()))
        return
    with Live(page(None, before), console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                time.sleep(every)
                now = server.look()
            except KeyboardInterrupt:
                return
            except AwayError as error:
                live.update(page(None, before, str(error)), refresh=True)
                continue
            live.update(page(before, now), refresh=True)
            before = now


class Server:
    """A run or a server to ask; the first look finds out which."""

    def __init__(self, address: str, token: str | None, tls: ssl.SSLContext) -> None:
        url = address if "://" in address else f"http://{address}"
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f'cannot watch "{address}": it is neither a URL of HTTP nor HOST:PORT',
                hint="Give the address of --http, such as 127.0.0.1:8080.",
            )
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._tls = tls
        self._is_run: bool | None = None

    def look(self) -> StatusAnswer:
        """Ask for the present state.

        Raises:
            AwayError: it does not answer.
            AccessError: it needs a token, or another one.
            ConfigError: it is no run and no server of ikebana.
        """
        if self._is_run is not False:
            answer = self._asked("/v1/run")
            if answer is not None:
                self._is_run = True
                return StatusAnswer(time.monotonic(), is_run=True, answer=answer)
        answer = self._asked("/v1/collections")
        if answer is None:
            raise ConfigError(
                f"{self._url} is neither a run nor a server of ikebana",
                hint="Give the address of --http of `ikebana run` or `ikebana serve`.",
            )
        self._is_run = False
        return StatusAnswer(time.monotonic(), is_run=False, answer=answer)

    def _asked(self, path: str) -> Mapping[str, Any] | None:
        """Return an answer; None if there is no such path."""
        request = urllib.request.Request(self._url + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=self._tls) as answer:
                content: dict[str, Any] = json.loads(answer.read())
                return content
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise AccessError(
                    f"{self._url} refuses to answer: {_reason(error)}", hint="Give --token."
                ) from error
            if error.code == 404:
                return None
            raise AwayError(f"{self._url} answers with status {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            raise AwayError(
                f"{self._url} does not answer: {getattr(error, 'reason', error)}",
                hint="Is `ikebana run --http` or `ikebana serve` running there?",
            ) from error
        except ValueError:
            return None


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (ValueError, KeyError, TypeError):
        return error.reason


def page(before: StatusAnswer | None, now: StatusAnswer, wrong: str | None = None) -> Group:
    """Render a look as a page, with rates since the look before."""
    rates = Rates(before, now)
    parts = _run(now.answer, rates) if now.is_run else _served(now.answer, rates)
    if wrong is not None:
        parts.insert(0, Text(wrong, style="red"))
    return Group(*parts)


def _run(answer: Mapping[str, Any], rates: Rates) -> list[Text | Table]:
    state = answer["state"]
    head = Text(f"{answer['pipeline']}: ", style="bold")
    head.append("ready" if answer["ready"] else "not ready", "green" if answer["ready"] else "red")
    head.append(f" ({answer['reason']})", "")
    facts = [f"lag {_seconds(answer['lag_s'])}", f"batch {_number(answer['batch'])}"]
    facts.append(f"{answer['records']:,} records, {rates.of('') or '-'} /s")
    facts.append(counted(answer["restarts"], "restart"))
    facts.append(f"state {_bytes(state['bytes'])}, {state['entries']:,} entries")
    parts: list[Text | Table] = [head, Text("; ".join(facts))]
    outputs = _table("output", "frontier", "lag", "updates", "updates/s")
    for name, each in answer["outputs"].items():
        outputs.add_row(
            Text(name),
            _time(each["frontier"]),
            _seconds(each["lag_s"]),
            _number(each["updates"]),
            rates.of(name),
        )
    parts.append(outputs)
    operators = _table("operator", "frontier", "lag")
    for name, frontier, lag_s in _by_relation(answer["operators"]):
        operators.add_row(Text(name), _time(frontier), _seconds(lag_s))
    parts.append(operators)
    if answer["inputs"]:
        inputs = _table("input", "frontier", "")
        for name, each in answer["inputs"].items():
            held = "holds the others" if each["holds"] else "silent" if each["silent"] else ""
            inputs.add_row(Text(name), _time(each["frontier"]), held)
        parts.append(inputs)
    if wrong := {kind: count for kind, count in answer["counted"].items() if count}:
        parts.append(
            Text("; ".join(f"{count:,} {kind}" for kind, count in wrong.items()), style="yellow")
        )
    return parts


def _by_relation(
    operators: Mapping[str, Mapping[str, Any]],
) -> list[tuple[str, int | None, float | None]]:
    """Return names, frontiers and lags; the slowest arrangement stands for all of its relation.

    The name of an arrangement is its relation and a hash, with a colon between.
    """
    slowest: dict[str, tuple[int | None, float | None]] = {}
    for name, each in operators.items():
        relation, colon, _ = name.partition(":")
        shown = f"{relation}, arranged" if colon else name
        frontier, lag_s = slowest.get(shown, (each["frontier"], each["lag_s"]))
        slowest[shown] = (
            _least(frontier, each["frontier"]),
            None if None in (lag_s, each["lag_s"]) else max(lag_s or 0.0, each["lag_s"]),
        )
    return [(name, *figures) for name, figures in slowest.items()]


def _least(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def _served(answer: Mapping[str, Any], rates: Rates) -> list[Text | Table]:
    heads = ("collection", "since", "upper", "lag", "keys", "bytes", "disk", "updates/s")
    table = _table(*heads)
    for each in answer["collections"]:
        info = each["collection"]
        lag = each["lag_s"] if each["lag_s"] is not None else each["caught_up_s"]
        table.add_row(
            Text(info["name"]),
            _time(info["since"]),
            _time(info["upper"]),
            "catching up" if each["caught_up_s"] is None else _seconds(lag),
            _number(info["keys"]),
            _bytes(info["bytes"]),
            _bytes(each["disk_bytes"]),
            rates.of(info["name"]),
        )
    return [Text(f"newest time of all: {_time(answer['newest'])}"), table]


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(heads):
        # In a narrow terminal a name or a time goes on in the next line.
        justify: JustifyMethod = "left" if number == 0 else "right"
        table.add_column(head, justify=justify, overflow="fold")
    return table


def _time(value: int | None) -> str:
    return "" if value is None else moment(value)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} s"


def _bytes(value: float | None) -> str:
    if value is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1_000
    return f"{value:,.1f} TB"

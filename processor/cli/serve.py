"""`ikebana serve`: follow outputs into local arrangements, and answer reads of them."""

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path

import click

from ikebana.errors import ConfigError
from ikebana.processor.cli.connection import read_config
from ikebana.processor.cli.watching import address
from ikebana.processor.ground.log_lines import note
from ikebana.processor.kafka import client
from ikebana.processor.planning.plan import Plan

_DEFAULT = "localhost:9092"
_FORMATS = ("diff", "cdcv2-json", "cdcv2-avro", "debezium-json", "upsert")


class _Retain(click.ParamType[object]):
    """A duration, or a number of times."""

    name = "retention"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Parse the argument, or refuse it with the forms that it may have."""
        from ikebana.serving.retention import parsed

        try:
            return parsed(str(value))
        except ValueError:
            self.fail(
                f'"{value}" is neither a duration, such as 30m, 1h or 7d, nor a number of times',
                param,
                ctx,
            )


@click.command("serve")
@click.argument("what", metavar="PIPELINE|TOPIC...", nargs=-1, required=True)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("served"),
    show_default=True,
    help="The folder of the arrangements.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    type=address,
    default="127.0.0.1:8080",
    show_default=True,
    envvar="IKEBANA_SERVE_HTTP",
    help="Where to answer; port 0 takes any that is free. [env: IKEBANA_SERVE_HTTP]",
)
@click.option(
    "--retain",
    metavar="TIME",
    type=_Retain(),
    help="How long history is kept: a duration where times are milliseconds, else a number of "
    "times.  [default: 1h, or 1000000]",
)
@click.option("--rebuild", is_flag=True, help="Read the topics from their beginning.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Bearer tokens, one a line; without it, everybody who reaches the address may read.",
)
@click.option(
    "--ready-within",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="/ready answers yes if all of each topic was read within this time.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="The format of all TOPICs.  [default: diff]",
)
@click.option(
    "--bootstrap-servers",
    metavar="H:P",
    envvar="IKEBANA_BOOTSTRAP_SERVERS",
    help=f"Brokers; wins over the files. [env: IKEBANA_BOOTSTRAP_SERVERS; default: {_DEFAULT}]",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings of the Kafka client, a line `key=value` each.",
)
def serve_command(
    what: tuple[str, ...],
    *,
    data: Path,
    http: tuple[str, int],
    retain: object,
    rebuild: bool,
    token_file: Path | None,
    ready_within: float,
    form: str | None,
    bootstrap_servers: str | None,
    config: Path | None,
) -> None:
    """Serve the outputs of PIPELINE, a YAML file or module:name, or the output topics TOPIC....

    Each topic is followed into an arrangement in the folder --data, which other processes
    read with `ikebana.open`, and which is read over HTTP as of any time that --retain keeps.
    A restart goes on where it stopped.  SIGTERM or Ctrl-C ends it.  Browsers find a console at
    /console/.

    Exit status 0: stopped.  1: a topic cannot be followed; the message says why.
    """
    try:
        from ikebana.serving.http.app import Limits
        from ikebana.serving.http.server import Address, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot serve: there is no module {error.name}",
            hint='Install ikebana with what it needs: pip install "ikebana[serve]".',
        ) from error
    from ikebana.processor.console import plan_view
    from ikebana.processor.kafka import following
    from ikebana.serving.retention import USUAL, Retention
    from ikebana.serving.service import Service, Wanted

    tokens = () if token_file is None else _tokens(token_file)
    settings, formats, plan = _wanted(what, form, bootstrap_servers, config)
    client.reach(settings)
    retention = retain if isinstance(retain, Retention) else USUAL
    service = Service(
        Wanted(formats, data, retention, rebuild),
        functools.partial(following.follow, settings),
        note,
    )
    drawn = None if plan is None else plan_view.of_served(plan)
    serve(service, Address(*http), Limits(tokens), ready_within, note, drawn)


def _wanted(
    what: Sequence[str], form: str | None, bootstrap_servers: str | None, config: Path | None
) -> tuple[dict[str, str], dict[str, str], Plan | None]:
    """Return the settings of the Kafka client, the topics with their formats, and the plan."""
    plan = None
    settings = {} if config is None else read_config(config)
    if _is_pipeline(what[0]):
        if len(what) > 1 or form is not None:
            raise ConfigError("cannot serve: a pipeline stands alone, and names its formats")
        # Imported here, so that `--help` does not wait for DuckDB.
        from ikebana.processor.cli import finding

        found = finding.read(
            Path(what[0]),
            bootstrap_servers=bootstrap_servers,
            checkpoint="-",
            environ=os.environ,
        )
        settings = {**found.settings.kafka, **settings}
        plan = found.plan
        formats: dict[str, str] = {each.topic: each.format for each in plan.published}
    else:
        formats = dict.fromkeys(what, form or "diff")
    for topic in formats:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
            raise ConfigError(f'cannot serve "{topic}": it is no name of a topic')
    if bootstrap_servers:
        settings["bootstrap.servers"] = bootstrap_servers
    settings.setdefault("bootstrap.servers", _DEFAULT)
    return settings, formats, plan


def _is_pipeline(given: str) -> bool:
    return ":" in given or given.endswith((".yaml", ".yml")) or Path(given).is_file()


def _tokens(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"could not read tokens {path}: {error}") from error
    if not lines:
        raise ConfigError(
            f"cannot use tokens {path}: it has none", hint="Write one token on each line."
        )
    return tuple(lines)

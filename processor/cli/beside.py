"""The sinks of a pipeline's file beside its run: who runs them, and where they are asked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ikebana.errors import ConfigError
from ikebana.processor.base.spelling import instead

if TYPE_CHECKING:
    from ikebana.processor.authoring.deliver_part import DeliverPart
    from ikebana.processor.watching.sink_processes import Sinks


class _Place(click.ParamType[tuple[str, str]]):
    """NAME=URL."""

    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Parse the argument, or refuse it with the form that it has to have."""
        sink, equals, url = str(value).partition("=")
        if not (sink and equals and url.startswith(("http://", "https://"))):
            self.fail(f'"{value}" is no NAME=URL, such as lake=http://lake:9404', param, ctx)
        return sink, url.rstrip("/")


_OPTIONS = (
    click.option(
        "--deliver/--no-deliver",
        "delivers",
        default=True,
        envvar="IKEBANA_DELIVER",
        help="Run the sinks of the section `deliver` beside the pipeline, each in a process of "
        "its own, or leave them to `ikebana deliver`. [env: IKEBANA_DELIVER; default: --deliver]",
    ),
    click.option(
        "--sink-at",
        metavar="NAME=URL",
        type=_Place(),
        multiple=True,
        envvar="IKEBANA_SINK_AT",
        help="Where a sink that runs elsewhere answers /ready, for the console and metrics; it is "
        "not run here. May be repeated. [env: IKEBANA_SINK_AT, separated by spaces]",
    ),
)


def with_sinks(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--deliver` and `--sink-at` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Here(NamedTuple):
    """The pipeline file of a run, with the options of its command that its sinks need."""

    file: Path
    bootstrap_servers: str | None
    checkpoint: str | None
    delivers: bool
    places: Mapping[str, str]


def sinks_of(parts: "Mapping[str, DeliverPart]", here: Here) -> "Sinks":
    """The sinks of a file that are run here, and those with a known address.

    Raises: ConfigError, for the place of a sink that the file does not have.
    """
    file, bootstrap_servers, checkpoint, delivers, places = here
    from ikebana.processor.watching.sink_processes import Sinks

    for name in places:
        if name not in parts:
            raise ConfigError(
                f'--sink-at: {file} has no sink "{name}"{instead(name, parts)}',
                hint="Name sinks of its section `deliver`.",
            )
    options = {"--bootstrap-servers": bootstrap_servers, "--checkpoint": checkpoint}
    words = [word for name, value in options.items() if value for word in (name, value)]
    shown = {name: part for name, part in parts.items() if delivers or name in places}
    return Sinks(shown, file, words, places)

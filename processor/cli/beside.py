"""The sinks of a pipeline's file beside its run: who runs them, and where they are asked."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.errors import ConfigError
from ikebana.processor.base.spelling import instead

if TYPE_CHECKING:
    from ikebana.processor.authoring.deliver_part import DeliverPart
    from ikebana.processor.base.stopping import Stopping
    from ikebana.processor.watching.sinks import SinkBoard


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


class Sinks:
    """The sinks of a file, and their commands beside its pipeline."""

    def __init__(
        self,
        file: Path,
        bootstrap_servers: str | None,
        checkpoint: str | None,
        *,
        delivers: bool,
        places: Mapping[str, str],
    ) -> None:
        """Read the file.  Raises: ConfigError, for the place of a sink that it does not have."""
        from ikebana.processor.authoring import sink_file

        parts = sink_file.read(file, os.environ).sections.deliver
        for name in places:
            if name not in parts:
                raise ConfigError(
                    f'--sink-at: {file} has no sink "{name}"{instead(name, parts)}',
                    hint="Name sinks of its section `deliver`.",
                )
        self._places = places
        self._names = [name for name in parts if delivers and name not in places]
        options = {"--bootstrap-servers": bootstrap_servers, "--checkpoint": checkpoint}
        self._file = file
        self._options = {name: value for name, value in options.items() if value}
        self.parts: Mapping[str, DeliverPart] = {
            name: part for name, part in parts.items() if delivers or name in places
        }
        """The sinks that are run here, and those with a known address."""

    def commands(self, *options: str) -> dict[str, list[str]]:
        """The commands of the sinks that are run here, by name."""
        words = [sys.executable, "-m", "ikebana", "deliver", str(self._file)]
        common = [word for pair in self._options.items() for word in pair]
        return {name: [*words, name, *common, *options] for name in self._names}

    @contextmanager
    def board(self) -> Iterator["SinkBoard"]:
        """Within a `with` block, keep a board with the progress of the sinks."""
        from ikebana.processor.watching.sinks import SinkBoard

        with SinkBoard(self.parts) as board:
            for name, url in self._places.items():
                board.at(name, url)
            yield board

    @contextmanager
    def beside(
        self, board: "SinkBoard", say: Callable[[str], None], *, once: bool
    ) -> Iterator[Callable[[], None]]:
        """Run the sinks within a `with` block, which gets a function that starts them.

        They start after the query, which creates the topics of a new pipeline.  With `once` they
        are not run here; see `deliver_once`.
        """
        if once or not self._names:
            yield lambda: None
            return
        from ikebana.delivering.beside import beside

        with beside(self.commands("--http", "127.0.0.1:0"), board, say) as start:
            yield start

    def deliver_once(
        self, board: "SinkBoard", say: Callable[[str], None], stopping: "Stopping"
    ) -> None:
        """Deliver all closed batches.  Raises: SinkError, FencedError, if a sink has failed."""
        if self._names and not stopping.asked:
            from ikebana.delivering.beside import delivered

            delivered(self.commands("--once"), board, say, stopping)

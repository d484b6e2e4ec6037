"""The `ikebana` command; the file of a subcommand is imported when it is used."""

import atexit
import errno
import importlib
import os
import signal
import sys

import click

from ikebana import __version__
from ikebana.errors import EXIT_FENCED, FencedError, IkebanaError, OutputError
from ikebana.processor.base import log_lines
from ikebana.processor.base.processes import seldom_collect
from ikebana.processor.base.texts import suggestion

# Name: module, and the line in the list of commands.
_COMMANDS = {
    "new": ("new", "Write a first pipeline file, from a topic or as a sample."),
    "run": ("run", "Run a pipeline."),
    "preflight": ("preflight", "Check whether a pipeline could start now."),
    "explain": ("plan", "Show what a pipeline will do."),
    "plan": ("plan", "Show what an edited pipeline file changes."),
    "schema": ("new", "Print the JSON Schema of pipeline files, for editors."),
    "follow": ("follow", "Watch an output topic: updates, frontier, lag."),
    "serve": ("serve", "Serve outputs as of any time: over HTTP, in SQL, from Python."),
    "deliver": ("deliver", "Keep tables of a database or a lake equal to outputs, exactly once."),
    "top": ("top", "Watch a run or a server in the terminal."),
    "sql": ("sql", "Query outputs in SQL as of a time."),
    "check": ("check", "Verify that an output topic is complete and correct."),
    "snapshot": ("snapshot", "Print an output's collection as of a time."),
    "compact": ("snapshot", "Write snapshots of output topics, and delete old records."),
    "errors": ("errors", "List the current errors of a pipeline."),
    "state": ("state", "List, verify and read a checkpoint, offline."),
    "recover": ("state", "Rebuild a lost checkpoint from the pipeline's topics."),
    "rescale": ("state", "Rewrite a checkpoint for another number of shards."),
    "prepare": ("prepare", "Make later starts of `run` faster on this machine."),
    "broker": ("broker", "Start a Kafka broker on this machine, to try things out."),
    "demo": ("demo", "Run a pipeline on real data and check the result."),
}
EXIT_ERROR = 1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})


class _Commands(click.Group):
    """Loads a command's module when it is called: `--help` needs neither Spark nor Kafka."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"ikebana.processor.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        # A signal must not interrupt the import above, but it may interrupt the command.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or propose the ones that may be meant."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f'there is no command "{args[0]}"{suggestion(args[0], _COMMANDS)}')
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command, which ends when its output cannot be written."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe.
            _abandon_output()
        except OSError as error:
            # An error of a file has its name; standard output has none.
            if error.errno not in _FULL or error.filename is not None:
                raise
            _abandon_output()
            raise OutputError(f"could not write the output: {error.strerror}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _tell_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001 -- as click calls it
    """Print the version, and whether the compiled code is there."""
    if not asked:
        return
    from ikebana.processor.base.fast_paths import absent

    lacks = absent()
    how = f"without compiled code: {', '.join(lacks)}" if lacks else "with compiled code"
    click.echo(f"ikebana {__version__}, {how}")
    ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version, and whether its compiled code is there.",
)
def cli() -> None:
    """Keep collections over Kafka topics current: upserts in, exact updates out.

    \b
    ikebana new orders.yaml --topic orders    a first pipeline file
    ikebana run orders.yaml                   run it
    ikebana follow orders.totals              watch an output
    """


def _hush() -> None:
    """Close standard error after everything else at Python's exit.

    A daemon thread of Spark may still hold our modules, about which DuckDB's binding then
    prints long warnings.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _abandon_output() -> None:
    """Redirect standard output to nothing, so that the flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fill_streams() -> None:
    """Open closed standard streams on nothing, or the next file would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, "w" if number else "r"))


def main() -> None:
    """Run the command line; an `IkebanaError` is printed as a message without a stack."""
    _fill_streams()
    # Exit handlers run in reverse order, so this one runs last.
    atexit.register(_hush)
    log_lines.choose(os.environ)
    seldom_collect()
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except FencedError as error:
        log_lines.error(f"ikebana: {error}")
        sys.exit(EXIT_FENCED)
    except IkebanaError as error:
        log_lines.error(f"ikebana: {error}")
        sys.exit(EXIT_ERROR)

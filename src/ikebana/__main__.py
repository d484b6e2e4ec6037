"""The `ikebana` command, as what the interpreter meets first."""

import signal


def main() -> None:
    """Run the command line.

    Until that can answer it, an interrupt ends the process in silence: nothing has begun.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ikebana.processor.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()

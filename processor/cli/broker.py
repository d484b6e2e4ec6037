"""`ikebana broker`: run the embedded broker in the foreground until a signal ends it."""

import signal
from pathlib import Path

import click

from ikebana.processor.kafka.broker import KAFKA_VERSION, jars_fetched, running


@click.command("broker")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9092,
    show_default=True,
    help="The port, on 127.0.0.1.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder for the topics; it is kept.  [default: a temporary folder, removed at the "
    "end]",
)
def broker_command(port: int, data: Path | None) -> None:
    """Run a Kafka broker on this machine, to try things out.

    \b
    ikebana broker                             until Ctrl-C; then its topics are removed
    ikebana broker --port 9093 --data kafka    with topics that stay

    It needs Java 17 or newer, and creates a topic when a record is first written to it.
    The first start downloads Kafka from Maven Central.
    """
    # A shell's background jobs ignore SIGINT unless it is set; both signals end the block below.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not jars_fetched():
        click.echo(f"downloading Apache Kafka {KAFKA_VERSION}, 44 MB; this is done once")
    try:
        with running(data, port, {"auto.create.topics.enable": "true"}) as broker:
            kind = "temporary data" if data is None else "data"
            click.echo(
                f"broker ready at {broker.bootstrap_servers} "
                f"({kind} in {broker.data}, log in {broker.log_file}); Ctrl-C to stop"
            )
            broker.wait()
    except KeyboardInterrupt:
        click.echo("broker stopped")

"""A topic as `ikebana new` alone declares it: the rows that its messages come to."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner
from confluent_kafka import Message

import ikebana.testing
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.cli.main import cli
from ikebana.processor.kafka.registry import Registry
from ikebana.processor.planning.plan import Input

Row = dict[str, Any]


class Declared(NamedTuple):
    """The input that is in the written file, its text, and the rows, by id."""

    source: Input
    text: str
    rows: dict[int, Row]


def declared(
    folder: Path, topic: str, messages: Sequence[Message], servers: str, registry: str, *more: str
) -> Declared:
    """Run `ikebana new` on a topic, and the file that it writes on the topic's messages."""
    path = folder / "new.yaml"
    asked = ["new", str(path), "--topic", topic, "--brokers", servers, "--registry", registry]
    done = CliRunner().invoke(cli, [*asked, *more])
    assert done.exit_code == 0, (done.output, done.exception)
    text = path.read_text()
    plan = parse(text, str(path), environ={}).plan
    run = ikebana.testing.Run(plan, schemas=Registry({"url": registry}, 30))
    for message in messages:
        headers: Any = message.headers()
        run.topics.send(topic, message.key(), message.value(), headers=headers)
    run.read()
    assert run.errors() == []
    rows = [_exact(value) for _, value in run.collection("changes")]
    return Declared(plan.inputs[0], text, {int(row["id"]): row for row in rows})


def _exact(row: Any) -> Any:
    """A row with exact numbers, as the database's rows have them."""
    from ikebana.codecs import canonical

    return json.loads(canonical.encode(row), parse_float=Decimal)

"""Errors of what an edit ends are taken back out of the error topic, through Kafka and Spark."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed
from support.pipeline_processes import create, produce, written

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def sections(name: str, *inputs: str, policy: str = "record") -> str:
    modes = {"orders": {}, "clicks": {"mode": "append"}}
    operators: dict[str, Any] = {
        "order": {"upsert": "orders"},
        "clicked": {"linear": "clicks", "where": "(10 / n)::BIGINT > 1"},
    }
    shown = dict(zip(("orders", "clicks"), operators, strict=True))
    return json.dumps(
        {
            "inputs": {
                each: {"topic": f"{name}.{each}", "columns": {"n": "BIGINT"}, **modes[each]}
                for each in inputs
            },
            "operators": {shown[each]: operators[shown[each]] for each in inputs},
            "outputs": {e: {"from": shown[e], "topic": f"{name}.{e}.out"} for e in inputs},
            "errors": {"policy": policy, "topic": f"{name}.errors"},
        }
    )


def errors(servers: str, name: str) -> Counter[str]:
    """The errors that stand, by what begins their reasons."""
    found: Counter[bytes] = Counter()
    for message in committed(servers, f"{name}.errors"):
        found[message.value()] += int(dict(message.headers())["diff"])
    assert min(found.values(), default=0) >= 0
    reasons = (json.loads(record)["reason"] for record in found.elements())
    return Counter(" ".join(reason.split()[:2]) for reason in reasons)


def test_errors_go_with_their_input_and_with_the_policy(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    servers, name = broker.bootstrap_servers, topic_name("shop")
    messages = [(b"1", b'{"n":"x"}'), (b"2", b'{"n":0}'), (b"3", b'{"n":1}'), (b"{", b"{}")]
    for topic in ("orders", "clicks"):
        create(servers, f"{name}.{topic}", 2)
        produce(servers, f"{name}.{topic}", messages)
    pipeline = written(tmp_path, servers, name, {}, limit=500)
    replace(pipeline, sections=sections(name, "orders", "clicks")).drained()
    of_orders = Counter({'column "n"': 1, "could not": 1})
    assert errors(servers, name) == of_orders + of_orders + Counter({"operator clicked:": 1})

    less = replace(pipeline, sections=sections(name, "orders"))
    with less.start("--once") as run:
        run.wait(120)
    assert 'what output "errors" has had is read from its own topic' in run.text
    assert errors(servers, name) == of_orders

    dropping = replace(pipeline, sections=sections(name, "orders", policy="drop"))
    dropping.drained()
    assert not errors(servers, name)
    produce(servers, f"{name}.orders", [(b"1", b'{"n":1}'), (b"4", b'{"n":"x"}')])
    dropping.drained()
    assert not errors(servers, name)

    back = replace(pipeline, sections=sections(name, "orders"))
    with back.start("--once") as run:
        assert run.wait(120) == 1
    assert "errors.policy was drop, is record" in run.text

"""Errors of what an edit ends are taken back out of the error topic, through Kafka and Spark."""

from collections import Counter
from typing import Any

import pytest

from support.pipeline_processes import Written, WrittenOver
from support.shops import shown

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def sections(name: str, *inputs: str, policy: str = "record") -> dict[str, Any]:
    modes = {"orders": {}, "clicks": {"mode": "append"}}
    operators: dict[str, Any] = {
        "order": {"upsert": "orders"},
        "clicked": {"linear": "clicks", "where": "(10 / n)::BIGINT > 1"},
    }
    shown = dict(zip(("orders", "clicks"), operators, strict=True))
    return {
        "inputs": {
            each: {"topic": f"{name}.{each}", "columns": {"n": "BIGINT"}, **modes[each]}
            for each in inputs
        },
        "operators": {shown[each]: operators[shown[each]] for each in inputs},
        "outputs": {e: {"from": shown[e], "topic": f"{name}.{e}.out"} for e in inputs},
        "errors": {"policy": policy, "topic": f"{name}.errors"},
    }


def errors(pipeline: Written) -> Counter[str]:
    """The errors that stand, by what begins their reasons."""
    reasons = (record["reason"] for _, record in shown(pipeline, "errors").elements())
    return Counter(" ".join(reason.split()[:2]) for reason in reasons)


def test_errors_go_with_their_input_and_with_the_policy(written_over: WrittenOver) -> None:
    pipeline = written_over("orders", "clicks", limit=500)
    name = pipeline.name
    messages = [(b"1", b'{"n":"x"}'), (b"2", b'{"n":0}'), (b"3", b'{"n":1}'), (b"{", b"{}")]
    for topic in ("orders", "clicks"):
        pipeline.send_to(topic, messages)
    pipeline.having(sections(name, "orders", "clicks")).drained()
    of_orders = Counter({'column "n"': 1, "could not": 1})
    assert errors(pipeline) == of_orders + of_orders + Counter({"operator clicked:": 1})

    less = pipeline.having(sections(name, "orders"))
    with less.start("--once") as run:
        run.wait(120)
    assert 'what output "errors" has had is read from its own topic' in run.text
    assert errors(pipeline) == of_orders

    dropping = pipeline.having(sections(name, "orders", policy="drop"))
    dropping.drained()
    assert not errors(pipeline)
    pipeline.send_to("orders", [(b"1", b'{"n":1}'), (b"4", b'{"n":"x"}')])
    dropping.drained()
    assert not errors(pipeline)

    back = pipeline.having(sections(name, "orders"))
    with back.start("--once") as run:
        assert run.wait(120) == 1
    assert "errors.policy was drop, is record" in run.text

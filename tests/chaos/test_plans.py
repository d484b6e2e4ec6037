"""The truth that lives are judged by is that of their plans."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import ikebana as ik
from chaos.plans import EDITED, JOINED, Plan


@pytest.mark.parametrize("plan", [JOINED, EDITED["joined"]], ids=lambda plan: plan.name)
def test_the_truth_of_a_plan_is_what_its_updates_come_to(plan: Plan, tmp_path: Path) -> None:
    choice, last, records = Random(5), dict[bytes, bytes](), []
    for time in range(60):
        key, value = b"k%d" % choice.randrange(9), choice.randrange(5)
        records.append((key, {"v": value} if value else None, time))
        last[key] = b'{"v":%d}' % value if value else b""
    file = tmp_path / "pipeline.yaml"
    document = {"pipeline": "p", **plan.sections, "time": "offset"}
    where = {"kafka": {"bootstrap.servers": "nowhere:1"}, "run": {"checkpoint": "none"}}
    file.write_text(json.dumps({**document, **where}))

    found = Counter[tuple[bytes, str]]()
    for update in ik.load(str(file)).evaluate(changes=records)["out"]:
        key, row = update.data
        written = json.dumps(row, sort_keys=True, separators=(",", ":"))
        found[json.dumps(key).encode(), written] += update.diff

    truth = plan.truth({key: value for key, value in last.items() if value})
    assert len(truth) > 3
    assert {each: count for each, count in found.items() if count} == dict.fromkeys(
        ((key, value.decode()) for key, value in truth.items()), 1
    )

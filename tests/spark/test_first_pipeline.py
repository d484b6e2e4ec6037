"""The first pipeline of the README, as a new user runs it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.processor.kafka.broker import Broker
from support.doc_blocks import named
from support.pipeline_processes import create
from support.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_the_first_pipeline_shows_old_values_leaving(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Each command of the README does what the README says of it."""
    flights, whereabouts = topic_name("flights"), topic_name("whereabouts")

    def ours(text: str) -> str:
        for theirs, our in [
            ("localhost:9092", broker.bootstrap_servers),
            ("topic: flights", f"topic: {flights}"),
            ('"flights"', f'"{flights}"'),
            ("topic: whereabouts", f"topic: {whereabouts}"),
            ("pipeline: first", f"pipeline: {topic_name('first')}"),
        ]:
            text = text.replace(theirs, our)
        return text

    def ikebana(*words: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ikebana")), *words],
            capture_output=True,
            text=True,
            timeout=patient(240),
            check=False,
            cwd=tmp_path,
            env={**os.environ, "IKEBANA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # The broker of the tests makes no topic by itself; that of `ikebana broker` does.
    create(broker.bootstrap_servers, flights, 1)
    (tmp_path / "first.yaml").write_text(ours(named("README-2").text))
    exec(compile(ours(named("README-1").text), "README-1", "exec"), {})

    ikebana("run", "first.yaml", "--once")

    followed = ikebana("follow", whereabouts, "--until", "4").splitlines()
    updates = [line.split(maxsplit=1) for line in followed if line[:1].isdigit()]
    of_n1 = [rest for _, rest in updates if "N1" in rest]
    assert len(updates) == 5
    assert sorted(rest.split()[0] for rest in of_n1) == ["+1", "+1", "-1"]
    assert "MIA" in ikebana("snapshot", whereabouts)
    assert "LGA" not in ikebana("snapshot", whereabouts)
    assert "ok" in ikebana("check", whereabouts)

"""A run that is watched: its probes, and a scrape that has all that alerts and dashboard name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support import chart_metrics
from support.http_answers import ask
from support.pipeline_processes import Pipeline, create, produce, records_of, upserts
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


class WithUi(Pipeline):
    """A pipeline whose Spark shows its UI, on any port."""

    def file(self) -> Path:
        path = super().file()
        document = json.loads(path.read_text())
        document["spark"] = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
        path.write_text(json.dumps(document))
        return path


def test_a_run_is_live_then_ready_and_says_all_that_is_watched(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Before the first batch it is live and not ready; then counts are those of the topics."""
    servers, source = broker.bootstrap_servers, topic_name("watched")
    create(servers, source, 2)
    produce(servers, source, [*upserts(600, 50, Random(1)), (b"k1", b"{no json")])
    name = topic_name("watch")
    pipeline = WithUi(tmp_path, servers, name, source, domain="ingest", limit=250)

    with pipeline.start("--http", "127.0.0.1:0") as run:
        run.wait_for("serving http")
        url = re.findall(r"serving (\S+)/metrics", run.text)[0]
        assert ask(url + "/live")[0] == 200
        early = ask(url + "/ready")
        run.wait_for("waiting for records")
        wait_until(lambda: ask(url + "/ready")[0] == 200, 120, "ready")
        status, text = ask(url + "/metrics")
        # Its first answer takes Spark longer than a scrape may, on a busy machine.
        wait_until(lambda: ask(url + "/metrics/spark")[0] == 200, 60, "Spark's UI answers")
        spark_status, spark = ask(url + "/metrics/spark")
        assert run.stop() == 0, run.text

    assert early[0] == 503
    assert json.loads(early[1])["reason"].startswith("not ready: start-up has come to: ")
    assert status == 200
    # There are no joins, no inputs with times of their own, no sinks, and few records.
    assert chart_metrics.missing(text) == [
        "ikebana_arrangement_info",
        "ikebana_hot_key_share",
        "ikebana_input_frontier",
        "ikebana_input_holds",
        "ikebana_input_silent",
        "ikebana_join_key_matches",
        "ikebana_sink_behind_offsets",
        "ikebana_sink_frontier",
        "ikebana_sink_lag_seconds",
        "ikebana_sink_ready",
        "ikebana_sink_restarts",
        "ikebana_waiting_records",
    ]
    values = dict(re.findall(r"^(ikebana_\w+\{.*\}) (\S+)$", text, re.MULTILINE))
    label = f'pipeline="{name}"'
    assert float(values[f"ikebana_records_total{{{label}}}"]) == 601
    written = float(values[f'ikebana_updates_total{{output="out",{label}}}'])
    assert written == records_of(servers, pipeline.target)
    assert float(values[f'ikebana_updates_total{{output="errors",{label}}}']) == 1
    assert float(values[f"ikebana_behind_offsets{{{label}}}"]) == 0
    assert float(values[f"ikebana_lag_seconds{{{label}}}"]) <= 60
    assert float(values[f"ikebana_incarnation{{{label}}}"]) == 1
    frontier = float(values[f'ikebana_output_frontier{{output="out",{label}}}'])
    assert frontier <= pipeline.progress()[-1].upper
    phases = set(re.findall(r'ikebana_shard_phase_seconds_total\{phase="(\w+)"', text))
    assert phases == {"catch_up", "compute", "store", "send"}
    assert spark_status == 200, spark
    assert "metrics_executor_completedTasks_total{" in spark

"""Metrics are a function of what is reported; alerts and dashboard name what there is."""

import json
import re
import shutil
import socket
import struct
import subprocess
import threading
from pathlib import Path

import promql_parser
import pytest
from msgspec.structs import replace

from ikebana import DeltaJoin, EventTime, JoinInput
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.run import RunEntry
from ikebana.errors import ConfigError
from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.base.fast_paths import FastPath
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.rows import TimesReport
from ikebana.processor.base.sharding import Hot
from ikebana.processor.checkpoint.commits import CommitRecord, FillProgress
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Input, Output, Plan, TimeDomain, Upsert
from ikebana.processor.spark.query import trigger_of
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.watching import metrics
from ikebana.processor.watching.health import BatchProgress, Health, HealthLimits, Verdict
from ikebana.processor.watching.metrics import METRICS, MetricSample, TriggerReport
from ikebana.processor.watching.monitor import Monitor, SinksOfRun
from ikebana.processor.watching.reports import BatchReport, Filling, RunStart
from ikebana.processor.watching.reports import report as batch_report
from ikebana.processor.watching.sinks import SinkFigures
from support import chart_metrics
from support.clocks import Clock
from support.http_answers import ask
from support.watched_runs import monitored

DOCS = Path(__file__).resolve().parents[2] / "docs" / "watching.md"
PHASES = {"triggerExecution": 1500, "addBatch": 1200, "latestOffset": 30}
# Milliseconds of a clock.
UPPER = NOW_MS = 1_795_323_602_000
TRIGGER = TriggerReport(PHASES, {"current": UPPER}, BatchProgress(15, 15, UPPER, UPPER))


PAIRS = DeltaJoin(
    "pairs",
    (JoinInput("a", "current"), JoinInput("b", "current")),
    ("a.key = b.value",),
    (("one", "a.key"),),
)


def plan_of(time: TimeDomain = "ingest") -> Plan:
    return Plan(
        "shop",
        inputs=(Input("changes", ("orders",)),),
        operators=(Upsert("current", "changes"), PAIRS),
        outputs=(Output("out", "current", "orders.diffs"),),
        time=time,
    )


def commit(shard: int, *runs: RunEntry, took: dict[str, float] | None = None) -> CommitRecord:
    return CommitRecord(
        checkpoint="c",
        epoch=0,
        incarnation=2,
        shard=shard,
        batch=7,
        lower=1000,
        upper=UPPER,
        offset="",
        plan="",
        records=3,
        behind=40,
        counts={},
        manifest=Manifest("c", shard, version=5, runs=list(runs)),
        took=took or {},
        size=70,
    )


def report(*commits: CommitRecord) -> BatchReport:
    return BatchReport(
        batch=7,
        lower=1000,
        upper=UPPER,
        records=6,
        behind=40,
        counts={"out": 9, "errors": 1},
        counted={"drift": 2},
        state_bytes=160,
        seconds=0.5,
        commits=list(commits),
    )


BASE = RunEntry("b", 0, 4, "s4", 10, 100, 0, 0)
DELTA = RunEntry("d", 4, 5, "s5", 2, 20, 0, 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(HealthLimits(60, 900, 3600), clock)


def test_arrangements_of_joins_say_what_they_are_of() -> None:
    """By the name that their frontiers have; an upsert's own state has the upsert's."""
    plan = plan_of()
    (other,) = (name for name in progress.edges(plan) if ":" in name)

    found = {s.labels for s in metrics.of_plan(plan) if s.metric is metrics.ARRANGEMENT_INFO}

    assert found == {("current", "current(ikebana_key)"), (other, "current(ikebana_value)")}


def test_a_batch_says_what_was_read_and_written_and_up_to_when() -> None:
    """Counters are added to by output and kind, gauges are set."""
    found = set(metrics.of_batch(plan_of(), report()))

    assert found == {
        MetricSample(metrics.BATCH, (), 7),
        MetricSample(metrics.BEHIND, (), 40),
        MetricSample(metrics.RECORDS, (), 6),
        MetricSample(metrics.EDIT_PARTS, (), 0),
        MetricSample(metrics.EDIT_PARTS_DONE, (), 0),
        MetricSample(metrics.EDIT_KEYS, (), 0),
        MetricSample(metrics.UPDATES, ("out",), 9),
        MetricSample(metrics.UPDATES, ("errors",), 1),
        MetricSample(metrics.COUNTED_KINDS, ("drift",), 2),
        MetricSample(metrics.OUTPUT_FRONTIER, ("out",), UPPER),
        MetricSample(metrics.OUTPUT_FRONTIER, ("errors",), UPPER),
    }


def test_a_shard_says_what_its_files_are() -> None:
    """Base and deltas together, the base apart, and how long its task took."""
    told = metrics.of_batch(
        plan_of(), report(commit(0), commit(1, BASE, DELTA, took={"compute": 0.25}))
    )

    assert [sample for sample in told if sample.labels[:1] in {("0",), ("1",)}] == [
        MetricSample(metrics.STATE_BYTES, ("0",), 0),
        MetricSample(metrics.STATE_ENTRIES, ("0",), 0),
        MetricSample(metrics.STATE_FILES, ("0",), 0),
        MetricSample(metrics.STATE_VERSION, ("0",), 5),
        MetricSample(metrics.BASE_VERSION, ("0",), 0),
        MetricSample(metrics.BASE_BYTES, ("0",), 0),
        MetricSample(metrics.SHARD_RECORDS, ("0",), 3),
        MetricSample(metrics.SHARD_BYTES, ("0",), 70),
        MetricSample(metrics.STATE_BYTES, ("1",), 120),
        MetricSample(metrics.STATE_ENTRIES, ("1",), 12),
        MetricSample(metrics.STATE_FILES, ("1",), 2),
        MetricSample(metrics.STATE_VERSION, ("1",), 5),
        MetricSample(metrics.BASE_VERSION, ("1",), 4),
        MetricSample(metrics.BASE_BYTES, ("1",), 100),
        MetricSample(metrics.SHARD_RECORDS, ("1",), 3),
        MetricSample(metrics.SHARD_BYTES, ("1",), 70),
        MetricSample(metrics.SHARD_SECONDS, ("1", "compute"), 0.25),
    ]


def test_a_trigger_says_how_long_it_took_and_up_to_where_operators_are() -> None:
    """The whole is no phase: phases add up to about what the histogram has once."""
    assert list(metrics.of_trigger(TRIGGER)) == [
        MetricSample(metrics.OPERATOR_FRONTIER, ("current",), UPPER),
        MetricSample(metrics.BATCH_SECONDS, (), 1.5),
        MetricSample(metrics.PHASE_SECONDS, ("addBatch",), 1.2),
        MetricSample(metrics.PHASE_SECONDS, ("latestOffset",), 0.03),
    ]


def test_frontiers_have_an_age_where_times_are_milliseconds(health: Health) -> None:
    """Offsets have none, and a frontier ahead of this machine's clock is not negative."""
    operators, outputs = {"current": NOW_MS - 3000}, {"out": NOW_MS + 4000}

    aged = {
        sample for sample in metrics.of_moment(health, operators, outputs, NOW_MS) if sample.labels
    }

    assert aged == {
        MetricSample(metrics.OPERATOR_LAG, ("current",), 3.0),
        MetricSample(metrics.OUTPUT_LAG, ("out",), 0.0),
    }
    offsets = metrics.of_moment(health, {"current": 2000}, {"out": 9000}, NOW_MS)
    assert not [sample for sample in offsets if sample.labels]


def test_a_trigger_is_read_from_what_spark_says() -> None:
    """Offsets are summed over partitions; a batch of before a restart was not minted."""
    offset = {
        "batch": 3,
        "lower": 0,
        "upper": 5,
        "positions": {"orders": {"0": 10, "1": 5}},
        "plan": "",
        "frontiers": {"current": 5, "total": 3},
        "behind": 4,
    }
    progress = {"durationMs": PHASES, "sources": [{"endOffset": offset}]}

    found = trigger_of(progress)
    replayed = trigger_of({**progress, "durationMs": {"addBatch": 1}})

    frontiers = {"current": 5, "total": 3}
    assert found == TriggerReport(
        PHASES, frontiers, BatchProgress(done=15, offered=19, upper=5, closed=3)
    )
    assert replayed.progress.offered is None


PATHS = (FastPath("owners", "executors open their shards"), FastPath("compiled code"))


def told(monitor: Monitor) -> None:
    """Tell a monitor of everything that there is."""
    monitor.started(RunStart("c", 2, fast_paths=PATHS))
    hot = [Hot("records", "changes", 30_000, 9_000, "a"), Hot("matches", "pairs", 9, 9, "b")]
    batch = report(commit(0, BASE, DELTA, took={"catch_up": 0.1}))
    monitor.batch(batch._replace(hot=hot))
    monitor.trigger(TRIGGER)


def scrape(monitor: Monitor) -> str:
    return monitor.scrape("")[1].decode()


EVENTS = Plan(
    "shop",
    inputs=tuple(
        Input(name, (name,), event_time=EventTime(clock="kafka", idle_ms=None))
        for name in ("orders", "customers")
    ),
    operators=(Upsert("order", "orders"), Upsert("customer", "customers")),
    outputs=(Output("out", "order", "orders.diffs"), Output("c", "customer", "customers.diffs")),
)
HELD = InputsState(40, {"orders": 90, "customers": 40}, [], ["customers"], ahead=True)


def waits(monitor: Monitor, inputs: InputsState, greatest: int, waiting: int) -> None:
    """A batch has read up to a time, and its frontier is where inputs stand."""
    monitor.started(RunStart("c", 1, inputs=lambda: inputs))
    seen = replace(commit(0), seen=[TimesReport("orders", "orders", 0, greatest)])
    monitor.batch(report(seen)._replace(waiting=waiting))
    upper = inputs.upper
    monitor.trigger(TriggerReport(PHASES, {"order": upper}, BatchProgress(15, 15, upper, upper)))


def scraped_of_both(health: Health) -> str:
    """All metrics, of a pipeline whose times are the clock's and of one whose are its inputs'."""
    stands = SinkFigures(ready=True, state="delivering", frontier=UPPER, lag_s=0.5)
    sink = DeliverSection.model_validate({"parquet": {"folder": "f"}, "tables": {}})
    sinks: SinksOfRun = ({"lake": sink}, lambda: {"lake": stands})
    clocked, dated = Monitor(plan_of(), health, sinks=sinks), Monitor(EVENTS, health)
    told(clocked)
    waits(dated, HELD, 90, 22)
    own = [line for line in scrape(dated).splitlines() if "_input_" in line or "_waiting_" in line]
    return scrape(clocked) + "\n".join(own) + "\n"


def test_what_is_read_and_waits_is_not_published(health: Health, clock: Clock) -> None:
    """A pipeline that has nothing to do is not ready while its frontier waits for an input."""
    monitor = Monitor(EVENTS, health)
    with monitored(monitor) as url:
        waits(monitor, InputsState(91, {"orders": 91}, [], ["orders"], ahead=False), 90, 0)
        assert ask(url + "/ready")[0] == 200
        waits(monitor, HELD, 95, 22)
        monitor.trigger(None)
        clock.now += 61
        monitor.trigger(None)
        status, text = ask(url + "/ready")
        metrics_told = ask(url + "/metrics")[1]
        waits(monitor, InputsState(96, {"orders": 96}, [], ["orders"], ahead=False), 95, 0)
        assert ask(url + "/ready")[0] == 200

    found = json.loads(text)
    assert status == 503
    assert "22 records wait for customers to come past 40" in found.pop("reason")
    assert found.pop("lag_seconds") > 60
    assert found == {
        "ready": False,
        "notices": [],
        "waiting_records": 22,
        "frontier": 40,
        "held_by": ["customers"],
        "inputs": {
            "orders": {"frontier": 90, "silent": False},
            "customers": {"frontier": 40, "silent": False},
        },
    }
    assert 'ikebana_input_holds{input="customers",pipeline="shop"} 1.0' in metrics_told
    assert 'ikebana_input_holds{input="orders",pipeline="shop"} 0.0' in metrics_told
    assert 'ikebana_waiting_records{pipeline="shop"} 22.0' in metrics_told


def test_a_notice_is_shown_while_it_holds(health: Health, clock: Clock) -> None:
    """By probe, console and metric: its words, but not the names that messages have."""
    monitor = Monitor(plan_of(), health)
    health.idle()
    nom = Notice("column", "changes", "nom", "changes: nothing has nom", "; they have SECRET")
    other = Notice("errors", "changes", "changes", "changes: all are errors")

    monitor.notice([nom])
    ((first,),) = (json.loads(monitor.readiness()[1])["notices"],)
    monitor.notice([nom, other])
    good, text = monitor.readiness()

    told = json.loads(text)["notices"]
    assert good
    assert told[0] == first
    assert [(each["kind"], each["input"], each["of"], each["words"]) for each in told] == [
        ("column", "changes", "nom", "changes: nothing has nom"),
        ("errors", "changes", "changes", "changes: all are errors"),
    ]
    assert "SECRET" not in text.decode()
    assert [each.words for each in monitor.figures().notices] == [nom.words, other.words]
    assert 'ikebana_notices{input="changes",kind="column",pipeline="shop"} 1.0' in scrape(monitor)

    monitor.notice([other])

    assert [each["of"] for each in json.loads(monitor.readiness()[1])["notices"]] == ["changes"]
    assert 'ikebana_notices{input="changes",kind="column",pipeline="shop"} 0.0' in scrape(monitor)


def filled(shard: int, done: int, name: str, keys: int) -> CommitRecord:
    return replace(commit(shard), filling=FillProgress(done, 3, name, keys))


def test_what_an_edit_fills_is_told_by_the_shard_that_is_last(health: Health) -> None:
    """As part i of n, with the keys of all shards so far; and nothing of it when it is done."""
    monitor = Monitor(plan_of(), health)
    monitor.started(RunStart("c", 2))
    for at in ((1, "totals"), (2, "named")):
        batch = batch_report([filled(0, 2, "named", 10), filled(1, *at, 20)], 0.5)
        monitor.batch(batch)
    good, text = monitor.readiness()
    told = json.loads(text)

    assert not good
    assert told["filling"] == {"part": 3, "parts": 3, "name": "named", "keys": 60}
    assert told["reason"] == (
        "not ready: the backlog of the start is not done; "
        "filling after an edit: part 3 of 3 (named)"
    )
    scraped = scrape(monitor)
    assert 'ikebana_edit_parts{pipeline="shop"} 3.0' in scraped
    assert 'ikebana_edit_parts_done{pipeline="shop"} 2.0' in scraped
    assert 'ikebana_edit_keys_total{pipeline="shop"} 60.0' in scraped

    monitor.batch(batch_report([commit(0), commit(1)], 0.5))

    assert "filling" not in json.loads(monitor.readiness()[1])
    assert 'ikebana_edit_parts{pipeline="shop"} 0.0' in scrape(monitor)


def test_shards_are_as_far_as_the_last_one_and_share_the_bar() -> None:
    """Commit records without it say nothing."""
    found = batch_report([filled(0, 3, "b", 1), filled(1, 1, "a", 2), commit(2)], 0.5).filling

    assert found == Filling(done=1, parts=3, name="a", share=4 / 6, keys=3)
    assert batch_report([commit(0)], 0.5).filling is None


def test_every_metric_has_series_once_all_is_told(health: Health) -> None:
    """No metric is defined that nothing ever sets."""
    series = chart_metrics.scraped(scraped_of_both(health))

    names = {m.name + ("_count" if m.kind == "histogram" else "") for m in METRICS}
    assert names - series.keys() == set()
    assert all(labels["pipeline"] == "shop" for name in names for labels in series[name])


def test_ways_that_make_a_run_cheap_are_told(health: Health) -> None:
    """A metric says which are on, and the body of /ready says why others are not."""
    monitor = Monitor(plan_of(), health)
    told(monitor)

    found = scrape(monitor)
    assert 'ikebana_fast_path{path="owners",pipeline="shop"} 0.0' in found
    assert 'ikebana_fast_path{path="compiled code",pipeline="shop"} 1.0' in found
    body = json.loads(monitor.readiness()[1])
    assert body["fast_paths"] == {"owners": "executors open their shards", "compiled code": "yes"}


def test_counters_are_there_before_the_first_batch(health: Health) -> None:
    """What appears with its first increment is an increase that nobody sees."""
    series = chart_metrics.scraped(scrape(Monitor(plan_of(), health)))

    assert {labels["output"] for labels in series["ikebana_updates_total"]} == {"out", "errors"}
    assert {"drift", "error dropped", "late"} <= {
        labels["kind"] for labels in series["ikebana_counted_total"]
    }


def test_counters_add_up_and_gauges_do_not(health: Health) -> None:
    """Two batches of 6 records are 12; their frontier is one."""
    monitor = Monitor(plan_of(), health)
    told(monitor)
    told(monitor)

    text = scrape(monitor)

    assert 'ikebana_records_total{pipeline="shop"} 12.0' in text
    assert f'ikebana_output_frontier{{output="out",pipeline="shop"}} {UPPER:.9e}' in text
    assert 'ikebana_batch_duration_seconds_sum{pipeline="shop"} 3.0' in text
    assert "_created" not in text


def test_alerts_and_dashboard_name_metrics_and_labels_that_there_are(health: Health) -> None:
    """An alert on a metric that is misspelt would be silent for ever."""
    assert chart_metrics.missing(scraped_of_both(health)) == []


def test_what_is_missing_is_seen() -> None:
    """The comparison finds a metric, and a label, that a scrape does not have."""
    assert "ikebana_live" in chart_metrics.missing("")
    assert "ikebana_updates_total{output}" in chart_metrics.missing(
        '# TYPE ikebana_updates counter\nikebana_updates_total{pipeline="p"} 1\n'
    )


@pytest.mark.parametrize("rule", chart_metrics.rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_and_what_to_do(rule: dict[str, object]) -> None:
    """Every alert has a severity, a summary and a description, and nothing misspelt."""
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Ikebana[A-Za-z]+", str(rule["alert"]))
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    annotations = rule["annotations"]
    assert isinstance(annotations, dict)
    assert annotations.keys() == {"summary", "description"}
    assert "{{ $labels.pipeline }}" in annotations["summary"]
    # One that is no comparison would fire as long as its metric is there.
    tree = promql_parser.parse(str(rule["expr"]))
    assert isinstance(tree, promql_parser.BinaryExpr)
    promql_parser.parse_duration(str(rule.get("for", "1m")))


def test_alerts_have_names_of_their_own() -> None:
    """Two of one name would be one in the eyes of whoever is called."""
    names = [rule["alert"] for rule in chart_metrics.rules()]

    assert len(names) == len(set(names))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")
def test_promtool_accepts_the_rules() -> None:
    """Prometheus' own judgement, where it is to be had."""
    command = ["promtool", "check", "rules", str(chart_metrics.RULES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_stand_beside_each_other() -> None:
    """No two have one id or one place, and every one but a row shows something."""
    panels = chart_metrics.dashboard()["panels"]
    places = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24
    assert all(panel["targets"] for panel in panels if panel["type"] != "row")


def test_every_metric_is_shown_or_alerted_on() -> None:
    """What nobody looks at is not worth its series."""
    read = {m.name for e in chart_metrics.expressions() for m in chart_metrics.selected(e)}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in read}

    assert {metric.name for metric in METRICS} - shown == set()


def test_every_metric_is_in_the_docs_with_its_labels() -> None:
    """The table of docs/watching.md is the list of metrics."""
    rows = re.findall(r"^\| `(ikebana_\w+)` \| (\w+) \|([^|]*)\|", DOCS.read_text(), re.MULTILINE)

    assert {(name, kind, labels.strip()) for name, kind, labels in rows} == {
        (m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels)) for m in METRICS
    }


def test_probes_are_answered_with_a_status_and_a_reason(health: Health, clock: Clock) -> None:
    """200 or 503, by the clock; what there is no such path for is told the paths."""
    with monitored(Monitor(plan_of(), health)) as url:
        assert ask(url + "/live") == (200, "live: 0 s since the last sign of life\n")
        assert ask(url + "/ready")[0] == 503
        health.idle()
        status, text = ask(url + "/ready?verbose")
        told = {"ready": True, "reason": "ready: lag 0 s, limit 60 s", "lag_seconds": 0}
        told |= {"notices": []}
        assert (status, json.loads(text)) == (200, told)
        clock.now += 901
        assert ask(url + "/live")[0] == 503
        assert ask(url + "/metrics")[0] == 200
        assert ask(url + "/metrics/spark") == (
            404,
            "Spark's UI is off: set spark.ui.enabled under spark in the file\n",
        )
        assert ask(url + "/nothing")[0] == 404


def test_an_asker_that_hangs_up_leaves_no_trace(
    health: Health, capfd: pytest.CaptureFixture[str]
) -> None:
    """A probe gives up after some seconds; that is no error of ours, and not told as one."""
    heard, gone, answered = (threading.Event() for _ in range(3))

    class Slow(Monitor):
        def live(self) -> Verdict:
            heard.set()
            assert gone.wait(30)
            answered.set()
            return super().live()

    with monitored(Slow(plan_of(), health)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as asking:
            asking.sendall(b"GET /live HTTP/1.1\r\n\r\n")
            assert heard.wait(30)
            # What is closed so is reset: whoever writes there is told.
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        assert answered.wait(30)

    assert capfd.readouterr().err == ""


def test_a_scraper_gets_the_format_that_it_asks_for(health: Health) -> None:
    """Prometheus asks for OpenMetrics, a person's browser for nothing."""
    monitor = Monitor(plan_of(), health)

    assert monitor.scrape("")[0].startswith("text/plain")
    content_type, text = monitor.scrape("application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


@pytest.mark.parametrize("version", ["x", "1.x", "", "2..0"])
def test_a_version_that_is_none_gets_some_format(health: Health, version: str) -> None:
    """A scraper that is told nothing would take the run for dead."""
    content_type, text = Monitor(plan_of(), health).scrape(
        f"application/openmetrics-text; version={version}"
    )

    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"ikebana_" in text


def test_an_address_that_is_taken_is_named(health: Health) -> None:
    """The run ends before it has taken anything over."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with (
            pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"),
            monitored(Monitor(plan_of(), health), port=port),
        ):
            pass


def test_owners_that_a_batch_has_missed_are_told(health: Health) -> None:
    """As where an executor's Python is no fork of ours: it goes on, at three times the cost."""
    monitor = Monitor(plan_of(), health)
    paths = (FastPath("owners"), FastPath("compiled code"))
    monitor.started(RunStart("c", 2, fast_paths=paths))
    batch = report(commit(0, BASE, DELTA))

    monitor.batch(batch)
    assert 'ikebana_fast_path{path="owners",pipeline="shop"} 1.0' in scrape(monitor)
    monitor.batch(batch._replace(owned=False))

    assert 'ikebana_fast_path{path="owners",pipeline="shop"} 0.0' in scrape(monitor)
    body = json.loads(monitor.readiness()[1])
    assert "has found no host" in body["fast_paths"]["owners"]
    assert body["fast_paths"]["compiled code"] == "yes"

"""The chart's alerts, as Prometheus itself judges them: each fires when it should."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy import tools
from deploy.charts import tool
from support.chart_metrics import RULES

ONE = 'pipeline="p",namespace="n"'
OTHER = 'pipeline="q",namespace="n"'
LABELS = {"pipeline": "p", "namespace": "n"}
SCRAPED = {**LABELS, "instance": "i"}


class Scenario(NamedTuple):
    """Series in promtool's notation, a value a minute; an alert fires at a minute, or not."""

    alert: str
    minute: int
    fires: dict[str, str]
    quiet: dict[str, str]
    summary: str
    labels: dict[str, str] = LABELS


def counted(kind: str, per_minute: int) -> dict[str, str]:
    """So many of a kind among a hundred records."""
    return {
        f'ikebana_counted_total{{{ONE},instance="i",kind="{kind}"}}': f"0+{per_minute}x60",
        f'ikebana_records_total{{{ONE},instance="i"}}': "0+100x60",
    }


def batches(seconds: tuple[str, str]) -> dict[str, str]:
    """One batch a minute, each longer than the first and not longer than the second."""
    name = "ikebana_batch_duration_seconds_bucket"
    least, most = (f'{name}{{{ONE},le="{each}"}}' for each in seconds)
    return {least: "0x30", most: "0+1x30", f'{name}{{{ONE},le="+Inf"}}': "0+1x30"}


def held_up(frontier: str) -> dict[str, str]:
    """Records wait for one of two inputs, while the output's frontier does this."""
    each = f'{ONE},instance="i"'
    return {
        f'ikebana_input_holds{{{each},input="customers"}}': "1x30",
        f'ikebana_input_holds{{{each},input="orders"}}': "0x30",
        f"ikebana_waiting_records{{{each}}}": "22x30",
        f'ikebana_output_frontier{{{each},output="o"}}': frontier,
    }


def taken(*bytes_per_minute: int) -> dict[str, str]:
    """So many bytes for each shard, and many records."""
    each = f'{ONE},instance="i"'
    return {
        f"ikebana_records_total{{{each}}}": "0+60000x60",
        **{
            f'ikebana_shard_bytes_total{{{each},shard="{shard}"}}': f"0+{count}x60"
            for shard, count in enumerate(bytes_per_minute)
        },
    }


SCENARIOS = [
    Scenario(
        "IkebanaGone",
        21,
        {f"ikebana_info{{{ONE}}}": "1x10 _x30"},
        {f"ikebana_info{{{ONE}}}": "1x10 _x3 1x30"},
        "Pipeline p is not scraped any more",
    ),
    Scenario(
        "IkebanaStuck",
        8,
        {f"ikebana_live{{{ONE}}}": "1x5 0x10"},
        {f"ikebana_live{{{ONE}}}": "1x6 0 1x10"},
        "Pipeline p is stuck",
    ),
    Scenario(
        "IkebanaRestarts",
        34,
        {f"ikebana_incarnation{{{ONE}}}": "1x10 2x5 3x5 4x5 5x20"},
        {f"ikebana_incarnation{{{ONE}}}": "1x10 2x5 3x5 4x20"},
        "Pipeline p was started 4 times in an hour",
    ),
    Scenario(
        "IkebanaTwoInstances",
        15,
        {f'ikebana_info{{{ONE},instance="{each}"}}': "1x20" for each in "ab"},
        {
            f'ikebana_info{{{ONE},instance="a"}}': "1x20",
            f'ikebana_info{{{ONE},instance="b"}}': "1x4 _x20",
        },
        "2 instances of pipeline p run",
    ),
    Scenario(
        "IkebanaLagging",
        11,
        {f"ikebana_lag_seconds{{{ONE}}}": "301x20"},
        {f"ikebana_lag_seconds{{{ONE}}}": "300x20"},
        "Pipeline p lags 5m 1s",
    ),
    Scenario(
        "IkebanaNotReady",
        31,
        {f"ikebana_ready{{{ONE}}}": "0x40"},
        {f"ikebana_ready{{{ONE}}}": "0x20 1 0x20"},
        "Pipeline p has not been ready for 30 minutes",
    ),
    Scenario(
        "IkebanaSinkNotReady",
        31,
        {f'ikebana_sink_ready{{{ONE},sink="lake"}}': "0x40"},
        {f'ikebana_sink_ready{{{ONE},sink="lake"}}': "0x20 1 0x20"},
        "Sink lake of pipeline p has not been ready for 30 minutes",
        {**LABELS, "sink": "lake"},
    ),
    Scenario(
        "IkebanaBacklogGrows",
        65,
        {f"ikebana_behind_offsets{{{ONE}}}": "0+10x70"},
        {f"ikebana_behind_offsets{{{ONE}}}": "1000-10x70"},
        "More comes into the topics of pipeline p than it reads",
    ),
    Scenario(
        "IkebanaFrontierStands",
        6,
        {
            f'ikebana_output_frontier_lag_seconds{{{ONE},output="o"}}': "400x10",
            f'ikebana_input_silent{{{OTHER},input="i"}}': "0x10",
        },
        {
            f'ikebana_output_frontier_lag_seconds{{{ONE},output="o"}}': "300x10",
            # An input with times of its own may be silent.
            f'ikebana_output_frontier_lag_seconds{{{OTHER},output="o"}}': "400x10",
            f'ikebana_input_silent{{{OTHER},input="i"}}': "0x10",
        },
        "The frontier of output o of pipeline p is 6m 40s old",
        {**LABELS, "output": "o"},
    ),
    Scenario(
        "IkebanaTimeHeldUp",
        21,
        held_up("40x30"),
        held_up("40+1x30"),
        "Records of pipeline p wait for input customers",
        {**SCRAPED, "input": "customers"},
    ),
    Scenario(
        "IkebanaBatchesNearTimeout",
        20,
        batches(("240.0", "300.0")),
        batches(("120.0", "240.0")),
        "Batches of pipeline p take up to 4m 59s",
    ),
    Scenario(
        "IkebanaShardsUneven",
        31,
        taken(500, 50, 50),
        taken(150, 50, 50),
        "A shard of pipeline p takes in 8.333B/s, more than four times what the others do",
        SCRAPED,
    ),
    Scenario(
        "IkebanaHotKey",
        12,
        {f'ikebana_hot_key_share{{{ONE},of="orders",hash="a3c9"}}': "0.52x20"},
        {f'ikebana_hot_key_share{{{ONE},of="orders",hash="a3c9"}}': "0.2x20"},
        "The key with the hash a3c9 has 52% of the records of orders in pipeline p",
        {**LABELS, "of": "orders", "hash": "a3c9"},
    ),
    Scenario(
        "IkebanaHotJoinKey",
        12,
        {f'ikebana_join_key_matches{{{ONE},join="priced",hash="02d2"}}': "100000x20"},
        {f'ikebana_join_key_matches{{{ONE},join="priced",hash="02d2"}}': "10000x20"},
        "The key with the hash 02d2 meets 100k rows of join priced in a batch of pipeline p",
        {**LABELS, "join": "priced", "hash": "02d2"},
    ),
    Scenario(
        "IkebanaNotice",
        25,
        {f'ikebana_notices{{{ONE},kind="column",input="i"}}': "1x30"},
        {f'ikebana_notices{{{ONE},kind="column",input="i"}}': "0x30"},
        "1 of input i of pipeline p is probably not meant: column",
        {**LABELS, "kind": "column", "input": "i"},
    ),
    Scenario(
        "IkebanaErrors",
        10,
        {f'ikebana_updates_total{{{ONE},output="errors"}}': "0x5 5x20"},
        {
            f'ikebana_updates_total{{{ONE},output="errors"}}': "5x20",
            f'ikebana_updates_total{{{ONE},output="out"}}': "0+9x20",
        },
        "The error topic of pipeline p changed 5 times in 15 minutes",
        {**LABELS, "output": "errors"},
    ),
    Scenario(
        "IkebanaErrorsDropped",
        10,
        {f'ikebana_counted_total{{{ONE},kind="error dropped"}}': "0x5 5x20"},
        {
            f'ikebana_counted_total{{{ONE},kind="error dropped"}}': "5x20",
            f'ikebana_counted_total{{{ONE},kind="drift"}}': "0+9x20",
        },
        "Pipeline p dropped 5 errors in 15 minutes",
        {**LABELS, "kind": "error dropped"},
    ),
    Scenario(
        "IkebanaDrift",
        30,
        counted("drift", 2),
        {**counted("drift", 1), **counted("late", 9)},
        "60 old images of pipeline p were unlike its state in an hour",
        SCRAPED,
    ),
    Scenario(
        "IkebanaLate",
        30,
        counted("late", 2),
        {**counted("late", 1), **counted("drift", 9)},
        "60 records of pipeline p came late in an hour",
        SCRAPED,
    ),
]


def rules() -> dict[str, dict[str, Any]]:
    """The rules, by the alert's name."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def judged(*arguments: str) -> None:
    """Have promtool judge; fail with what it says."""
    promtool = tool(tools.promtool)
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def told(scenario: Scenario, series: dict[str, str], alerts: list[dict[str, Any]]) -> object:
    """One test of promtool's: which alerts there are after these series."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{scenario.minute}m",
                "alertname": scenario.alert,
                "exp_alerts": alerts,
            }
        ],
    }


def test_prometheus_takes_the_rules() -> None:
    """All of them, by its own check."""
    judged("check", "rules", "--lint-fatal", str(RULES))


def test_every_alert_has_a_scenario() -> None:
    """A new rule needs one below."""
    assert [scenario.alert for scenario in SCENARIOS] == list(rules())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.alert for each in SCENARIOS])
def test_an_alert_fires_when_it_should_and_not_before(scenario: Scenario, tmp_path: Path) -> None:
    """In one scenario it fires, with its words; in another, close to it, it does not."""
    rule = rules()[scenario.alert]
    fired = {
        "exp_labels": {**rule["labels"], **scenario.labels},
        "exp_annotations": {**rule["annotations"], "summary": scenario.summary},
    }
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            told(scenario, scenario.fires, [fired]),
            told(scenario, scenario.quiet, []),
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(document))

    judged("test", "rules", str(tmp_path / "test.yaml"))

"""The alert rules and the dashboard of the chart, and which metrics and labels they name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

CHART = Path(__file__).resolve().parents[2] / "helm" / "ikebana"
RULES = CHART / "alerts" / "ikebana.rules.yaml"
DASHBOARD = CHART / "dashboards" / "ikebana.json"

# What Prometheus adds to what it scrapes, as the chart has it do.
TARGET_LABELS = {"namespace", "instance"}


class Selected(NamedTuple):
    """A metric that an expression reads, by which labels."""

    name: str
    labels: frozenset[str]


def rules() -> list[dict[str, Any]]:
    """All rules of the file."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return board


def expressions() -> list[str]:
    """Every expression of both files."""
    board = dashboard()
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    marks = board["annotations"]["list"]
    return [str(part["expr"]) for part in (*rules(), *targets, *marks)]


def selected(expression: str) -> Iterator[Selected]:
    """What an expression reads; it is parsed, and wrong ones raise.

    Grafana's variables are put in before it is.
    """
    tree = promql_parser.parse(expression.replace("$__interval", "1m"))
    for node in _nodes(tree):
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None, expression
            yield Selected(node.name, frozenset(m.name for m in node.matchers.matchers))


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for part in ("lhs", "rhs", "expr", "param", "vector_selector"):
        child = getattr(node, part, None)
        if child is not None and not isinstance(child, str | int | float):
            yield from _nodes(child)
    for child in getattr(node, "args", None) or ():
        yield from _nodes(child)


def scraped(text: str) -> dict[str, list[dict[str, str]]]:
    """The label sets of every series in a scrape, by the name that expressions use."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def missing(text: str) -> list[str]:
    """What expressions name that a scrape does not have: metrics, and labels of them."""
    series = scraped(text)
    wrong = []
    for expression in expressions():
        for metric in selected(expression):
            if metric.name not in series:
                wrong.append(metric.name)
                continue
            known = set(series[metric.name][0]) | TARGET_LABELS
            wrong += [f"{metric.name}{{{label}}}" for label in metric.labels - known]
    return sorted(set(wrong))

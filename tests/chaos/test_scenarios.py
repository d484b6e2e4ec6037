"""One pipeline withstands faults of each class; `make chaos` has more seeds."""

import os
from pathlib import Path

import pytest

from cdc import fetched, postgres
from chaos.lives import Lasting, living
from chaos.scenario import scenarios
from deploy import tools
from deploy.charts import tool

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(400)]

# With this seed neither transaction has the run killed meanwhile, which takes a start.
SEED = 3
# All of them heal without another start of the run.
NAMES = [
    "kill-worker",
    "link-flaps",
    "transaction-in-input",
    "kill-owner",
    "link-half-open",
    "transaction-in-output",
    "stop-owner",
    "file-local-database-in-use",
    "link-refused",
    "stop-worker",
    "kill-broker",
    *(["disk-of-local-databases"] if os.geteuid() == 0 else []),
]


def test_faults_of_each_class_leave_everything_exact(tmp_path: Path) -> None:
    """R1, R5, R12, R19. Twelve faults in one life of a pipeline under load, in the same run."""
    known = scenarios()
    with living("kill", tmp_path, SEED, Lasting(3, 1.0)) as life:
        for name in NAMES:
            result = life.go(known[name], judged=name == NAMES[-1])
            assert result.outcome == "exact", (name, result)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind",
    [
        *("kill", "stop", "network", "transaction", "file", "disk", "cluster", "serve", "edit"),
        *("loss", "executor", "bucket", "sink-files", "sink-database", "sink-bucket"),
    ],
)
def test_every_scenario_of_a_class(kind: str, tmp_path: Path) -> None:
    """Each ends as it has to, whatever comes after which."""
    if kind == "disk" and os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    if kind in ("bucket", "sink-bucket"):
        tool(tools.versitygw)
    if kind == "sink-database":
        try:
            postgres.installed()
        except fetched.Unavailable as reason:
            pytest.skip(str(reason))
    with living(kind, tmp_path, SEED) as life:
        for scenario in scenarios().values():
            if scenario.kind == kind:
                result = life.go(scenario)
                assert result.outcome != "WRONG", result

"""A pipeline on two executors withstands faults of each class; `make chaos` has all of them."""

import os
from pathlib import Path

import pytest

from chaos.executors import on_cluster
from chaos.lives import Lasting
from chaos.plans import UPSERT
from chaos.scenario import scenarios
from chaos.small_disks import small_disks
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(900)]

SEED = 3
# None of them waits until Spark has lost an executor that is silent, or starts the run again.
NAMES = [
    "executor-kill-owner",
    "executor-stop-owners",
    "executor-kill-daemon",
    "executor-kill",
    "executor-kill-host",
    "executor-decommission",
    *(["executor-cut-from-broker", "executor-lose-node"] if os.geteuid() == 0 else []),
]


def test_faults_of_executors_leave_everything_exact(tmp_path: Path) -> None:
    """R1, R5, R12, R19. Eight faults in one life of a pipeline under load on two executors."""
    known = scenarios()
    with small_disks(tmp_path), on_cluster(tmp_path, SEED, *Lasting(10, 1.0), UPSERT) as life:
        try:
            for name in NAMES:
                result = life.go(known[name], judged=name == NAMES[-1])
                assert result.outcome == "exact", (name, result)
            assert "fast paths: owners yes" in life.run.text
            wait_until(life.owned_everywhere, 60, "owners of shards on both executors again")
        finally:
            life.close()

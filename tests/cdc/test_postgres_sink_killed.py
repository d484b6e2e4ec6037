"""A sink and its database are killed ten times each; `python -m chaos` does it often."""

from pathlib import Path

import pytest

from chaos.lives import results
from chaos.runs import Unavailable

pytestmark = [pytest.mark.cdc, pytest.mark.timeout(900)]


def test_postgres_and_its_sink_are_killed(tmp_path: Path) -> None:
    """At every token the tables are the collections."""
    names = ("postgres-kill", "postgres-kill-target")
    try:
        for result in results("sink-database", tmp_path, range(1), *names):
            assert result.outcome == "exact", result
    except Unavailable as reason:
        pytest.skip(str(reason))

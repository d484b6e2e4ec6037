"""Collection of garbage while many records are made."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from ikebana.processor.base.processes import collect_now_and_then, seldom_collect, uncollected


@pytest.fixture(autouse=True)
def _as_python_starts() -> Iterator[None]:
    """Other tests of this process may have run what collects seldom."""
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    gc.enable()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()
    yield
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_process_collects_as_before_afterwards(*, enabled: bool) -> None:
    """Also after an error, and if its user had turned collection off."""
    (gc.enable if enabled else gc.disable)()
    with pytest.raises(ValueError, match="False"):
        _fail_inside()
    assert gc.isenabled() == enabled


def _fail_inside() -> None:
    with uncollected():
        raise ValueError(gc.isenabled())


class _Itself:
    """Refers to itself, as what stands for an object of the JVM does."""

    def __init__(self) -> None:
        self.own = self


def test_cycles_of_batches_go_in_a_process_that_collects_seldom() -> None:
    """And nobody else's process is searched."""
    collect_now_and_then()
    assert not gc.get_freeze_count()
    seldom_collect()
    collect_now_and_then()
    left = weakref.ref(_Itself())
    assert left() is not None
    collect_now_and_then()
    assert left() is None


def test_a_process_that_has_exempted_its_objects_ends_without_a_word() -> None:
    """DuckDB's library prints which of its objects are not freed at the end."""
    program = (
        "import duckdb; from ikebana.processor.base.processes import exempt_objects as e; e()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stderr == ""

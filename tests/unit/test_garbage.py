"""Collection of garbage while many records are made."""

import gc
from collections.abc import Iterator

import pytest

from ikebana.processor.ground.garbage import uncollected


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


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

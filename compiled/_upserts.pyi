from collections.abc import Callable
from typing import Any

from ikebana.processor.base.rows import InColumns
from ikebana.processor.kernels.upsert_waiting import UpsertValue

def take_states(
    slots: dict[bytes, Any],
    keys: list[bytes],
    states: list[bytes | None],
    general: Callable[[bytes], Any],
) -> None: ...
def move(
    slots: dict[bytes, Any],
    last: dict[bytes, UpsertValue],
    time: int,
    columns: InColumns,
    general: Callable[[bytes, Any, UpsertValue, int], Any],
) -> None: ...
def move_each(
    slots: dict[bytes, Any],
    times: list[int],
    keys: list[bytes],
    values: list[Any],
    columns: InColumns,
    general: Callable[[bytes, Any, UpsertValue, int], Any],
) -> None: ...
def changed(
    slots: dict[bytes, Any],
    before: list[bytes | None],
    general: Callable[[Any], bytes | None],
) -> dict[bytes, bytes | None]: ...

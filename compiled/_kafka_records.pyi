from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Kind = TypeVar("Kind")

def runs(messages: list[Any]) -> list[tuple[tuple[str, int], list[Any], list[Any]]]: ...
def taken(messages: Iterable[Any], kind: type[Kind], dated: bool) -> list[Kind]: ...
def produced(
    produce: Callable[..., Any],
    wait: Callable[[], Any],
    topic: str,
    partition: int,
    timestamp: int,
    keys: list[bytes | None],
    values: list[bytes],
    times: list[int],
    diffs: list[int],
) -> None: ...
def decimal(number: int) -> bytes: ...

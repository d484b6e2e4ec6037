from collections.abc import Mapping
from typing import Any

from ikebana.processor.base.rows import KeyedUpdate

class Lookups:
    keys: list[bytes]
    def __init__(
        self,
        keys: list[bytes],
        payloads: list[Any],
        times: list[int],
        diffs: list[int],
        sees_equal: bool,
        start: int,
        end: int,
    ) -> None: ...
    def rows(self, at: int) -> list[int]: ...
    def left(self, entries: list[bytes | bool | None]) -> list[bytes]: ...
    def meet(
        self,
        entries: list[bytes | bool | None],
        at: int,
        kept: Mapping[bytes, list[KeyedUpdate]],
        fresh: Mapping[bytes, list[KeyedUpdate]],
        found: tuple[list[Any], list[bytes | None], list[int], list[int]],
        most: int,
        *,
        outer: bool,
    ) -> int: ...

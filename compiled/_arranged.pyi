from collections.abc import Callable, Mapping

from ikebana.processor.base.rows import KeyedUpdate

def grouped(
    of: type[KeyedUpdate],
    columns: tuple[list[bytes | None], list[bytes], list[int], list[int]],
    lower: int,
    upper: int,
    found: dict[bytes, list[KeyedUpdate]],
) -> bool: ...
def applied(
    by_key: dict[bytes, list[KeyedUpdate]],
    keys: list[bytes],
    entries: list[bytes | None],
    made: dict[bytes, tuple[bytes | None, bytes | None]],
    large: int,
) -> list[int]: ...
def staged(
    made: Mapping[bytes, tuple[bytes | None, bytes | None]],
    prefix: bytes,
    changes: dict[bytes, bytes | None],
) -> None: ...
def prefixed(prefix: bytes, keys: list[bytes]) -> list[bytes]: ...
def prefixed_changes(
    prefix: bytes, changes: dict[bytes, bytes | None]
) -> dict[bytes, bytes | None]: ...
def size_of(changes: list[tuple[bytes, bytes | None]]) -> int: ...
def since_columns(
    by_key: dict[bytes, list[KeyedUpdate]],
    since: int,
    otherwise: Callable[[list[KeyedUpdate]], list[KeyedUpdate]],
) -> tuple[list[bytes], list[bytes], list[int], list[int]]: ...

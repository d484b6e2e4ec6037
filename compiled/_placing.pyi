from typing import Any

Columns = tuple[list[bytes], list[bytes | None], list[int]]

def checksum(key: bytes) -> int: ...
def place_messages(
    messages: list[Any], columns: list[Columns], keyless: list[Any]
) -> tuple[int, int]: ...
def place_upserts(
    keys: list[bytes],
    values: list[bytes | None],
    offsets: list[int],
    columns: list[Columns],
) -> tuple[int, int]: ...

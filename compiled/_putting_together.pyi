def put_together(
    entries: int,
    texts: bytes,
    lengths: list[int],
    ends: bytes,
    width: int,
    ids: bytes,
    columns: list[tuple[int, bool, int, bytes]],
) -> list[tuple[bytes, bytes | None]]: ...

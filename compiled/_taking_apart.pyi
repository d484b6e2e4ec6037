Column = tuple[int, bool, int, bytes]

def taken_apart(
    changes: list[tuple[bytes, bytes | None]],
) -> tuple[int, bytes, list[int], bytes, int, bytes, list[Column]] | None: ...

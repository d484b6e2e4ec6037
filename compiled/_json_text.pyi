from collections.abc import Callable, Sequence

class Canonical:
    def text(self, message: bytes) -> bytes | None: ...
    def texts(
        self, messages: Sequence[bytes | None], otherwise: Callable[[bytes], bytes]
    ) -> list[bytes | None]: ...

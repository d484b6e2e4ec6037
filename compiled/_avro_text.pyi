from collections.abc import Callable, Sequence
from typing import Any, Protocol

class _Step(Protocol):
    """See `codecs.avro_compiler.ProgramStep`."""

    @property
    def kind(self) -> str: ...

class Program:
    def __init__(
        self,
        steps: Sequence[_Step],
        takes: Sequence[tuple[int, tuple[int, ...] | None] | None],
        write: Callable[[Any], bytes],
        irregular: tuple[type[Exception], ...],
    ) -> None: ...
    def parts(self, message: bytes, start: int) -> tuple[bytes | None, ...] | None: ...

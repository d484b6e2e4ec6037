"""What a `with` block closes at its end."""

from abc import ABC, abstractmethod
from typing import Self


class Closes(ABC):
    """A context manager that does nothing but `close`."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

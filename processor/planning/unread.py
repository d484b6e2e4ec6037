"""What of a plan is not known, since the file that says it has another problem there.

Parts that could not be read are left out of a plan, or stand in it as where nothing is
said.  Nobody is to be blamed for what follows from that.
"""

from typing import NamedTuple

# Settings of an input that decide what may be named of its rows.
_OF_ROWS = ("columns", "format", "mode", "key", "schema", "tables", "options")


class Unread(NamedTuple):
    """The places that could not be read, as keys joined by dots."""

    paths: frozenset[str] = frozenset()

    def any_of(self, kind: str) -> bool:
        """Whether anything of a section such as `operators` was not read."""
        return self._within(kind)

    def may_have(self, kind: str, name: str) -> bool:
        """Whether a part of that name is there of which not all was read."""
        return kind in self.paths or self._within(f"{kind}.{name}")

    def hides_rows(self, name: str) -> bool:
        """Whether nothing can be told of what an input's rows are."""
        within = f"inputs.{name}"
        parts = (f"{within}.{part}" for part in _OF_ROWS)
        return not self.paths.isdisjoint({"inputs", within, *parts})

    def columns(self, name: str) -> set[str]:
        """The columns of an input that are declared with a type that was not read."""
        start = f"inputs.{name}.columns."
        found = {path.removeprefix(start) for path in self.paths if path.startswith(start)}
        return found | {column.partition(".")[0] for column in found}

    def keys(self, section: str) -> set[str]:
        """The keys of a section that were not read, or in which something was not."""
        start = section + "."
        found = (path.removeprefix(start) for path in self.paths if path.startswith(start))
        return {path.partition(".")[0] for path in found}

    def _within(self, section: str) -> bool:
        return any(path == section or path.startswith(section + ".") for path in self.paths)


ALL_READ = Unread()

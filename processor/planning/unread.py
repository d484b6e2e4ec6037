"""The parts of a pipeline file that could not be read because of another problem.

They are left out of the plan, or have their defaults in it.  Problems that only follow from
that are not reported.
"""

from typing import NamedTuple

# Settings of an input that decide the scope of its rows.
_OF_ROWS = ("columns", "format", "mode", "key", "schema", "tables", "options")


class Unread(NamedTuple):
    """The paths that could not be read, as keys joined by dots."""

    paths: frozenset[str] = frozenset()

    def any_of(self, kind: str) -> bool:
        """Whether anything of a section such as `operators` was not read."""
        return self._within(kind)

    def may_have(self, kind: str, name: str) -> bool:
        """Whether a part of that name may exist and was not read completely."""
        return kind in self.paths or self._within(f"{kind}.{name}")

    def hides_rows(self, name: str) -> bool:
        """Whether the scope of an input's rows is unknown."""
        within = f"inputs.{name}"
        parts = (f"{within}.{part}" for part in _OF_ROWS)
        return not self.paths.isdisjoint({"inputs", within, *parts})

    def columns(self, name: str) -> set[str]:
        """The declared columns of an input with types that could not be read."""
        start = f"inputs.{name}.columns."
        names = {path.removeprefix(start) for path in self.paths if path.startswith(start)}
        return names | {column.partition(".")[0] for column in names}

    def keys(self, section: str) -> set[str]:
        """The keys of a section that were not read, completely or in part."""
        start = section + "."
        names = (path.removeprefix(start) for path in self.paths if path.startswith(start))
        return {path.partition(".")[0] for path in names}

    def _within(self, section: str) -> bool:
        return any(path == section or path.startswith(section + ".") for path in self.paths)


ALL_READ = Unread()

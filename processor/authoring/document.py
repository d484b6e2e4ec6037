"""A pipeline file as values, for YAML and SQL alike, and the variables in them.

Variables are `${NAME}`, `${NAME:-default}` and `${file:PATH}`.  Their replacement is text, and is
never parsed; `$${` is `${`.  The length of a file is limited.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Document(NamedTuple):
    """The values of a file, with lines, columns and problems; paths are keys joined by dots."""

    value: object
    lines: Mapping[str, int]
    """The line of each path, from 1."""
    problems: list[tuple[str, str]]
    unread: frozenset[str]
    """Paths with a value that could not be read; the value is then its source text."""
    columns: Mapping[str, int] = {}
    """The column of each path, from 1, if problems of this file have columns (SQL)."""


_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$\{)|\{file:(?P<file>[^}]+)\}"
    r"|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\{)"
)
_LARGEST_FILE = 1 << 20


class Variables:
    """The variables of an environment; `refuse` gets the path of a value and its problem."""

    def __init__(self, environ: Mapping[str, str], refuse: Callable[[str, str], None]) -> None:
        self._environ = environ
        self._refuse = refuse

    def substituted(self, text: str, path: str) -> str:
        """The text with all variables replaced."""

        def variable(match: re.Match[str]) -> str:
            if match["escaped"]:
                return "${"
            name, default = match["name"], match["default"]
            if match["file"] is not None:
                return self._content(match["file"], path)
            if name is None:
                self._refuse(
                    path, 'has a "${" that is not ${NAME}, ${NAME:-default} or ${file:PATH}'
                )
            elif default is not None:
                # As in a shell, an empty variable has the default too.
                return self._environ.get(name) or default
            elif name in self._environ:
                return self._environ[name]
            else:
                self._refuse(path, f"the variable {name} is not set")
            return match[0]

        return _VARIABLE.sub(variable, text)

    def _content(self, file: str, path: str) -> str:
        """The content of a file without a line end at its end, which editors add."""
        try:
            with open(file, encoding="utf-8") as content:
                text = content.read(_LARGEST_FILE + 1)
        except OSError as err:
            self._refuse(path, f"the file {file} could not be read: {err.strerror}")
        except UnicodeDecodeError:
            self._refuse(path, f"the file {file} is not UTF-8 text")
        except ValueError as err:
            self._refuse(path, f"{file!a} is not the name of a file: {err}")
        else:
            if len(text) <= _LARGEST_FILE:
                return text.removesuffix("\n")
            self._refuse(path, f"the file {file} is longer than a setting may be")
        return ""

"""A pipeline file as values, for YAML and SQL alike; and YAML text -> these values.

In values, `${NAME}` and `${NAME:-default}` are replaced by variables of the environment,
`${file:PATH}` by the content of a file, and `$${` by `${`; the replacement is text and is never
parsed.  This module does not know which keys and values a file may have.

In YAML, keys are always text, and a repeated key is a problem.  Dates and merge keys are text.
Small files cannot cost much: nesting, the number of values and the length of files in variables
are limited, and an alias counts as its whole value.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

import yaml
from yaml.composer import ComposerError
from yaml.constructor import SafeConstructor

from ikebana.errors import ConfigError


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


class MeantText(NamedTuple):
    """The text that was meant, and how many keys or items after the first belong to it."""

    text: str
    others: int


def rejoined_value(value: yaml.Node, pairs: list[tuple[yaml.Node, yaml.Node]]) -> MeantText | None:
    """Join a value of a mapping with the keys after it, if a comma split one text."""
    cut_off = takewhile(lambda pair: _is_empty(pair[1]), pairs)
    return rejoined_item(value, (key for key, _ in cut_off))


def rejoined_item(first: yaml.Node, others: Iterable[yaml.Node]) -> MeantText | None:
    """Join an item of a list with the items after it, until its parentheses are closed."""
    if not _is_plain(first) or _opened(first) <= 0:
        return None
    opened = _opened(first)
    for count, other in enumerate(others, 1):
        if not _is_plain(other):
            return None
        opened += _opened(other)
        if opened <= 0:
            start, end = first.start_mark, other.end_mark
            text = (start.buffer or "")[start.pointer : end.pointer]
            return MeantText(" ".join(text.split()), count)
    return None


def quoted(text: str) -> str:
    """A text in double quotes, or in single ones if it has only double quotes.

    >>> print(quoted("DECIMAL(18,6)"), quoted('top(3, "at")'))
    "DECIMAL(18,6)" 'top(3, "at")'
    """
    if '"' in text and "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _is_empty(node: yaml.Node) -> bool:
    return _is_plain(node) and node.value == ""


def _opened(node: yaml.Node) -> int:
    return int(node.value.count("(")) - int(node.value.count(")"))


_DEEPEST = 40
_MOST_VALUES = 20_000


def read_yaml(text: str, source: str, environ: Mapping[str, str]) -> Document:
    """Read one YAML document; errors call it `source`.

    Raises: ConfigError, with line and column, if the text is not YAML.
    """
    reader = _Reader(source, environ)
    value = reader.value(_composed(text, source), ())
    return Document(value, reader.lines, reader.problems, frozenset(reader.unread))


def _composed(text: str, source: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        said = ", ".join(filter(None, (err.context, err.problem)))
        lines = text.splitlines()
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        raise ConfigError(
            f"cannot read pipeline file {source}: {where}{said}", hint=_remedy(said, line)
        ) from None
    except yaml.reader.ReaderError as err:
        before = text[: err.position]
        row, column = before.count("\n") + 1, err.position - before.rfind("\n")
        raise ConfigError(
            f"cannot read pipeline file {source}: line {row}, column {column}: "
            f"the character {text[err.position]!a} cannot be in a YAML file"
        ) from None


def _remedy(problem: str, line: str) -> str | None:
    """A hint for a line that is not YAML; None if there is none."""
    if r"'\t'" in problem:
        return "Indent by spaces: YAML takes no tabs."
    if "${" in line and "'{'" in problem:
        return "Put the variable in quotes: within {} and [] a brace begins a mapping."
    return None


class _Loader(yaml.SafeLoader):
    """Composes nodes up to a depth that no pipeline exceeds."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self._depth > _DEEPEST:
            problem = f"nested more than {_DEEPEST} levels deep"
            at = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, problem, at)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    """Converts the nodes of a document to values, and records lines and problems."""

    def __init__(self, source: str, environ: Mapping[str, str]) -> None:
        self._source = source
        self._values = 0
        self.lines: dict[str, int] = {}
        self.problems: list[tuple[str, str]] = []
        self.unread: set[str] = set()
        self._variables = Variables(environ, self._refuse)
        self._open: list[yaml.Node] = []
        self._scalars = SafeConstructor()

    def value(self, node: yaml.Node | None, path: tuple[str, ...]) -> object:
        """The value of a node, or its source text if the value cannot be read."""
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ConfigError(
                f"cannot read pipeline file {self._source}: it has more than "
                f"{_MOST_VALUES:,} values, counting what aliases stand for"
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, ".".join(path))
        if node in self._open:
            self._refuse(".".join(path), "is an alias of what it stands in")
            return None
        if node is None:
            return None
        self._open.append(node)
        value: object
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, path)
        else:
            assert isinstance(node, yaml.CollectionNode)
            value = self._list(node, path)
        self._open.pop()
        return value

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, object]:
        where = ".".join(path) or "the file"
        values: dict[str, object] = {}
        lines_by_key: dict[str, list[int]] = {}
        pairs = list(node.value)
        while pairs:
            key_node, value_node = pairs.pop(0)
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append((where, f"has a key that is not text, at line {line}"))
                continue
            key = self._whole(key_node.value, ".".join(path) or "the file")
            lines_by_key.setdefault(key, []).append(line)
            self.lines[".".join((*path, key))] = line
            if node.flow_style and (cut := rejoined_value(value_node, pairs)):
                values[key] = self._cut(cut, (*path, key))
                del pairs[: cut.others]
                continue
            values[key] = self.value(value_node, (*path, key))
        for key, lines in lines_by_key.items():
            if len(lines) > 1:
                at = " and ".join(map(str, lines))
                self.problems.append(
                    (".".join((*path, key)), f"must be given once; is given at lines {at}")
                )
        return values

    def _list(self, node: yaml.CollectionNode, path: tuple[str, ...]) -> list[object]:
        values: list[object] = []
        items = list(node.value)
        while items:
            item = items.pop(0)
            place = (*path, str(len(values)))
            self.lines[".".join(place)] = item.start_mark.line + 1
            if node.flow_style and (cut := rejoined_item(item, items)):
                values.append(self._cut(cut, place))
                del items[: cut.others]
                continue
            values.append(self.value(item, place))
        return values

    def _cut(self, cut: MeantText, path: tuple[str, ...]) -> str:
        """The text that a comma split in flow style; reports the problem."""
        self._refuse(
            ".".join(path),
            f"a comma ends it within {{}} and []; put it in quotes: {quoted(cut.text)}",
        )
        return cut.text

    def _scalar(self, node: yaml.ScalarNode, path: str) -> object:
        text: str = node.value
        construct = {
            "null": self._scalars.construct_yaml_null,
            "bool": self._scalars.construct_yaml_bool,
            "int": self._scalars.construct_yaml_int,
            "float": self._scalars.construct_yaml_float,
        }
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            # Dates and merge keys have no meaning here, so they stay text.
            case "str" | "timestamp" | "merge" | "value":
                return self._whole(self._variables.substituted(text, path), path)
            case "null" | "bool" | "int" | "float" as kind:
                try:
                    value: object = construct[kind](node)
                except (ValueError, KeyError, IndexError):
                    self._refuse(
                        path, f'is not a readable "{kind}"; put it in quotes if it is text'
                    )
                    return text
                return value
            case tag:
                self._refuse(path, f'has a tag that has no meaning here, "{tag}"')
                return text

    def _whole(self, text: str, path: str) -> str:
        """Refuse surrogates in a text, which escapes and variables can bring in."""
        if not any("\ud800" <= character <= "\udfff" for character in text):
            return text
        self._refuse(path, "holds half of a character, a surrogate, which no text may")
        return text.encode("utf-8", "replace").decode()

    def _refuse(self, path: str, problem: str) -> None:
        self.problems.append((path, problem))
        self.unread.add(path)

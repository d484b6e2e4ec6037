"""SQL text -> the values that the same pipeline has in YAML, with lines and columns.

DuckDB's tokens separate the statements, so a semicolon in a text or a comment ends none.  A
statement that cannot be read is one problem; the part that it defines counts as unread, and all
others are still checked.
"""

from collections.abc import Iterable, Iterator, Mapping

from ikebana.processor.authoring.document import Document, Variables
from ikebana.processor.authoring.pipeline_file import PipelineFile
from ikebana.processor.authoring.sql_statement import SECTIONS, Statement, StatementError, read
from ikebana.processor.linear.tokens import Token, tokens

_STATED = {"pipeline", *filter(None, SECTIONS.values())}
_NO_PIPELINE = "is missing: write CREATE PIPELINE name"


def read_sql(text: str, environ: Mapping[str, str]) -> Document:
    """Read the statements of a SQL file."""
    return _Reader(text, environ).document()


class _Reader:
    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self._text = text
        self._value: dict[str, object] = {}
        self._lines: dict[str, int] = {}
        self._columns: dict[str, int] = {}
        self._problems: list[tuple[str, str]] = []
        self._unread: set[str] = set()
        self._variables = Variables(environ, self._refuse)

    def document(self) -> Document:
        """The document of all statements together."""
        for number, each in enumerate(_statements(tokens(self._text)), start=1):
            self._take(number, each)
        if "pipeline" not in self._value and "pipeline" not in self._unread:
            self._refuse("pipeline", _NO_PIPELINE)
            self._unread.add("pipeline")
        for section in ("inputs", "operators", "outputs"):
            if any(path.partition(".")[0] == section for path in self._unread):
                # The section may be in a statement that could not be read.
                self._value.setdefault(section, {})
        unread, lines = frozenset(self._unread), self._lines
        return Document(self._value, lines, self._problems, unread, self._columns)

    def _take(self, number: int, tokens: list[Token]) -> None:
        statement = Statement()
        try:
            read(tokens, statement)
        except StatementError as error:
            self._refuse_statement(number, statement, error)
            return
        if statement.kind == "PIPELINE":
            self._pipeline(statement, tokens[0])
        else:
            self._part(statement, tokens[0])

    def _refuse_statement(self, number: int, statement: Statement, error: StatementError) -> None:
        what = f"{statement.kind} {statement.name}" if statement.name else f"statement {number}"
        self._place(what, error.at)
        self._problems.append((what, error.problem))
        section = statement.belongs if statement.kind in SECTIONS else None
        if section is None:
            self._unread |= {"inputs", "operators", "outputs"}
        elif section and statement.name:
            self._unread.add(f"{section}.{statement.name}")
        elif section:
            self._unread.add(section)
        else:
            # The pipeline's statement: its name and all settings may be lost.
            self._unread |= {*PipelineFile.keys()} - {*SECTIONS.values()}

    def _pipeline(self, statement: Statement, first: Token) -> None:
        if "pipeline" in self._value:
            self._again("pipeline", first.at)
            return
        section = dict(statement.section)
        for name in _STATED & section.keys():
            del section[name]
            self._place(f"PIPELINE {name}", statement.places[name,])
            problem = "is no option of a pipeline; it has statements of its own"
            self._problems.append((f"PIPELINE {name}", problem))
        self._place("pipeline", first.at)
        self._value["pipeline"] = statement.name
        self._value |= {
            name: self._filled(statement, (name,), "", section[name]) for name in section
        }
        self._places(statement, "")

    def _part(self, statement: Statement, first: Token) -> None:
        section = statement.belongs
        parts = self._value.setdefault(section, {})
        assert isinstance(parts, dict)
        path = f"{section}.{statement.name}"
        if statement.name in parts:
            self._again(path, first.at)
            return
        self._place(path, first.at)
        self._places(statement, path)
        values = {
            name: self._filled(statement, (name,), path, value)
            for name, value in statement.section.items()
        }
        if statement.query is not None:
            values["sql"] = self._variables.substituted(
                self._query(*statement.query), f"{path}.sql"
            )
        parts[statement.name] = values

    def _query(self, at: int, end: int) -> str:
        """A query after blank lines and spaces, so that it has the file's lines and columns."""
        line, column = self._line_and_column(at)
        return "\n" * (line - 1) + " " * (column - 1) + self._text[at:end]

    def _filled(
        self, statement: Statement, place: tuple[str, ...], path: str, value: object
    ) -> object:
        """The value with variables substituted in its texts."""
        if isinstance(value, dict):
            return {
                name: self._filled(statement, (*place, name), path, each)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [
                self._filled(statement, (*place, str(number)), path, each)
                for number, each in enumerate(value)
            ]
        if isinstance(value, str) and place in statement.texts:
            return self._variables.substituted(value, _joined(path, place))
        return value

    def _places(self, statement: Statement, path: str) -> None:
        for place, at in statement.places.items():
            self._place(_joined(path, place), at)
        for place, at in statement.repeated:
            self._again(_joined(path, place), at)

    def _again(self, path: str, at: int) -> None:
        line, column = self._line_and_column(at)
        again = f"must be given once; is given again at line {line}, column {column}"
        self._problems.append((path, again))

    def _place(self, path: str, at: int) -> None:
        self._lines[path], self._columns[path] = self._line_and_column(at)

    def _line_and_column(self, at: int) -> tuple[int, int]:
        before = self._text[:at]
        return before.count("\n") + 1, at - before.rfind("\n")

    def _refuse(self, path: str, problem: str) -> None:
        self._problems.append((path, problem))
        if path in self._lines:
            self._unread.add(path)


def _joined(path: str, place: Iterable[str]) -> str:
    return ".".join(filter(None, (path, *place)))


def _statements(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """The tokens of each statement, without the semicolon."""
    current: list[Token] = []
    for token in tokens:
        if token.text != ";":
            current.append(token)
        elif current:
            yield current
            current = []
    if current:
        yield current

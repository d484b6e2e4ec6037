"""SQL text -> the values that the same pipeline has in YAML, with lines and columns.

    CREATE PIPELINE name [WITH (options)]
    CREATE SOURCE name [(column TYPE [ENCODING word], …)] FROM KAFKA (options)
    CREATE [MATERIALIZED] VIEW name [WITH (options)] AS query
    CREATE OPERATOR name WITH (options)
    CREATE FUNCTION name(parameter TYPE, …) RETURNS TYPE LANGUAGE PYTHON
        [CALLED ON NULL INPUT] AS 'module:function'
    CREATE AGGREGATE name(parameter TYPE, …) RETURNS TYPE LANGUAGE PYTHON AS 'module:Class'
    CREATE SINK name FROM view INTO KAFKA (options)
    CREATE SINK name FROM sink INTO POSTGRES (options)

Options are `name = value, …`.  A value is a text in single quotes, a word, a number, a list of
values in parentheses, or options in parentheses.  Their names and meanings are those of the
YAML file, and are checked together with it.

DuckDB parses the queries, and its tokens separate the statements, so a semicolon in a text or a
comment ends none.  A statement that cannot be read is one problem; the part that it defines counts
as unread, and all others are still checked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ikebana.processor.authoring.deliver_section import TARGETS, TableSection
from ikebana.processor.authoring.pipeline_file import PipelineFile
from ikebana.processor.authoring.pipeline_yaml import Document, Variables
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.syntax import Token, tokens

# The section of the file for each kind of statement.
_SECTIONS = {
    "PIPELINE": "",
    "SOURCE": "inputs",
    "VIEW": "operators",
    "OPERATOR": "operators",
    "FUNCTION": "functions",
    "AGGREGATE": "functions",
    "SINK": "outputs",
}
_FORMS = {
    "PIPELINE": "CREATE PIPELINE name WITH (…)",
    "SOURCE": "CREATE SOURCE name (column TYPE, …) FROM KAFKA (topic = '…', …)",
    "VIEW": "CREATE VIEW name AS SELECT …",
    "OPERATOR": "CREATE OPERATOR name WITH (…)",
    "FUNCTION": "CREATE FUNCTION name(parameter TYPE, …) RETURNS TYPE LANGUAGE PYTHON "
    "AS 'module:function'",
    "AGGREGATE": "CREATE AGGREGATE name(parameter TYPE, …) RETURNS TYPE LANGUAGE PYTHON "
    "AS 'module:Class'",
    "SINK": "CREATE SINK name FROM view INTO KAFKA (topic = '…', …), or FROM sink INTO POSTGRES "
    "(connection = '…', table = '…', …)",
}
# The section of sinks into a target, and the keys of a table there.
_DELIVER = "deliver"
_OF_TABLE = frozenset(TableSection.keys())
# Other first words of statements, and the kind that is probably meant.
_INSTEAD = {
    "SELECT": "VIEW",
    "WITH": "VIEW",
    "SET": "PIPELINE",
    "INSERT": "SINK",
    "TABLE": "SOURCE",
    "STREAM": "SOURCE",
    "CONNECTION": "PIPELINE",
}
_DEEPEST = 40
SettingPath = tuple[str, ...]


class Cursor:
    """A position in the tokens of one statement (at least one), which advances as they are taken.

    `form` is the form of this kind of statement, which refusals show, as soon as it is known.

    Raises: SqlQueryError, from all methods that take a token.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.form = ""

    def name(self, expected: str) -> str:
        """Take a name, quoted or not."""
        token = self.token(expected)
        if token.kind not in ("identifier", "keyword"):
            self.at -= 1
            self.refuse(expected)
        return named(token)

    def long_name(self, expected: str) -> str:
        """A name that may have dots and dashes without being quoted."""
        name = self.name(expected)
        while self.next_is(".", "-"):
            name += self.token("").text + self.name("the rest of a name")
        return name

    def token(self, expected: str) -> Token:
        """Take the next token; at the end, refuse and say what is `expected`."""
        if self.at == len(self.tokens):
            self.refuse(expected)
        self.at += 1
        return self.tokens[self.at - 1]

    def next_is(self, *texts: str) -> bool:
        """Whether the next token is one of these."""
        return self.at < len(self.tokens) and self.tokens[self.at].text.upper() in texts

    def next_kind(self) -> str:
        """The kind of the next token; "" at the end."""
        return self.tokens[self.at].kind if self.at < len(self.tokens) else ""

    def takes(self, word: str) -> bool:
        """Take the next token if it is this word; returns whether it was."""
        is_next = self.next_is(word)
        self.at += is_next
        return is_next

    def expect(self, word: str) -> None:
        """Take the next token, which must be this word."""
        if not self.takes(word):
            self.refuse(f'"{word}"')

    def place(self) -> int:
        """Where the next token is."""
        rest = self.tokens[self.at :]
        return rest[0].at if rest else self.tokens[-1].end

    def refuse(self, expected: str) -> NoReturn:
        """Refuse the statement: `expected` is missing at the next token."""
        rest = self.tokens[self.at :]
        actual = f'"{rest[0].text[:30]}" stands there' if rest else "the statement ends there"
        remedy = f"; its form is {self.form}" if self.form else ""
        raise SqlQueryError(f"must have {expected} where {actual}{remedy}", self.place())

    def type_text(self, end: str = "") -> str:
        """A type, up to a comma, a parenthesis, or the word that ends it."""
        first = self.token("a type")
        depth, last = 0, first
        self.at -= 1
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if depth == 0 and (token.text in (",", ")") or token.text.upper() == end):
                break
            depth += (token.text == "(") - (token.text == ")")
            last = token
            self.at += 1
        if last is first and first.text in (",", ")"):
            self.at -= 1
            self.refuse("a type")
        return _between(self.tokens, first, last)

    def ends(self) -> bool:
        """Take a comma or the parenthesis that ends a list; returns whether it ended."""
        if not self.takes(",") and not self.next_is(")"):
            self.refuse('"," or ")"')
        return self.takes(")")

    def refuse_tail(self, token: Token) -> None:
        """Refuse a token directly after a value, such as the s of 10s."""
        if self.at < len(self.tokens):
            after = self.tokens[self.at]
            if after.text not in (",", ")"):
                raise SqlQueryError(
                    f"put the value that begins with {token.text} in single quotes", token.at
                )


def _between(tokens: Sequence[Token], first: Token, last: Token) -> str:
    """The text from one token to another, with single spaces."""
    part = [each for each in tokens if first.at <= each.at <= last.at]
    return "".join(
        each.text if number == 0 or part[number - 1].end == each.at else f" {each.text}"
        for number, each in enumerate(part)
    )


def named(token: Token) -> str:
    """The name of a token, without its double quotes.  Raises: SqlQueryError."""
    if not token.text.startswith('"'):
        return token.text
    if len(token.text) < 2 or not token.text.endswith('"'):
        raise SqlQueryError("this name in double quotes has no end", token.at)
    return token.text[1:-1].replace('""', '"')


@dataclass(slots=True)
class _Statement:
    """What was read of a statement, even if it was refused."""

    kind: str = ""
    name: str = ""
    section: dict[str, object] = field(default_factory=dict)
    places: dict[SettingPath, int] = field(default_factory=dict)
    """The position of each key of the section."""
    repeated: list[tuple[SettingPath, int]] = field(default_factory=list)
    """Repeated keys with their positions."""
    texts: set[SettingPath] = field(default_factory=set)
    """The places of values that are texts, which may have variables."""
    query: tuple[int, int] | None = None
    """Begin and end of a view's query."""
    delivers: bool = False
    """Whether it is a sink into a target, which reads the topic of another sink."""

    @property
    def belongs(self) -> str:
        """The section of the file that it belongs to."""
        return _DELIVER if self.delivers else _SECTIONS[self.kind]


class _StatementReader(Cursor):
    """Reads one statement.  Raises: SqlQueryError."""

    def __init__(self, tokens: Sequence[Token], into: _Statement) -> None:
        super().__init__(tokens)
        self._into = into

    def statement(self) -> None:
        """Read it from its first token on."""
        into, first = self._into, self.tokens[0]
        if not self.takes("CREATE"):
            self._refuse_begin(first)
        self.takes("MATERIALIZED")
        kind = self.token("PIPELINE, SOURCE, VIEW, OPERATOR, FUNCTION, AGGREGATE or SINK")
        word = kind.text.upper()
        if word not in _SECTIONS:
            self._refuse_begin(kind)
        into.kind, self.form = word, _FORMS[word]
        into.name = self.long_name("a name")
        match word:
            case "PIPELINE":
                if self.takes("WITH"):
                    into.section = self._options(())
            case "SOURCE":
                self._source()
            case "VIEW":
                self._view()
            case "OPERATOR":
                self.expect("WITH")
                into.section = self._options(())
            case "FUNCTION":
                self._function("python")
            case "AGGREGATE":
                self._function("aggregate")
            case _:
                self._sink()
        if self.at < len(self.tokens):
            self.refuse('";" or the end')

    def _source(self) -> None:
        columns: dict[str, object] = {}
        if self.next_is("("):
            self._into.places["columns",] = self.tokens[self.at].at
            columns = self._columns("columns")
        self.expect("FROM")
        self.expect("KAFKA")
        options = self._options(())
        self._into.section = {**({"columns": columns} if columns else {}), **options}

    def _view(self) -> None:
        if self.next_is("("):
            raise SqlQueryError(
                "a view has the names of its query's columns; write SELECT … AS name",
                self.tokens[self.at].at,
            )
        options = self._options(()) if self.takes("WITH") else {}
        self.expect("AS")
        first = self.token("a query")
        self._into.places["sql",] = first.at
        self._into.query = first.at, self.tokens[-1].end
        self._into.section = options
        self.at = len(self.tokens)

    def _sink(self) -> None:
        self.expect("FROM")
        self._into.places["from",] = self.place()
        source = self.long_name("the name of a view")
        self.expect("INTO")
        for target in TARGETS:
            if self.takes(target.upper()):
                self._deliver(target, source)
                return
        self.expect("KAFKA")
        self._into.section = {"from": source, **self._options(())}

    def _deliver(self, target: str, source: str) -> None:
        """A sink with one table, which is called like the sink unless `table` names it."""
        into = self._into
        into.delivers = True
        options = self._options(())
        table = str(options.pop("table", into.name))
        of_table = {name: options.pop(name) for name in _OF_TABLE & options.keys()}
        into.section = {target: options, "tables": {table: {"from": source, **of_table}}}

        def moved(place: SettingPath) -> SettingPath:
            return (
                ("tables", table, *place) if place[0] in (*_OF_TABLE, "from") else (target, *place)
            )

        into.places = {moved(place): at for place, at in into.places.items()}
        into.texts = {moved(place) for place in into.texts}
        into.repeated = [(moved(place), at) for place, at in into.repeated]

    def _function(self, kind: str) -> None:
        """A function, or a class that is an aggregate."""
        section: dict[str, object] = {"parameters": self._columns("parameters")}
        self.expect("RETURNS")
        self._note(("returns",), self.place(), is_new=True)
        section["returns"] = self.type_text("LANGUAGE")
        self.expect("LANGUAGE")
        self.expect("PYTHON")
        if kind == "python" and self.takes("CALLED"):
            for word in ("ON", "NULL", "INPUT"):
                self.expect(word)
            section["on_null"] = "call"
        self.expect("AS")
        self._note((kind,), self.place(), is_new=True)
        section[kind] = _text(self.token("a text such as 'module:function'"))
        self._into.section = section

    def _columns(self, part: str) -> dict[str, object]:
        """Columns or parameters with their types, which DuckDB checks later."""
        columns: dict[str, object] = {}
        self.expect("(")
        if part == "parameters" and self.takes(")"):
            return columns
        while True:
            at = self.place()
            name = self.name("a name")
            if name.upper() == "PRIMARY" and self.next_is("KEY"):
                raise SqlQueryError(
                    "a source says what its key is as an option: FROM KAFKA (…, key = (…))", at
                )
            place = (part, name)
            self._note(place, at, is_new=name not in columns)
            columns[name] = self._type(place)
            if self.ends():
                return columns

    def _type(self, place: SettingPath) -> object:
        kind = self.type_text("ENCODING")
        if not self.takes("ENCODING"):
            return kind
        return {"type": kind, "encoding": self._value((*place, "encoding"), 0)}

    def _options(self, within: SettingPath, depth: int = 0) -> dict[str, object]:
        """Options in parentheses; their names may have dots and dashes."""
        options: dict[str, object] = {}
        self.expect("(")
        if self.takes(")"):
            return options
        while True:
            at = self.place()
            name = self.long_name("the name of an option")
            place = (*within, name)
            self._note(place, at, is_new=name not in options)
            self.expect("=")
            options[name] = self._value(place, depth)
            if self.ends():
                return options

    def _value(self, place: SettingPath, depth: int) -> object:
        if self.next_is("("):
            return self._in_parentheses(place, depth)
        token = self.token("a value")
        match token.kind:
            case "string_const":
                self._into.texts.add(place)
                return _text(token)
            case "numeric_const":
                return self._number(token, "")
            case "operator" if token.text == "-" and self.next_kind() == "numeric_const":
                return self._number(self.token("a number"), "-")
            case "identifier" | "keyword":
                if token.text.upper() in ("TRUE", "FALSE"):
                    return token.text.upper() == "TRUE"
                self.refuse_tail(token)
                return named(token)
        self.at -= 1
        self.refuse("a value")

    def _in_parentheses(self, place: SettingPath, depth: int) -> object:
        """A list of values, or options if "=" follows the first name."""
        if depth == _DEEPEST:
            raise SqlQueryError(f"nested more than {_DEEPEST} levels deep", self.place())
        ahead = self.tokens[self.at + 1 : self.at + 20]
        words = [each for each in ahead if each.text not in (".", "-")]
        is_options = len(words) > 1 and words[0].kind in ("identifier", "keyword")
        if is_options and any(each.text == "=" for each in ahead[: _end_of_name(ahead)]):
            return self._options(place, depth + 1)
        values: list[object] = []
        self.expect("(")
        if self.takes(")"):
            return values
        while True:
            of_item = (*place, str(len(values)))
            self._into.places[of_item] = self.place()
            values.append(self._value(of_item, depth + 1))
            if self.ends():
                return values

    def _number(self, token: Token, sign: str) -> object:
        self.refuse_tail(token)
        text = sign + token.text.replace("_", "")
        try:
            return int(text)
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            raise SqlQueryError(f"{token.text} is no number", token.at) from None

    def _note(self, place: SettingPath, at: int, *, is_new: bool) -> None:
        if is_new:
            self._into.places[place] = at
        else:
            self._into.repeated.append((place, at))

    def _refuse_begin(self, token: Token) -> NoReturn:
        word = token.text.upper()
        if word in ("OR", "IF", "TEMP", "TEMPORARY"):
            problem = "a file says what there is: write CREATE and one of " + ", ".join(_SECTIONS)
        elif word in _INSTEAD:
            self._into.kind = _INSTEAD[word]
            problem = f"{word} is no statement of a pipeline; write {_FORMS[self._into.kind]}"
        else:
            forms = "; ".join(_FORMS.values())
            problem = f'"{token.text[:30]}" begins no statement of a pipeline; there are {forms}'
        raise SqlQueryError(problem, token.at)


def _end_of_name(ahead: Sequence[Token]) -> int:
    """The number of tokens of a name with dots and dashes, and of the token after it."""
    at = 1
    while at + 1 < len(ahead) and ahead[at].text in (".", "-"):
        at += 2
    return at + 1


def _text(token: Token) -> str:
    text = token.text
    if not text.startswith("'"):
        raise SqlQueryError("a text is written in single quotes", token.at)
    if len(text) < 2 or not text.endswith("'"):
        raise SqlQueryError("this text has no end", token.at)
    return text[1:-1].replace("''", "'")


_STATED = {"pipeline", *filter(None, _SECTIONS.values())}
_OF_PIPELINE = {*PipelineFile.keys()} - {*_SECTIONS.values()}
_NO_PIPELINE = (
    "is missing: write CREATE PIPELINE name WITH (kafka = (bootstrap.servers = '…'), "
    "run = (checkpoint = '…'))"
)


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
        statements = [*_statements(tokens(self._text))]
        for number, each in enumerate(statements, start=1):
            self._take(number, each)
        if "pipeline" not in self._value:
            if not self._unread & {"pipeline", *_SECTIONS.values()}:
                self._refuse("pipeline", _NO_PIPELINE)
            self._unread |= _OF_PIPELINE
        for section in ("inputs", "operators", "outputs"):
            if any(path.partition(".")[0] == section for path in self._unread):
                # The section may be in a statement that could not be read.
                self._value.setdefault(section, {})
        unread, lines = frozenset(self._unread), self._lines
        value = self._value if statements else None
        return Document(value, lines, self._problems, unread, self._columns)

    def _take(self, number: int, tokens: list[Token]) -> None:
        statement = _Statement()
        try:
            _StatementReader(tokens, statement).statement()
        except SqlQueryError as error:
            self._refuse_statement(number, statement, error)
            return
        if statement.kind == "PIPELINE":
            self._pipeline(statement, tokens[0])
        else:
            self._part(statement, tokens[0])

    def _refuse_statement(self, number: int, statement: _Statement, error: SqlQueryError) -> None:
        what = f"{statement.kind} {statement.name}" if statement.name else f"statement {number}"
        self._place(what, error.at or 0)
        self._problems.append((what, error.problem))
        section = statement.belongs if statement.kind in _SECTIONS else None
        if section is None:
            self._unread |= {"inputs", "operators", "outputs"}
        elif section and statement.name:
            self._unread.add(f"{section}.{statement.name}")
        elif section:
            self._unread.add(section)
        else:
            # The pipeline's statement: its name and all settings may be lost.
            self._unread |= _OF_PIPELINE

    def _pipeline(self, statement: _Statement, first: Token) -> None:
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

    def _part(self, statement: _Statement, first: Token) -> None:
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
        self, statement: _Statement, place: tuple[str, ...], path: str, value: object
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

    def _places(self, statement: _Statement, path: str) -> None:
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

"""A cursor over the tokens of one statement of a SQL pipeline file, and its refusals."""

from collections.abc import Sequence
from typing import NoReturn

from ikebana.processor.linear.tokens import Token


class StatementError(Exception):
    """A statement is refused; `at` is where in the text."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at


class Cursor:
    """A position in the tokens of one statement (at least one), which advances as they are taken.

    `form` is the form of this kind of statement, which refusals show, as soon as it is known.

    Raises: StatementError, from all methods that take a token.
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
        raise StatementError(f"must have {expected} where {actual}{remedy}", self.place())

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
                raise StatementError(
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
    """The name of a token, without its double quotes.  Raises: StatementError."""
    if not token.text.startswith('"'):
        return token.text
    if len(token.text) < 2 or not token.text.endswith('"'):
        raise StatementError("this name in double quotes has no end", token.at)
    return token.text[1:-1].replace('""', '"')

"""Who may read what: tokens, the collections and columns that each sees, and rates of requests.

Only the SHA-256 of tokens is kept, and a file may have these instead of tokens.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import yaml

from ikebana.errors import ConfigError
from ikebana.processor.base.texts import hint

_ALL: Literal["all"] = "all"


class Grant(NamedTuple):
    """The rights of a reader: `collections` by name with their visible columns, None for all.

    If `collections` is None, the reader sees all collections, and the plan.  `rate` is the number
    of requests a second, and `subscriptions` the number of open ones; None for the default.
    """

    name: str
    collections: Mapping[str, frozenset[str] | None] | None = None
    rate: float | None = None
    subscriptions: int | None = None

    def sees(self, name: str) -> bool:
        """Whether the reader sees a collection."""
        return self.collections is None or name in self.collections

    def columns(self, name: str) -> frozenset[str] | None:
        """Return the columns of a collection that the reader sees; None for all."""
        return None if self.collections is None else self.collections[name]


EVERYTHING = Grant("anyone")
NOTHING = Grant("nobody", {})


class Access(NamedTuple):
    """The grants by the SHA-256 of their tokens; None: everybody sees everything."""

    grants: Mapping[bytes, Grant] | None = None

    @classmethod
    def of_tokens(cls, tokens: Iterable[str]) -> "Access":
        """Let tokens read everything."""
        return cls(
            {
                _digest(token): Grant(f"token-{number}")
                for number, token in enumerate(tokens, start=1)
            }
        )

    def of(self, token: str) -> Grant | None:
        """Return the grant of a token; None if there is none."""
        return None if self.grants is None else self.grants.get(_digest(token))

    def check(self, names: Collection[str]) -> None:
        """Refuse a file that names collections which are not served.  Raises: ConfigError."""
        for grant in (self.grants or {}).values():
            for name in grant.collections or ():
                if name not in names:
                    raise ConfigError(
                        f'the token "{grant.name}" names a collection "{name}" that is not '
                        f"served{hint(name, list(names))}",
                        hint=f"There are: {', '.join(sorted(names))}.",
                    )


class _Columns(msgspec.Struct, forbid_unknown_fields=True):
    columns: list[str]


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    collections: Literal["all"] | list[str] | dict[str, Literal["all"] | _Columns]
    token: str | None = None
    token_sha256: str | None = None
    requests_per_second: float | None = None
    subscriptions: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[_Token]


def read(path: Path) -> Access:
    """Read a file of tokens: YAML by its suffix, else a token a line, which sees everything.

    Raises:
        ConfigError: the file cannot be read, is wrong, or has no token.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"could not read tokens {path}: {error}") from error
    if path.suffix in (".yaml", ".yml"):
        return _of_yaml(path, text)
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(
            f"cannot use tokens {path}: it has none", hint="Write one token on each line."
        )
    for words in lines:
        if len(words) > 1 or not words[0].isascii():
            raise ConfigError(
                f"cannot use tokens {path}: a line has more than a token of ASCII",
                hint="Write what a token may see into a YAML file, such as tokens.yaml.",
            )
    return Access.of_tokens(words[0] for words in lines)


def _of_yaml(path: Path, text: str) -> Access:
    try:
        file = msgspec.convert(yaml.safe_load(text), _File)
    except yaml.YAMLError as error:
        # Its message would quote the file.
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"cannot use tokens {path}: it is not YAML{place}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"cannot use tokens {path}: {error}",
            hint="The page on serving has an example of such a file.",
        ) from error
    grants: dict[bytes, Grant] = {}
    names: set[str] = set()
    for each in file.tokens:
        digest = _digest_of(path, each)
        if digest in grants or each.name in names:
            raise ConfigError(f'cannot use tokens {path}: "{each.name}" is there twice')
        names.add(each.name)
        grants[digest] = _grant(path, each)
    if not grants:
        raise ConfigError(f"cannot use tokens {path}: it has none")
    return Access(grants)


def _digest_of(path: Path, token: _Token) -> bytes:
    if (token.token is None) == (token.token_sha256 is None):
        raise ConfigError(
            f'cannot use tokens {path}: "{token.name}" needs `token` or `token_sha256`'
        )
    if token.token is not None:
        if not token.token or not token.token.isascii() or token.token.split() != [token.token]:
            raise ConfigError(
                f'cannot use tokens {path}: the token of "{token.name}" is no word of ASCII'
            )
        return _digest(token.token)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", token.token_sha256 or ""):
        raise ConfigError(
            f'cannot use tokens {path}: `token_sha256` of "{token.name}" is no SHA-256',
            hint="Make it: printf %s TOKEN | sha256sum",
        )
    return bytes.fromhex(token.token_sha256 or "")


def _grant(path: Path, token: _Token) -> Grant:
    for setting in ("requests_per_second", "subscriptions"):
        number = getattr(token, setting)
        if number is not None and not 0 < number < math.inf:
            raise ConfigError(
                f'cannot use tokens {path}: {setting} of "{token.name}" is not more than 0, '
                "or not finite"
            )
    listed = token.collections
    collections: dict[str, frozenset[str] | None] | None
    if listed == _ALL or isinstance(listed, str):
        collections = None
    elif isinstance(listed, list):
        collections = dict.fromkeys(listed)
    else:
        collections = {
            name: frozenset(each.columns) if isinstance(each, _Columns) else None
            for name, each in listed.items()
        }
    return Grant(token.name, collections, token.requests_per_second, token.subscriptions)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

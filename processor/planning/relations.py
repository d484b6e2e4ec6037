"""Relations: a collection's columns, unique keys and size, without its data.

`determines` has functional dependencies: rows that agree in the first columns agree in the others.
No two rows agree in all columns of a set in `unique`, where each row counts once; so the set
determines all columns.  Nulls are equal to each other.  Columns are names: the key of a row is the
column `key`.  Whatever is here is true, but not all that is true is here.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import NamedTuple

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, SHORT, VALUE, ExpressionError, Scope, unknown
from ikebana.processor.linear.steps import AnyStep, Call, Negate, Sql
from ikebana.processor.linear.syntax import Node, columns, equality_sides, tree


@dataclass(frozen=True, slots=True)
class Relation:
    """The properties of a collection that a plan knows.

    `scope` has the names and types of its data; if they come on several ways, `others` has the
    scopes that differ from the first.  No two data are equal in all columns of one entry of
    `unique`.  `size` is the declared number of data, None if none is declared.  With
    `keeps_state`, the operator of the relation stores it by its key, as an upsert does: lookups by
    that key read this state, and need no further arrangement.
    """

    scope: Scope
    unique: tuple[tuple[str, ...], ...] = ()
    size: int | None = None
    keeps_state: bool = False
    others: tuple[Scope, ...] = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scope of its data, for each way to it that differs."""
        return (self.scope, *self.others)

    def one_at_most(self, keys: Collection[str]) -> bool:
        """Whether at most one datum has given values in these, SQL over its data."""
        return self.unique_key(keys) is not None

    def unique_key(self, keys: Collection[str]) -> frozenset[str] | None:
        """Return the subset of these keys that is a unique key; None if there is none."""
        unique = [*([(KEY,)] if self.keeps_state else []), *self.unique]
        for names in unique:
            matching = frozenset(key for key in keys for c in names if key in (c, quoted(c)))
            if len(matching) == len(names):
                return matching
        return None


def of_scopes(scopes: Iterable[Scope]) -> Relation:
    """A relation with data of these scopes; unknown if there are none."""
    different: list[Scope] = []
    for scope in scopes:
        if scope not in different:
            different.append(scope)
    first, *others = different or [unknown()]
    return Relation(first, others=tuple(others))


ColumnSet = frozenset[str]
Dependency = tuple[ColumnSet, ColumnSet]
# At most this many combinations of keys are examined.
_MOST = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """The unique keys and dependencies of a collection."""

    unique: tuple[ColumnSet, ...] = ()
    determines: tuple[Dependency, ...] = ()

    def closure(self, columns: Iterable[str]) -> ColumnSet:
        """The columns that these determine, including themselves.

        >>> Keys(determines=((frozenset("a"), frozenset("b")),)).closure("ac") == {*"abc"}
        True
        """
        return _Closures(self.determines).of(columns)

    def is_unique(self, columns: Iterable[str]) -> bool:
        """Whether no two rows agree in all of these."""
        determined = self.closure(columns)
        return any(key <= determined for key in self.unique)

    def minimal(self, columns: Iterable[str]) -> tuple[str, ...]:
        """A minimal part of these columns that determines all of them.

        >>> Keys(determines=((frozenset("a"), frozenset("bc")),)).minimal("abcd")
        ('a', 'd')
        """
        return _minimal(columns, _Closures(self.determines))

    def with_unique(self, key: Iterable[str], columns: Iterable[str]) -> "Keys":
        """Add a unique key; the collection has these columns."""
        unique = frozenset(key)
        return Keys((*self.unique, unique), (*self.determines, (unique, frozenset(columns))))

    def with_dependencies(self, more: Iterable[Dependency]) -> "Keys":
        """Add dependencies."""
        return Keys(self.unique, (*self.determines, *more))

    def together(self, other: "Keys") -> "Keys":
        """Unite what is known of one collection from two sources."""
        unique = dict.fromkeys((*self.unique, *other.unique))
        return Keys(tuple(unique), (*self.determines, *other.determines))

    def prefixed(self, alias: str) -> "Keys":
        """Prefix all columns with an alias."""
        return self._renamed(lambda name: f"{alias}.{name}")

    def several(self) -> "Keys":
        """What still holds if a row may become several rows with the same columns."""
        return Keys((), self.determines)

    def selected(self, columns: Mapping[str, "Derivation"]) -> "Keys":
        """The keys and dependencies of new columns, each computed from the former ones."""
        former = {"\0" + name: of for name, of in columns.items()}
        whole = self.with_dependencies(_derived_dependencies(former))
        closures = _Closures(whole.determines)
        # By former column, the new one in its place: the same under another name, or a
        # determinant.
        instead = {c: name for name, of in former.items() if of.is_of_one for c in of.of}
        for name in former:
            for column in closures.of([name]):
                instead.setdefault(column, name)
        unique = list(_replaced(self.unique, instead))
        closure_of: dict[ColumnSet, ColumnSet] = {}
        for key in (
            *unique,
            *_replaced((determinant for determinant, _ in whole.determines), instead),
        ):
            if key not in closure_of:
                closure_of[key] = closures.of(key).intersection(former)
        minimal = dict.fromkeys(frozenset(_minimal(sorted(key), closures)) for key in unique)
        determines = tuple(
            (determinant, others)
            for determinant, others in closure_of.items()
            if others - determinant
        )
        return Keys(tuple(minimal), determines)._renamed(lambda name: name.removeprefix("\0"))

    def _renamed(self, named: Callable[[str], str]) -> "Keys":
        def all_of(columns: ColumnSet) -> ColumnSet:
            return frozenset(map(named, columns))

        return Keys(
            tuple(map(all_of, self.unique)),
            tuple(
                (all_of(determinant), all_of(others)) for determinant, others in self.determines
            ),
        )


@dataclass(frozen=True, slots=True)
class Derivation:
    """A column that is computed from others; `one_to_one` if it determines them, too.

    If it `is_same`, it is another column, unchanged.
    """

    of: ColumnSet
    one_to_one: bool = False
    is_same: bool = False

    @property
    def is_of_one(self) -> bool:
        """Whether it is another column, unchanged or as the field of an object."""
        return self.one_to_one and len(self.of) == 1


def unchanged(column: str) -> Derivation:
    """The derivation of a column that is another one."""
    return Derivation(frozenset((column,)), one_to_one=True, is_same=True)


NOTHING = Keys()


class KnownKeys(NamedTuple):
    """Keys that are sure, and keys that also rely on unchecked declarations of inputs."""

    sure: Keys = NOTHING
    declared: Keys = NOTHING

    def each(self, combine: Callable[..., Keys], *others: "KnownKeys") -> "KnownKeys":
        """Apply a function to the sure keys, and to the declared ones."""
        every = (self, *others)
        return KnownKeys(
            combine(*(of.sure for of in every)), combine(*(of.declared for of in every))
        )


NOTHING_KNOWN = KnownKeys()


def joined(sides: Iterable[Keys], equalities: Iterable[tuple[str, str]]) -> Keys:
    """The keys of combinations of rows of several collections, which share no column names.

    In each pair of `equalities` both columns are equal.

    >>> left, right = NOTHING.with_unique("a", "ab"), NOTHING.with_unique("c", "cd")
    >>> joined((left, right), [("b", "c")]).unique
    (frozenset({'a'}),)
    """
    parts = tuple(sides)
    more = [
        (frozenset((one,)), frozenset((other,)))
        for pair in equalities
        for one, other in (pair, pair[::-1])
    ]
    determines = (*(each for side in parts for each in side.determines), *more)
    closures = _Closures(determines)
    combined = islice(product(*(side.unique for side in parts)), _MOST)
    # Columns of the first collection come first, so that minimal keys prefer them.
    unique = dict.fromkeys(
        frozenset(_minimal((column for key in keys for column in sorted(key)), closures))
        for keys in combined
    )
    return Keys(tuple(unique), determines)


def left_joined(
    left: Keys, right: Keys, equalities: Collection[tuple[str, str]], columns: Iterable[str]
) -> Keys:
    """The keys of a left join with these columns.

    Dependencies of the right do not hold in rows without a match, where its columns are null.
    """
    inner = joined((left, right), equalities)
    every = frozenset(columns)
    result = Keys((), left.determines)
    for key in left.unique:
        if inner.is_unique(key):
            result = result.with_unique(key, every)
        else:
            for other in right.unique:
                result = result.with_unique(key | other, every)
    return result


def _derived_dependencies(columns: Mapping[str, Derivation]) -> Iterator[Dependency]:
    for name, of in columns.items():
        column = frozenset((name,))
        yield of.of, column
        if of.one_to_one:
            yield column, of.of


def _replaced(keys: Iterable[ColumnSet], instead: Mapping[str, str]) -> Iterator[ColumnSet]:
    """Each set of columns, with all columns replaced; sets that cannot be are left out."""
    for key in keys:
        if all(column in instead for column in key):
            yield frozenset(instead[column] for column in key)


def _minimal(columns: Iterable[str], closures: "_Closures") -> tuple[str, ...]:
    minimal = list(dict.fromkeys(columns))
    for column in reversed(minimal.copy()):
        others = [each for each in minimal if each != column]
        if column in closures.of(others):
            minimal = others
    return tuple(minimal)


class _Closures:
    """Computes closures, in time linear in the dependencies that hold."""

    def __init__(self, determines: Sequence[Dependency]) -> None:
        self._determines = determines
        self._always = [at for at, (determinant, _) in enumerate(determines) if not determinant]
        self._asking: defaultdict[str, list[int]] = defaultdict(list)
        for at, (determinant, _) in enumerate(determines):
            for column in determinant:
                self._asking[column].append(at)

    def of(self, columns: Iterable[str]) -> ColumnSet:
        """The columns that these determine, including themselves."""
        closure = set(columns)
        waiting = list(closure)
        missing: dict[int, int] = {}
        holding = list(self._always)
        while waiting or holding:
            for at in holding:
                waiting += (new := self._determines[at][1] - closure)
                closure |= new
            holding = []
            if waiting:
                for at in self._asking.get(waiting.pop(), ()):
                    missing[at] = missing.get(at, len(self._determines[at][0])) - 1
                    if not missing[at]:
                        holding.append(at)
        return frozenset(closure)


# Types with values that are equal in SQL but not the same; the unknown type is one.
_LOOSE = ("FLOAT", "DOUBLE", "?")


class Keyed(NamedTuple):
    """The unique keys of a collection, and the types of its columns, including the key."""

    keys: Keys
    types: Mapping[str, str]


def keys_after(source: Keyed, steps: Sequence[AnyStep]) -> Keys:
    """The keys after linear steps."""
    keys, names = source.keys, [KEY, VALUE, *source.types]
    for step in steps:
        match step:
            case Sql() if step.flat_map is None:
                keys = keys if step.diff is None else keys.several()
                columns = {name: unchanged(name) for name in names}
                if step.select is not None:
                    columns = {KEY: columns[KEY]}
                    columns |= {
                        name: derivation_of(text, names=names) for name, text in step.select
                    }
                if step.key is not None:
                    columns[KEY] = derivation_of(step.key, names=names)
                if step.select is not None or step.key is not None:
                    keys, names = keys.selected(columns), list(columns)
            case Negate():
                keys = keys.several()
            case Call(kind="filter"):
                pass
            case _:
                return NOTHING
    return keys


def derivation_of(text: str, parts: int = 1, *, names: Collection[str]) -> Derivation:
    """The columns that an expression reads; with two `parts`, columns behind an alias.

    `names` has the existing columns: if none is `key`, that name is the whole key.
    """
    if parts == 1 and (name := _name_of(text)) is not None:
        return unchanged(_meant((name,), names))
    try:
        return derivation_of_tree(tree(text), parts, names=names)
    except ExpressionError:
        return Derivation(frozenset(("?",)))


def derivation_of_tree(node: Node, parts: int = 1, *, names: Collection[str]) -> Derivation:
    """The columns that a parsed expression reads, as in `derivation_of`."""
    references = columns(node, with_parts=True)
    read = frozenset(_meant(each[:parts], names) for each in references)
    fields = [node]
    if node["class"] == "FUNCTION" and node["function_name"].lower() == "struct_pack":
        fields = [each["expression"] for each in node["arguments"]]
    same = [
        each["class"] == "COLUMN_REF" and len(each["column_names"]) == parts for each in fields
    ]
    return Derivation(read, one_to_one=all(same), is_same=fields == [node] and all(same))


def _meant(parts: Sequence[str], names: Collection[str]) -> str:
    name = ".".join(parts)
    if name in names or parts[-1] not in SHORT:
        return name
    return ".".join((*parts[:-1], SHORT[parts[-1]]))


def _name_of(text: str) -> str | None:
    """The column that an expression names, if it is only a name."""
    if text.isidentifier() and text.isascii():
        return text if text.lower() not in ("null", "true", "false") else None
    inner = text[1:-1]
    is_quoted = len(text) > 2 and text[0] == text[-1] == '"' and '"' not in inner
    return inner if is_quoted else None


def equalities(conditions: Collection[Node], types: Mapping[str, str]) -> list[tuple[str, str]]:
    """The pairs of columns, behind their aliases, that conditions declare equal."""
    pairs = []
    for node in conditions:
        sides = [derivation_of_tree(side, 2, names=types) for side in equality_sides(node) or ()]
        if sides and all(side.is_of_one for side in sides):
            pair = tuple(name for side in sides for name in side.of)
            one, other = (types.get(name, "?") for name in pair)
            if one == other and not any(word in one for word in _LOOSE):
                pairs.append((pair[0], pair[1]))
    return pairs

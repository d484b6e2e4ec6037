"""Unique keys: which columns tell the rows of a collection apart, and which determine others.

`determines` has functional dependencies: rows that agree in the first columns agree in the others.
A set of columns in `unique` is one in which no two rows agree, where each row counts once; so it
determines all columns.  Nulls are equal to each other, and columns are names alone: the key of a
row is the column `key`.  What is not known is left out, so whatever is here is true.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import NamedTuple

from ikebana.processor.linear.scope import KEY, SHORT, VALUE, ExpressionError
from ikebana.processor.linear.steps import AnyStep, Call, Negate, Sql
from ikebana.processor.linear.syntax import Node, tree
from ikebana.processor.linear.trees import columns, equated

Columns = frozenset[str]
Dependency = tuple[Columns, Columns]
# Of a product of keys, no more are looked at.
_MOST = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """What is known of the columns of a collection."""

    unique: tuple[Columns, ...] = ()
    determines: tuple[Dependency, ...] = ()

    def closure(self, columns: Iterable[str]) -> Columns:
        """The columns that some determine, themselves among them.

        >>> Keys(determines=((frozenset("a"), frozenset("b")),)).closure("ac") == {*"abc"}
        True
        """
        return _Closures(self.determines).of(columns)

    def is_unique(self, columns: Iterable[str]) -> bool:
        """Whether no two rows agree in all of these."""
        found = self.closure(columns)
        return any(key <= found for key in self.unique)

    def minimal(self, columns: Iterable[str]) -> tuple[str, ...]:
        """A minimal part of these columns that determines all of them.

        >>> Keys(determines=((frozenset("a"), frozenset("bc")),)).minimal("abcd")
        ('a', 'd')
        """
        return _minimal(columns, _Closures(self.determines))

    def with_unique(self, key: Iterable[str], columns: Iterable[str]) -> "Keys":
        """The same with one more unique key, of a collection with these columns."""
        own = frozenset(key)
        return Keys((*self.unique, own), (*self.determines, (own, frozenset(columns))))

    def with_dependencies(self, more: Iterable[Dependency]) -> "Keys":
        """The same where columns also determine these."""
        return Keys(self.unique, (*self.determines, *more))

    def together(self, other: "Keys") -> "Keys":
        """What is known from two sides of the same collection."""
        unique = dict.fromkeys((*self.unique, *other.unique))
        return Keys(tuple(unique), (*self.determines, *other.determines))

    def prefixed(self, alias: str) -> "Keys":
        """The same of columns with a prefix."""
        return self._renamed(lambda name: f"{alias}.{name}")

    def several(self) -> "Keys":
        """What is left where a row may become several, which have all of its columns."""
        return Keys((), self.determines)

    def selected(self, made: Mapping[str, "Made"]) -> "Keys":
        """What is known of new columns, each made of the former ones."""
        former = {"\0" + name: of for name, of in made.items()}
        whole = self.with_dependencies(_made_dependencies(former))
        closures = _Closures(whole.determines)
        # What stands for a former column: itself under another name, or what determines it.
        instead = {c: name for name, of in former.items() if of.is_same for c in of.of}
        for name in former:
            for column in closures.of([name]):
                instead.setdefault(column, name)
        unique = list(_replaced(self.unique, instead))
        found: dict[Columns, Columns] = {}
        for key in (*unique, *_replaced((given for given, _ in whole.determines), instead)):
            if key not in found:
                found[key] = closures.of(key).intersection(former)
        minimal = dict.fromkeys(frozenset(_minimal(sorted(key), closures)) for key in unique)
        determines = tuple((given, others) for given, others in found.items() if others - given)
        return Keys(tuple(minimal), determines)._renamed(lambda name: name.removeprefix("\0"))

    def _renamed(self, named: Callable[[str], str]) -> "Keys":
        def all_of(columns: Columns) -> Columns:
            return frozenset(map(named, columns))

        return Keys(
            tuple(map(all_of, self.unique)),
            tuple((all_of(given), all_of(others)) for given, others in self.determines),
        )


@dataclass(frozen=True, slots=True)
class Made:
    """A column that is made of others; `one_to_one` if it determines them, too."""

    of: Columns
    one_to_one: bool = False

    @property
    def is_same(self) -> bool:
        """Whether it is another column as it is."""
        return self.one_to_one and len(self.of) == 1


NOTHING = Keys()


class Facts(NamedTuple):
    """What is known for sure, and with what inputs declare of their columns, unchecked."""

    sure: Keys = NOTHING
    declared: Keys = NOTHING

    def each(self, made: Callable[..., Keys], *others: "Facts") -> "Facts":
        """Both of something, made of both of these."""
        every = (self, *others)
        return Facts(made(*(of.sure for of in every)), made(*(of.declared for of in every)))


NOTHING_KNOWN = Facts()


def joined(sides: Iterable[Keys], equalities: Iterable[tuple[str, str]]) -> Keys:
    """What is known of the combinations of rows of several collections, of columns of their own.

    In each pair of `equalities` both columns are equal.

    >>> left, right = NOTHING.with_unique("a", "ab"), NOTHING.with_unique("c", "cd")
    >>> joined((left, right), [("b", "c")]).unique
    (frozenset({'a'}),)
    """
    known = tuple(sides)
    more = [
        (frozenset((one,)), frozenset((other,)))
        for pair in equalities
        for one, other in (pair, pair[::-1])
    ]
    determines = (*(each for side in known for each in side.determines), *more)
    closures = _Closures(determines)
    combined = islice(product(*(side.unique for side in known)), _MOST)
    # Columns of the first come first, and are those that are left.
    found = dict.fromkeys(
        frozenset(_minimal((column for key in keys for column in sorted(key)), closures))
        for keys in combined
    )
    return Keys(tuple(found), determines)


def left_joined(
    left: Keys, right: Keys, equalities: Collection[tuple[str, str]], columns: Iterable[str]
) -> Keys:
    """What is known of a left join, all of whose columns these are.

    Where nothing matches, what determines columns of the right, or is equal to them, does not
    hold: they are null.
    """
    inner = joined((left, right), equalities)
    every = frozenset(columns)
    found = Keys((), left.determines)
    for key in left.unique:
        if inner.is_unique(key):
            found = found.with_unique(key, every)
        else:
            for other in right.unique:
                found = found.with_unique(key | other, every)
    return found


def _made_dependencies(made: Mapping[str, Made]) -> Iterator[Dependency]:
    for name, of in made.items():
        own = frozenset((name,))
        yield of.of, own
        if of.one_to_one:
            yield own, of.of


def _replaced(keys: Iterable[Columns], instead: Mapping[str, str]) -> Iterator[Columns]:
    """Each set of columns, with other columns in their place, if all of them have one."""
    for key in keys:
        if all(column in instead for column in key):
            yield frozenset(instead[column] for column in key)


def _minimal(columns: Iterable[str], closures: "_Closures") -> tuple[str, ...]:
    found = list(dict.fromkeys(columns))
    for column in reversed(found.copy()):
        others = [each for each in found if each != column]
        if column in closures.of(others):
            found = others
    return tuple(found)


class _Closures:
    """What columns determine, in time linear in the dependencies that hold."""

    def __init__(self, determines: Sequence[Dependency]) -> None:
        self._determines = determines
        self._always = [at for at, (given, _) in enumerate(determines) if not given]
        self._asking: defaultdict[str, list[int]] = defaultdict(list)
        for at, (given, _) in enumerate(determines):
            for column in given:
                self._asking[column].append(at)

    def of(self, columns: Iterable[str]) -> Columns:
        """The columns that some determine, themselves among them."""
        found = set(columns)
        waiting = list(found)
        missing: dict[int, int] = {}
        holding = list(self._always)
        while waiting or holding:
            for at in holding:
                waiting += (new := self._determines[at][1] - found)
                found |= new
            holding = []
            if waiting:
                for at in self._asking.get(waiting.pop(), ()):
                    missing[at] = missing.get(at, len(self._determines[at][0])) - 1
                    if not missing[at]:
                        holding.append(at)
        return frozenset(found)


# Values of these are equal in SQL that are not the same.
_LOOSE = ("FLOAT", "DOUBLE", "?")


class Keyed(NamedTuple):
    """A collection: what is known of its columns, and their types; the key is among them."""

    keys: Keys
    types: Mapping[str, str]


def behind(source: Keyed, steps: Sequence[AnyStep]) -> Keys:
    """What is known behind linear steps."""
    keys, names = source.keys, [KEY, VALUE, *source.types]
    for step in steps:
        match step:
            case Sql() if step.flat_map is None:
                keys = keys if step.diff is None else keys.several()
                made = {name: Made(frozenset((name,)), one_to_one=True) for name in names}
                if step.select is not None:
                    made = {KEY: made[KEY]}
                    made |= {name: made_of(text, names=names) for name, text in step.select}
                if step.key is not None:
                    made[KEY] = made_of(step.key, names=names)
                if step.select is not None or step.key is not None:
                    keys, names = keys.selected(made), list(made)
            case Negate():
                keys = keys.several()
            case Call(kind="filter"):
                pass
            case _:
                return NOTHING
    return keys


def made_of(text: str, parts: int = 1, *, names: Collection[str]) -> Made:
    """What an expression is made of: columns, or with two `parts` those behind an alias.

    `names` are those of the columns that there are: where none is `key`, that is the whole key.
    """
    if parts == 1 and (name := _name_of(text)) is not None:
        return Made(frozenset((_meant((name,), names),)), one_to_one=True)
    try:
        return made_of_tree(tree(text), parts, names=names)
    except ExpressionError:
        return Made(frozenset(("?",)))


def made_of_tree(node: Node, parts: int = 1, *, names: Collection[str]) -> Made:
    """The same of an expression that has been read."""
    found = columns(node, with_parts=True)
    read = frozenset(_meant(each[:parts], names) for each in found)
    fields = [node]
    if node["class"] == "FUNCTION" and node["function_name"].lower() == "struct_pack":
        fields = [each["expression"] for each in node["arguments"]]
    same = [
        each["class"] == "COLUMN_REF" and len(each["column_names"]) == parts for each in fields
    ]
    return Made(read, one_to_one=all(same))


def _meant(parts: Sequence[str], names: Collection[str]) -> str:
    name = ".".join(parts)
    if name in names or parts[-1] not in SHORT:
        return name
    return ".".join((*parts[:-1], SHORT[parts[-1]]))


def _name_of(text: str) -> str | None:
    """The column that an expression is the name of, if it is one."""
    if text.isidentifier() and text.isascii():
        return text if text.lower() not in ("null", "true", "false") else None
    inner = text[1:-1]
    is_quoted = len(text) > 2 and text[0] == text[-1] == '"' and '"' not in inner
    return inner if is_quoted else None


def equalities(conditions: Collection[Node], types: Mapping[str, str]) -> list[tuple[str, str]]:
    """The pairs of columns, behind their aliases, that conditions say are the same."""
    found = []
    for node in conditions:
        sides = [made_of_tree(side, 2, names=types) for side in equated(node) or ()]
        if sides and all(side.is_same for side in sides):
            pair = tuple(name for side in sides for name in side.of)
            one, other = (types.get(name, "?") for name in pair)
            if one == other and not any(word in one for word in _LOOSE):
                found.append((pair[0], pair[1]))
    return found

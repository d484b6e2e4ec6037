"""The unique keys of what operators make, by those of what they read.

SQL is taken apart only where it is no name of a column: DuckDB takes a while to import.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ikebana.processor.joins.query import DeltaJoin
from ikebana.processor.linear.scope import KEY, SHORT, VALUE, ExpressionError
from ikebana.processor.linear.steps import AnyStep, Call, Negate, Sql
from ikebana.processor.linear.syntax import Node
from ikebana.processor.planning.plan import Concat, Linear, Operator, Reduce, Upsert
from ikebana.processor.planning.unique_keys import NOTHING, Keys, Made, joined

# Values of these are equal in SQL that are not the same.
_LOOSE = ("FLOAT", "DOUBLE", "?")


class Keyed(NamedTuple):
    """A collection: what is known of its columns, and their types; the key is among them."""

    keys: Keys
    types: Mapping[str, str]


def keys_of(operator: Operator, known: Callable[[str], Keyed], types: Mapping[str, str]) -> Keys:
    """What is known of the columns of what an operator makes, which have these `types`.

    `known` has the collections that it reads.
    """
    match operator:
        case Upsert() | Reduce(function=None):
            return NOTHING.with_unique([KEY], [KEY, VALUE, *types])
        case Linear():
            return _vouched(after(known(operator.source), operator.steps), operator, types)
        case Concat(sources=(source,)):
            return known(source).keys
        case Concat():
            return _vouched(NOTHING, operator, types)
        case DeltaJoin():
            return _of_join(operator, known)
        case _:
            return NOTHING


def _vouched(keys: Keys, operator: Linear | Concat, types: Mapping[str, str]) -> Keys:
    """What is known, and what has made an operator knows besides."""
    for key in operator.unique:
        keys = keys.with_unique(key, [KEY, VALUE, *types])
    return keys


def after(source: Keyed, steps: Sequence[AnyStep]) -> Keys:
    """What is known behind linear steps."""
    keys, columns = source.keys, [KEY, VALUE, *source.types]
    for step in steps:
        match step:
            case Sql() if step.flat_map is None:
                keys = keys if step.diff is None else keys.several()
                made = {name: Made(frozenset((name,)), one_to_one=True) for name in columns}
                if step.select is not None:
                    made = {KEY: made[KEY]}
                    made |= {name: made_of(text, names=columns) for name, text in step.select}
                if step.key is not None:
                    made[KEY] = made_of(step.key, names=columns)
                if step.select is not None or step.key is not None:
                    keys, columns = keys.selected(made), list(made)
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
    from ikebana.processor.linear.syntax import tree

    try:
        return made_of_tree(tree(text), parts, names=names)
    except ExpressionError:
        return Made(frozenset(("?",)))


def made_of_tree(node: Node, parts: int = 1, *, names: Collection[str]) -> Made:
    """The same of an expression that has been read."""
    from ikebana.processor.linear.trees import columns

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
    from ikebana.processor.linear.trees import equated

    found = []
    for node in conditions:
        sides = [made_of_tree(side, 2, names=types) for side in equated(node) or ()]
        if sides and all(side.is_same for side in sides):
            pair = tuple(name for side in sides for name in side.of)
            one, other = (types.get(name, "?") for name in pair)
            if one == other and not any(word in one for word in _LOOSE):
                found.append((pair[0], pair[1]))
    return found


def _of_join(join: DeltaJoin, known: Callable[[str], Keyed]) -> Keys:
    from ikebana.processor.linear.syntax import tree
    from ikebana.processor.linear.trees import conjuncts

    sides = [(each.alias, known(each.relation)) for each in join.inputs]
    types = {f"{alias}.{name}": of for alias, side in sides for name, of in side.types.items()}
    try:
        conditions = [each for text in join.where for each in conjuncts(tree(text))]
    except ExpressionError:
        return NOTHING
    whole = joined(
        (side.keys.prefixed(alias) for alias, side in sides), equalities(conditions, types)
    )
    key = f"{join.inputs[0].alias}.{KEY}"
    made = {KEY: Made(frozenset((key,)), one_to_one=True)}
    if join.key is not None:
        made[KEY] = made_of(join.key, 2, names=types)
    made |= {name: made_of(text, 2, names=types) for name, text in join.select}
    return whole.selected(made)

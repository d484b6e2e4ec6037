"""Steps over rows as the state of an upsert has them, in place of rows as they are read.

Steps that are pushed before an upsert make the rows that it keeps (`planner.Reading.pushed`).  If
another plan begins with other steps, most of what it selects is there all the same: a column that
has another name, fewer columns, another order, something made of columns that are kept as they
are.  So its first step is rewritten over the columns that are kept.
"""

from collections.abc import Collection, Mapping, Sequence

from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import changed
from ikebana.processor.planning.unique_keys import made_of


def over_stored(
    pushed: Sequence[Named], branches: Sequence[tuple[Named, ...]], names: Collection[str]
) -> list[tuple[Named, ...]] | None:
    """The steps of branches that are left over rows to which `pushed` has been applied.

    `names` are those of the columns of the rows before.

    None, if these rows lack something, or if a row is missing on which a pushed step has failed
    that is none of the branch's.
    """
    for _, step in pushed[:-1]:
        if isinstance(step, Sql) and step.select is not None:
            names = [name for name, _ in step.select]
    found = [_left(pushed, steps, names) for steps in branches]
    if len(branches) > 1 and any(steps[: len(pushed)] != tuple(pushed) for steps in branches):
        # A step that may fail is one of a single operator, whose errors are recorded once.
        found = found if all(_never_fails(step, names) for _, step in pushed) else [None]
    left = [steps for steps in found if steps is not None]
    return left if len(left) == len(found) else None


def _left(
    pushed: Sequence[Named], steps: tuple[Named, ...], names: Collection[str]
) -> tuple[Named, ...] | None:
    same = len(pushed)
    if steps[:same] == tuple(pushed):
        return steps[same:]
    *begin, (before, old) = pushed
    if steps[: same - 1] != tuple(begin) or len(steps) < same:
        return None
    name, new = steps[same - 1]
    if not isinstance(old, Sql) or not isinstance(new, Sql):
        return None
    if name != before and not _never_fails(old, names):
        # Its errors name the operator.
        return None
    made = _over(old, new, names)
    return None if made is None else ((name, made), *steps[same:])


def _never_fails(step: object, names: Collection[str]) -> bool:
    """Whether a step makes a row of each one, of columns as they are."""
    return (
        isinstance(step, Sql)
        and Sql(select=step.select) == step
        and all(made_of(text, names=names).is_same for _, text in step.select or ())
    )


def _over(old: Sql, new: Sql, names: Collection[str]) -> Sql | None:
    """The step that turns the rows of one step into the rows of another; None if there is none."""
    if old.select is None or new.select is None or Sql(where=new.where, select=new.select) != new:
        return None
    made = {name: made_of(text, names=names) for name, text in old.select}
    plain = {column: name for name, of in made.items() if of.is_same for column in of.of}
    computed = {text: name for name, text in old.select if not made[name].is_same}
    if not set(old.where) <= set(new.where) or not computed.keys() <= {t for _, t in new.select}:
        # What has failed on one of them is not there.
        return None
    more = tuple(text for text in new.where if text not in old.where)
    if more and computed:
        # What they drop may have failed.
        return None
    # The whole key stays, whatever columns are called.
    plain = {**{name: quoted(own) for name, own in plain.items()}, KEY: KEY}
    where = [_of_stored(text, plain, names) for text in more]
    select = [
        (name, quoted(computed[text]) if text in computed else _of_stored(text, plain, names))
        for name, text in new.select
    ]
    whole = [text for text in where if text is not None]
    columns = [(name, text) for name, text in select if text is not None]
    if len(whole) < len(where) or len(columns) < len(select):
        return None
    return Sql(where=tuple(whole), select=tuple(columns))


def _of_stored(text: str, plain: Mapping[str, str], names: Collection[str]) -> str | None:
    """An expression over columns, in SQL over what they are kept by; None if one is not kept."""
    of = made_of(text, names=names)
    if not of.of <= plain.keys():
        return None
    if of.is_same:
        return "".join(plain[column] for column in of.of)

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        first, *rest = node["column_names"]
        (column,) = made_of(quoted(first), names=names).of
        if column not in plain:
            # A parameter of a lambda.
            return None
        return {**node, "column_names": [tree(plain[column])["column_names"][0], *rest]}

    return text_of(changed(tree(text), change))

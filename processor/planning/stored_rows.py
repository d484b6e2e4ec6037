"""Rewrite steps for rows in the state of an upsert, to which other steps were applied before.

Steps that are pushed before an upsert compute the rows that it keeps (`planner.Reading.pushed`).
If a new plan begins with other steps, the state usually has all that they need: for renamed
columns, fewer columns, another order, or expressions over columns that are kept unchanged.  Then
the first step is rewritten over the columns in the state.
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
    """The remaining steps of branches over rows to which `pushed` has been applied.

    `names` has the columns of the original rows.  None, if these rows lack something, or if the
    failure of a pushed step, which does not belong to the branch, may have dropped a row.
    """
    for _, step in pushed[:-1]:
        if isinstance(step, Sql) and step.select is not None:
            names = [name for name, _ in step.select]
    results = [_left(pushed, steps, names) for steps in branches]
    if len(branches) > 1 and any(steps[: len(pushed)] != tuple(pushed) for steps in branches):
        # A step that may fail belongs to one operator, which records its errors once.
        results = results if all(_never_fails(step, names) for _, step in pushed) else [None]
    left = [steps for steps in results if steps is not None]
    return left if len(left) == len(results) else None


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
    step = _over(old, new, names)
    return None if step is None else ((name, step), *steps[same:])


def _never_fails(step: object, names: Collection[str]) -> bool:
    """Whether a step makes one row of each, from unchanged columns."""
    return (
        isinstance(step, Sql)
        and Sql(select=step.select) == step
        and all(made_of(text, names=names).is_same for _, text in step.select or ())
    )


def _over(old: Sql, new: Sql, names: Collection[str]) -> Sql | None:
    """The step from the results of `old` to those of `new`; None if there is none."""
    if old.select is None or new.select is None or Sql(where=new.where, select=new.select) != new:
        return None
    sources = {name: made_of(text, names=names) for name, text in old.select}
    plain = {column: name for name, of in sources.items() if of.is_same for column in of.of}
    computed = {text: name for name, text in old.select if not sources[name].is_same}
    if not set(old.where) <= set(new.where) or not computed.keys() <= {t for _, t in new.select}:
        # Rows on which one of them failed are missing.
        return None
    more = tuple(text for text in new.where if text not in old.where)
    if more and computed:
        # A row that they drop may have failed on a computed column.
        return None
    # The whole key stays, whatever the names of columns are.
    plain = {**{name: quoted(column) for name, column in plain.items()}, KEY: KEY}
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
    """An expression over columns as SQL over the stored ones; None if a column is not stored."""
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

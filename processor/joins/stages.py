"""What the arrangements and steps of joins wait for, as operators with frontiers.

A *stage* is a step of a path at work: it gets its rows from the stage before it, by a hop
unless they stay in their shards, and waits for what it looks up.  An arrangement that a
relation does not keep as its own state gets that relation's updates in the same way as
the first stage of a path.  Results come out of the last stages, so an output of a join
lags by the longest of its paths (`progress.depths`), and no arrangement is compacted past
what is on its way to a stage (`progress.since`).

An extension is a stage for each candidate that counts, and for each one that proposes or
validates; which candidate a row asks at which of these is known only when it is counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ikebana.processor.joins.arrangements import Shared
from ikebana.processor.joins.paths import Planned
from ikebana.processor.joins.steps import Arrangement, Extend, Path
from ikebana.processor.planning.progress import Edges


def stage_name(join: str, path: str, number: int) -> str:
    """The name of a stage among operators."""
    return f"{join}/{path}/{number}"


def edges(
    joins: Sequence[Planned],
    arrangements: Sequence[Shared],
    feeds: Mapping[str, Edges],
    roots: Mapping[str, str],
) -> dict[str, Edges]:
    """What each arrangement and stage waits for.

    `feeds` says how a relation's updates come to the shards of other keys, and `roots`
    which operator keeps its state.
    """
    names: dict[Arrangement, str] = {}
    found: dict[str, Edges] = {}
    for each in arrangements:
        arrangement = each.arrangement
        if each.is_own:
            names[arrangement] = roots[arrangement.relation]
        else:
            # What it is of and by which key is its name, in the state as well.
            names[arrangement] = str(arrangement)
            found[names[arrangement]] = feeds[arrangement.relation]
        # It serves for the same in no order, too.
        names.setdefault(replace(arrangement, then=()), names[arrangement])
    for join in joins:
        for path in join.paths:
            stages = _stages(path, names)
            for number, (hop, looks_up) in enumerate(stages):
                before = stage_name(join.join.name, path.alias, number - 1)
                way = Edges(hops=(before,)) if hop else Edges(after=(before,))
                name = stage_name(join.join.name, path.alias, number)
                found[name] = replace(way if number else feeds[path.relation], looks_up=looks_up)
    return found


def last_stages(join: Planned) -> tuple[str, ...]:
    """The stages that a join's results come out of, path by path."""
    return tuple(
        stage_name(join.join.name, path.alias, sum(_lengths(path)) - 1) for path in join.paths
    )


def _lengths(path: Path) -> Iterator[int]:
    """How many stages each step is."""
    for step in path.steps:
        yield 2 * len(step.candidates) if isinstance(step, Extend) else 1


def _stages(
    path: Path, names: Mapping[Arrangement, str]
) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Whether rows come to each stage by a hop, and what it looks up."""
    for step, length in zip(path.steps, _lengths(path), strict=True):
        if isinstance(step, Extend):
            asked = dict.fromkeys(names[each.arrangement] for each in step.candidates)
            yield from [(True, tuple(asked))] * length
        else:
            yield step.hop, (names[step.arrangement],)

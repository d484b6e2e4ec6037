"""What of a pipeline may change between two runs on one checkpoint.

Joins may come and go, with what is behind them and the outputs that show it.  A new one asks
the arrangements that are there: it begins where the others are, with what was there before
(`batch.hydrating`).  What a removed one kept is released.  Everything else stays, for its
state was made by it, and its outputs are its history; but it may be written otherwise
(`planning.identity`).
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from ikebana.arrangements.errors import CheckpointError, PlanError
from ikebana.processor.checkpoint.checkpoint import (
    FORMS,
    Birth,
    check_shards,
    described,
    differences,
)
from ikebana.processor.checkpoint.parts import parts_of
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.planning import identity, planner, ways
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Concat, Linear, Operator, Plan, Reduce
from ikebana.processor.planning.state_forms import differing

_MAY_GO = (DeltaJoin, AsOfJoin, Linear, Concat, Reduce)


def resumed(birth: Birth, plan: Plan) -> Plan:
    """The plan to go on with: what is the same as it was stays as the checkpoint knows it."""
    old = _recorded(birth)
    return plan if old is None else identity.resumed(old, plan)


def names_of(birth: Birth, plan: Plan) -> frozenset[str]:
    """What a plan that is resumed is called in the log of its checkpoint, by any version."""
    found = {plan.fingerprint(), plan.former_fingerprint()}
    old = _recorded(birth)
    if old is not None:
        # As it was, with what the record does not hold.
        times = {source.name: source.event_time for source in old.inputs}
        inputs = tuple(
            replace(source, event_time=times.get(source.name, source.event_time))
            for source in plan.inputs
        )
        before = identity.replace_parts(plan, inputs, plan.operators)
        if before is not None and before.fingerprint() == plan.fingerprint():
            found.add(before.former_fingerprint())
    return frozenset(found)


def hints_kept(birth: Birth, plan: Plan) -> list[str]:
    """Where a plan's hints are not followed, since state was laid out by those of before."""
    old = _recorded(birth)
    return [] if old is None else identity.hints_kept(old, plan)


def _recorded(birth: Birth) -> Plan | None:
    """The plan that a checkpoint is of, if this version can make it."""
    return _planned(msgspec.json.encode(_known(birth)))


@functools.lru_cache(maxsize=2)
def _planned(known: bytes) -> Plan | None:
    # A start asks several times, and making a plan judges all its SQL.
    try:
        return msgspec.json.decode(known, type=Plan)
    except (msgspec.ValidationError, PlanError):
        return None


def _known(birth: Birth) -> dict[str, Any]:
    # Checkpoints of before know the policy, which may change as well.
    return {name: part for name, part in birth.plan.items() if name != "on_error"}


def evolved(birth: Birth, plan: Plan, shards: int) -> Birth:
    """The birth record for a plan: as it is, or with the changes that may be.

    Raises:
        CheckpointError: with everything that may not change.
    """
    check_shards(birth, shards)
    plan = resumed(birth, plan)
    _check_forms(birth, plan)
    found = list(differences("", _bound(_known(birth)), _bound(described(plan))))
    if not found:
        return birth
    old = _recorded(birth)
    if old is None:
        raise _refused(found)
    if problems := [*_problems(old, plan), *_gone_before(birth, old, plan)]:
        raise _refused(problems)
    parts = parts_of(plan)
    released = {*birth.released, *parts_of(old)} - parts
    return msgspec.structs.replace(birth, plan=described(plan), released=tuple(sorted(released)))


def _check_forms(birth: Birth, plan: Plan) -> None:
    """Refuse parts whose state a version before has kept otherwise."""
    parts = {
        f"{kind}.{part['name']}" for kind in ("operators", "outputs") for part in birth.plan[kind]
    }
    wrong = [
        problem
        for path, problem in differing(birth.plan.get(FORMS, {}), plan).items()
        if path in parts
    ]
    if wrong:
        raise CheckpointError(
            "the checkpoint was made by a version of ikebana before: " + "; ".join(wrong),
            hint="Start anew: with a new checkpoint, under a new name of the pipeline, with new "
            "output topics and a new errors.topic if one is named.",
        )


def changes(birth: Birth, plan: Plan) -> list[str]:
    """What is new and what is gone, by name, of a plan that may be run."""
    names = [{o["name"] for o in each["operators"]} for each in (birth.plan, described(plan))]
    new, gone = sorted(names[1] - names[0]), sorted(names[0] - names[1])
    return [*(f"{name} is new" for name in new), *(f"{name} is gone" for name in gone)]


def _refused(problems: Iterable[str]) -> CheckpointError:
    return CheckpointError(
        "the checkpoint was made by another plan: " + "; ".join(problems),
        hint="Go on with the old plan, or start anew: with a new checkpoint, under a new name "
        "of the pipeline, with new output topics and a new errors.topic if one is named. What "
        "may change is how SQL is spelt, lateness, idle, size, unique, columns that nothing "
        "reads, errors.policy and all settings; and joins may come and go, with what is behind "
        "them.",
    )


def _problems(old: Plan, new: Plan) -> Iterator[str]:
    before, after = _bound(described(old)), _bound(described(new))
    parts = ("operators", "outputs")
    yield from differences("", _without(before, parts), _without(after, parts))
    for kind in parts:
        of_old, of_new = _by_name(before[kind]), _by_name(after[kind])
        for name in of_old.keys() & of_new.keys():
            yield from differences(f"{kind}.{name}", of_old[name], of_new[name])
    known = {operator.name: operator for operator in old.operators}
    wanted = {operator.name: operator for operator in new.operators}
    for name, operator in known.items():
        if name not in wanted and not isinstance(operator, _MAY_GO):
            yield f"operators.{name} is gone, and its input's rows with it"
    new_roots = {
        name
        for name, operator in wanted.items()
        if name not in known and isinstance(operator, DeltaJoin | AsOfJoin | Reduce)
    }
    for name, operator in wanted.items():
        if name not in known:
            yield from _added(new, operator, new_roots)
    shown = {output.name for output in old.outputs}
    for output in new.outputs:
        if output.name not in shown and not _is_new(new, output.source, new_roots):
            yield (
                f"outputs.{output.name} is new, but what it shows is not: it would lack what "
                "came before"
            )
    yield from _missing(old, new)
    yield from _unfed(new, new_roots)
    if planner.physical(old).readings != planner.physical(new).readings:
        yield (
            "rows would be kept otherwise than they are, since other steps are pushed into "
            "decoding (compare `ikebana explain` of both)"
        )


def _gone_before(birth: Birth, old: Plan, new: Plan) -> Iterator[str]:
    """New names that something had before: its state may be there, its updates are."""
    gone = {name.rpartition(" ")[2] for name in birth.released}
    of_old = {output.topic: output.name for output in old.outputs}
    known = {*(operator.name for operator in old.operators), *of_old.values()}
    names = (*(operator.name for operator in new.operators), *(o.name for o in new.outputs))
    for name in dict.fromkeys(names):
        if name in gone - known:
            yield f"{name} is the name of one that is gone: give it another"
    for output in new.outputs:
        before = of_old.get(output.topic, output.name)
        if before != output.name:
            yield f'outputs.{output.name} is new, but topic "{output.topic}" has {before}'


def _unfed(new: Plan, new_roots: set[str]) -> Iterator[str]:
    """New joins that would lack what is of the future, and waits for others alone."""
    physical, stages = planner.physical(new), joined(new)
    timed = {source.name for source in new.inputs if source.event_time is not None}
    for root, branches in physical.branches.items():
        for branch in branches:
            if not branch.moves_time and root not in timed:
                continue
            for name in (*branch.inlets, *branch.hops):
                stage = stages.stages.get(name)
                if stage is not None and stage.join in new_roots:
                    yield (
                        f"operators.{stage.join} is new, and changes of {root!r} that are not "
                        f"due yet wait elsewhere: no join has them by the key of {name}"
                    )


def _added(plan: Plan, operator: Operator, new_roots: set[str]) -> Iterator[str]:
    match operator:
        case DeltaJoin() | AsOfJoin():
            if operator.name not in joined(plan).origins:
                yield (
                    f"operators.{operator.name} is new, and nothing has all that its input "
                    f"{operator.inputs[0].relation!r} was: it has no arrangement"
                )
        case Linear() | Concat() | Reduce():
            source = operator.source if isinstance(operator, Reduce) else operator.name
            if not _is_new(plan, source, new_roots):
                yield f"operators.{operator.name} is new, but not behind a new join alone"
        case _:
            yield f"operators.{operator.name} is new, and no join"


def _is_new(plan: Plan, collection: str, new_roots: set[str]) -> bool:
    return all(way.root in new_roots for way in ways.paths(plan, collection))


def _missing(old: Plan, new: Plan) -> Iterator[str]:
    """The arrangements that a new join needs, and that are not there."""
    kept = joined(old).kept
    for name, each in joined(new).kept.items():
        if name not in kept and not each.is_own:
            joins = ", ".join(each.joins)
            yield f"{joins} needs the arrangement {each.arrangement}, which is not there"


def _bound(plain: dict[str, Any]) -> dict[str, Any]:
    """What of a plan as plain data stays as it is: how far batches go may change."""
    inputs = [
        {**source, "event_time": _without(source["event_time"], ("lateness_ms", "idle_ms"))}
        if source.get("event_time")
        else source
        for source in plain["inputs"]
    ]
    return _without({**plain, "inputs": inputs}, (FORMS,))


def _without(plain: dict[str, Any], parts: tuple[str, ...]) -> dict[str, Any]:
    return {name: part for name, part in plain.items() if name not in parts}


def _by_name(parts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in parts}

"""Random pipelines that lose their checkpoint, with a batch half done, and are made anew.

The oracle is a pipeline that has read everything from the beginning, and never lost anything.
Readers of the outputs see what there was before until the time at which the new state begins; from
then on all of them see that.
"""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import diff
from ikebana.processor.base.transition import Phase
from ikebana.testing import Run, Topics
from support.edited_plans import (
    Domain,
    Features,
    Parts,
    Sender,
    features,
    parts_of,
    plan_of,
    records,
)
from support.sums import summed

DOMAINS: st.SearchStrategy[Domain] = st.sampled_from(["offset", "ingest"])
Collection = Counter[tuple[bytes | None, bytes]]


@st.composite
def recoverable(draw: st.DrawFn) -> Features:
    """Features without joins as of a time, whose results depend on how records came."""
    found = draw(features())
    names = ("one", "two", "three", "four")
    found |= {f"{name} topic": name for name in names}
    found |= {f"{name} upserts": False for name in names}
    return {**found, "priced": False, "until": None}


@given(st.data(), DOMAINS, recoverable(), st.randoms(use_true_random=False))
def test_outputs_are_those_of_a_pipeline_that_has_lost_nothing(
    data: st.DataObject, domain: Domain, found: Features, choice: Random
) -> None:
    """Lost at any moment, also while it is made anew; with records that come meanwhile."""
    plan, sender = plan_of(parts_of(found, domain), domain), Sender(Topics())
    run = Run(plan, sender.topics, choice.choice([1, 2, 3]), choice.choice([1, 2, 1_000]))
    for _ in range(data.draw(st.integers(1, 3), label="losses")):
        sender.send(data.draw(records))
        go(run, choice, data.draw(st.sampled_from([0, 1, 3, None]), label="batches"))
        compact(run, choice)
        sender.send(data.draw(records))
        die(run, choice)
        stands = dict(run.frontiers)
        before = {o.name: collection(run, o.name, stands.get(o.name, 0)) for o in plan.published}
        run.recover()
        begin = run.last.upper
        oracle = fresh(run)
        batches = 0
        while run.batch(limit=choice.choice([1, 2, None])) and (
            run.last.transition.phase is Phase.REBUILD
        ):
            batches += 1
            assert batches < 500, "it is never done"
            assert run.frontiers == {**dict.fromkeys(run.frontiers, 0), **stands}
            if choice.random() < 0.2:
                run.crash(committed=some(run, choice), limit=2)
            if choice.random() < 0.2:
                # These come when the state has been made anew.
                sender.send(data.draw(records))
        for output in plan.published:
            assert run.frontiers[output.name] > begin
            assert collection(run, output.name, begin) == before[output.name], output.name
            whole = collection(oracle, output.name)
            assert collection(run, output.name, begin + 1) == whole, output.name
            assert collection(run, output.name) == whole, output.name
    sender.send(data.draw(records))
    go(run, choice, None)
    oracle = fresh(run)
    for output in plan.published:
        assert collection(run, output.name) == collection(oracle, output.name), output.name


def test_an_output_that_had_everything_gets_nothing() -> None:
    """And the frontier goes on."""
    run = Run(plan_of(shop(), "ingest"), shards=2)
    for key in range(9):
        run.send("orders", b"%d" % key, {"product": "tea", "customer": key % 3, "quantity": key})
    run.read()
    count, frontier = len(run.written.updates["all"]), run.frontiers["all"]
    run.recover()
    run.read(limit=4)

    assert len(run.written.updates["all"]) == count
    assert run.frontiers["all"] > frontier


def test_what_an_unfinished_batch_has_written_is_taken_back_at_its_own_time() -> None:
    """One shard had committed it; nobody was told that its time was complete."""
    run = Run(plan_of(shop(), "ingest"), shards=2)
    for key in range(9):
        run.send("orders", b"%d" % key, {"product": "tea", "customer": key % 3, "quantity": key})
    run.crash(committed=[0])
    had = write_unfinished(run)
    assert had
    run.recover()
    assert run.last.transition.rebuilding is not None
    assert run.last.transition.rebuilding.unclosed["all"] == had
    run.read()

    last = run.frontiers["all"] - 1
    assert collection(run, "all", last) == Counter()
    assert len(collection(run, "all")) == 9


def test_the_pipeline_may_be_another_one_than_the_lost_one() -> None:
    """An output that shows other rows gets the difference, a new one in `upsert` all there is."""
    parts = shop()
    parts["inputs"]["orders"]["format"] = "json"
    run = Run(plan_of(parts, "offset"), shards=2)
    for key in range(9):
        run.send("orders", b"%d" % key, {"product": "tea", "customer": key % 3, "quantity": key})
    run.read()
    parts["operators"]["large"] = {"linear": "order", "where": "quantity > 3"}
    parts["outputs"] = {
        "all": {"from": "large", "topic": "all"},
        "latest": {"from": "order", "topic": "latest", "format": "upsert"},
    }
    run.recover(plan_of(parts, "offset"))
    run.read(limit=4)

    assert [update.diff for update in run.updates("all")] == 9 * [1] + 4 * [-1]
    assert sorted(key for key, _ in run.collection("all")) == [*range(4, 9)]
    assert sorted(message.key or b"" for message in run.messages("latest")) == [
        b"%d" % key for key in range(9)
    ]


def shop() -> Parts:
    columns = {"product": "VARCHAR", "customer": "BIGINT", "quantity": "BIGINT"}
    return {
        "inputs": {"orders": {"topic": "orders", "columns": columns, "format": {"key": "bytes"}}},
        "operators": {"order": {"upsert": "orders"}},
        "outputs": {"all": {"from": "order", "topic": "all"}},
    }


def go(run: Run, choice: Random, most: int | None) -> None:
    """Run batches, so many or all."""
    count = 0
    while (most is None or count < most) and run.batch(limit=choice.choice([1, 2, 4, None])):
        count += 1


def some(run: Run, choice: Random) -> list[int]:
    return [shard for shard in range(len(run.stores)) if choice.random() < 0.5]


def die(run: Run, choice: Random) -> None:
    """Leave a batch that some shards have committed, or none."""
    if choice.random() < 0.7 and run.crash(committed=some(run, choice), limit=3):
        write_unfinished(run)


def write_unfinished(run: Run) -> int:
    """Write what shards have committed of a batch that is not closed."""
    assert run._unfinished is not None
    count = 0
    for emitted in run._unfinished.committed.values():
        for output in run.plan.published:
            for update in emitted.updates[output.name]:
                headers = diff.headers(update.time, update.diff)
                run.topics.send(output.topic, update.key, update.value, headers=headers)
                run.written.updates[output.name].append(update)
                count += 1
    return count


def compact(run: Run, choice: Random) -> None:
    """Take snapshots of some outputs, of which nothing else is left then."""
    topics = run.topics
    for output in run.plan.outputs:
        if output.topic in topics.snapshots:
            # The next one would be made of the topic alone, which has lost its beginning.
            continue
        if topics.closed[output.topic] and choice.random() < 0.2:
            topics.compact(output.topic)
            for partition, end in topics.snapshots[output.topic].last.ends.items():
                topics.messages[output.topic][partition][:end] = [None] * end


def fresh(run: Run) -> Run:
    """A run of the plan over all that is in its inputs now."""
    topics = Topics()
    for topic in run.plan.topics:
        for partition, held in run.topics.messages[topic].items():
            topics.messages[topic][partition] = list(held)
    found = Run(run.plan, topics)
    found.read()
    return found


def collection(run: Run, output: str, before: int | None = None) -> Collection:
    """What an output's updates before a time come to."""
    updates = run.written.updates[output]
    return summed(((u.key, u.value), u.diff) for u in updates if before is None or u.time < before)

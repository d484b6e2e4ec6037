"""Random pipelines, edited one after the other while records come: outputs are those of each.

The oracle is a pipeline of the plan of now that has read everything from the beginning.  Where
records have their times, it says what an output is at every time that is closed, from the edit
on by which the output became what it is; where batches make times, what it is in the end.  Late
records have there the times at which they counted when they were read, whatever is read again.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from random import Random
from typing import Any, Literal, get_args

from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint import parts as kept
from ikebana.processor.checkpoint.recorded_plan import edit_of
from ikebana.processor.engine import replaying
from ikebana.processor.planning.plan import ERRORS
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.source_offset import SourceOffset, is_settled
from ikebana.testing import Run, Topics
from support.edited_plans import (
    TOPICS,
    Domain,
    Features,
    Parts,
    Sender,
    features,
    parts_of,
    plan_of,
    records,
    turned,
)
from support.strategies import few
from support.sums import summed

Collection = Counter[tuple[bytes | None, bytes]]
DOMAINS: st.SearchStrategy[Domain] = st.sampled_from(["offset", "ingest", "dated", "dated"])

_WRITER = re.compile(rb'(?<="reason":")(operator|output|input) [^:]*: ')
Moment = Literal["finishing", "first", "portions"]
MOMENTS: st.SearchStrategy[list[Moment]] = st.lists(st.sampled_from(get_args(Moment)), max_size=3)

# Of an as-of join no results are kept, which another output could begin with, and topics of inputs
# and outputs that are gone have what was before.
REFUSED = (
    "the results of an as-of join",
    "nothing keeps what it has had",
    "read already",
    "is not read again",
    "is gone: give",
    "in another format or under that name",
    "the state has only",
    "is new, and changes of",
    "laid out otherwise",
    "may have several values",
    "was ",
)


class Edited:
    """A run whose plan is edited, and what each of its outputs is by now."""

    def __init__(self, first: Parts, domain: Domain, choice: Random) -> None:
        self.parts, self.domain, self.choice = first, domain, choice
        self.sender = Sender(Topics())
        shards, exchange = choice.choice([1, 2, 3]), choice.choice([1, 2, 1_000])
        self.run = Run(plan_of(first, domain), self.sender.topics, shards, exchange)
        self.since: dict[str, int] = {}
        """From when on an output is what the plan of now says, by its topic."""
        self.changed: set[str] = set()
        """Topics of outputs that become others with the edit that is to begin."""
        self.edits = 0
        self.before = first
        self.read: dict[str, list[int]] = {}
        """The frontier at which each record was read first, by topics of inputs of now."""
        self.unlike: set[str] = set()
        """As-of joins that were not there when what they show changed."""
        self.alike: set[str] = set()
        """Topics of outputs that show no such join any more from the edit that is to begin."""
        self.retractions_of: set[str] = set()
        """Outputs that edits have read back out of their own topics."""

    def edit(self, parts: Parts) -> bool:
        """Go on with another plan and number of shards, whatever is on its way; whether it may."""
        before, shards = self.run.plan, self.choice.choice([None, None, 1, 2, 3])
        self.compact()
        try:
            self.run.restart(plan_of(parts, self.domain), shards=shards)
        except CheckpointError as refused:
            assert any(reason in str(refused) for reason in REFUSED), refused  # noqa: PT017
            assert self.run.plan == before
            return False
        self.before, self.parts = self.parts, parts
        metadata = self.run._next or self.run._metadata
        found = None if metadata is None or metadata.edits == self.edits else edit_of(metadata)
        self.changed.clear()
        self.alike.clear()
        if found is None:
            # The plan is that which has run.
            return True
        topics = {output.name: output.topic for output in self.run.plan.published}
        self.changed |= {topics[name] for name in (*found.affected, ERRORS)}
        if "priced" in found.fresh or any(shown.startswith("priced@") for shown in found.fresh):
            self.unlike |= {
                o.topic for o in self.run.plan.outputs if o.source.startswith("priced")
            }
        self.alike |= {
            o.topic
            for o in self.run.plan.outputs
            if o.name in found.affected and not o.source.startswith("priced")
        }
        return True

    def compact(self) -> None:
        """Take snapshots of some topics, of which nothing else is left then."""
        topics = self.sender.topics
        for output in self.run.plan.outputs:
            topic = output.topic
            if topic in topics.snapshots or not output.traits.as_updates:
                continue
            if topics.closed[topic] and self.choice.random() < 0.2:
                topics.compact(topic)
                for partition, end in topics.snapshots[topic].last.ends.items():
                    topics.messages[topic][partition][:end] = [None] * end

    def go(self, most: int | None = None) -> None:
        """Run batches, so many or all, of which some die; the process may begin anew then."""
        count = 0
        while most is None or count < most:
            count += 1
            limit = self.choice.choice([1, 2, 4, None])
            while self.choice.random() > 0.7:
                if not self.crash(limit):
                    return
                if self.choice.random() < 0.7:
                    self.start()
            if not self.run.batch(limit=limit):
                return
            self.note(self.run.last)
            if not is_settled(self.run.last) and self.choice.random() > 0.8:
                self.start()

    def crash(self, limit: int | None = None) -> bool:
        """Run a batch in a process that dies when some shards have committed it."""
        shards = len(self.run.stores)
        if self.run._next is not None:
            # It may be the first batch with another number of shards.
            shards = min(shards, self.run._next.shards)
        committed = [shard for shard in range(shards) if self.choice.random() < 0.5]
        if not self.run.crash(committed=committed, limit=limit):
            return False
        # It is in the log.  An edit may drop it from there, unless a shard has committed it.
        assert self.run._unfinished is not None
        if self.run._unfinished.committed:
            self.note(self.run._unfinished.after)
        return True

    def die(self, moment: Moment) -> None:
        """Go on to a moment of the edit that is to come; die there, once or twice in a row."""
        while not self.is_at(moment):
            if not self.run.batch():
                return
            self.note(self.run.last)
        for _ in range(self.choice.choice([1, 2])):
            if not self.crash():
                return
        self.start()

    def is_at(self, moment: Moment) -> bool:
        run = self.run
        if run._unfinished is not None:
            return False
        match moment:
            case "finishing":
                return run._next is not None and not is_settled(run.last)
            case "first":
                goes_on = run._next is None or is_settled(run.last)
                metadata = run._next or run._metadata
                return (
                    goes_on
                    and metadata is not None
                    and run.last.transition.is_behind(metadata.edits)
                )
            case "portions":
                return run.last.transition.fills

    def note(self, logged: SourceOffset) -> None:
        """With the first batch of an edit, outputs that it changes are what the plan says."""
        self.read = {topic: self.read.get(topic, []) for topic in logged.positions}
        for topic, lowers in self.read.items():
            lowers += [logged.lower] * (logged.positions[topic].get(0, 0) - len(lowers))
        self.retractions_of |= {*logged.transition.read_back}
        if logged.transition.edits > self.edits:
            self.since |= dict.fromkeys(self.changed, logged.lower)
            if self.run._running.backfills:
                # The outputs of before go on, and time does, until all has been read again.
                return
            self.edits = logged.transition.edits
            self.unlike -= self.alike
            self.changed.clear()

    def start(self) -> None:
        """Go on as a new process: with the plan, that of before, or yet another one."""
        outputs = {**self.parts["outputs"], "more": {**self.parts["outputs"]["all"]}}
        outputs["more"]["topic"] = f"more.{self.choice.randrange(1_000_000)}"
        more = {**self.parts, "outputs": outputs}
        kind = self.choice.random()
        self.edit(self.parts if kind < 0.5 else self.before if kind < 0.75 else more)

    def judge(self) -> None:
        """Compare what is closed with a run of the plan of now over all that there is."""
        fresh = Run(plan_of(self.parts, self.domain), self.as_they_counted())
        fresh.read()
        for output in self.run.plan.published:
            topic = output.topic
            if topic in self.unlike:
                continue
            name = next(o.name for o in fresh.plan.published if o.topic == topic)
            upper = min(self.run.frontiers.get(output.name, 0), fresh.frontiers.get(name, 0))
            if self.domain != "dated":
                found = collection(self.run, output.name)
                if output.source == "soon":
                    until = self.parts["operators"]["soon"]["valid_until"]
                    assert found == soon(self.run, until), topic
                elif not self.depends_on_batches(output.source):
                    assert found == collection(fresh, name), (
                        topic,
                        found,
                        collection(fresh, name),
                        self.run._running.backfills,
                    )
                if not self.may_be_negative(output.source):
                    assert not any(count < 0 for count in found.values()), topic
                continue
            for time in range(self.since.get(topic, 0), upper):
                found = collection(self.run, output.name, time)
                assert found == collection(fresh, name, time), (topic, time)
                if not self.may_be_negative(output.source):
                    assert not any(count < 0 for count in found.values()), (topic, time)

    def as_they_counted(self) -> Topics:
        """The topics of inputs, with records at the times at which they have counted."""
        topics, found = self.sender.topics, Topics()
        found.closed["given"] = topics.closed["given"]
        for topic in TOPICS:
            lowers = self.read.get(topic, []) if self.domain == "dated" else []
            for message, lower in zip_longest(topics.messages[topic][0], lowers, fillvalue=0):
                assert isinstance(message, Message)
                time = max(message.timestamp or 0, lower)
                found.messages[topic][0].append(message._replace(timestamp=time))
        return found

    def may_be_negative(self, source: str) -> bool:
        """Whether rows of a collection may count less than zero."""
        merged = self.parts["operators"].get("merged", {"concat": []})["concat"]
        negates = source.partition("@")[0] == "merged" and "less" in merged
        # What leaves by the right of now may be another than what came.
        return negates or source.startswith("priced")

    def depends_on_batches(self, source: str) -> bool:
        """Whether a collection depends on how records came together in batches."""
        name = source.partition("@")[0]
        return name == "priced" or (name == "soon" and self.domain == "ingest")


Drawn = Callable[[Features | None], st.SearchStrategy[Features]]


@given(st.data(), DOMAINS, st.randoms(use_true_random=False))
def test_outputs_are_those_of_the_plan_of_now(
    data: st.DataObject, domain: Domain, choice: Random
) -> None:
    """Edited at any time, also again while nothing has come, with deaths anywhere."""
    live(data, domain, choice, features)


@few
@given(st.data(), DOMAINS, st.randoms(use_true_random=False))
def test_what_nothing_else_has_comes_out_of_the_topics_of_outputs(
    data: st.DataObject, domain: Domain, choice: Random
) -> None:
    """They show as-of joins and rows that nothing keeps, and then something else."""
    live(data, domain, choice, turned)


def live(data: st.DataObject, domain: Domain, choice: Random, drawn: Drawn) -> None:
    """Let a pipeline of features that are drawn be edited, while records come, and judge it."""
    now = data.draw(drawn(None), label="first")
    with portions(choice.choice([1, 2, 3, 1_000])):
        edited = Edited(parts_of(now, domain), domain, choice)
        for number in range(data.draw(st.integers(1, 4), label="edits") + 1):
            if number:
                new = data.draw(drawn(now), label=f"plan {number}")
                edited.go(data.draw(st.sampled_from([0, 1, None]), label="batches"))
                if edited.edit(parts_of(new, domain)):
                    now = new
                    for moment in data.draw(MOMENTS, label="dies"):
                        edited.die(moment)
                    for _ in range(data.draw(st.integers(0, 3), label="meanwhile")):
                        # What goes on reads these while the edit goes through the state.
                        edited.sender.send(data.draw(records))
                        edited.go(data.draw(st.integers(1, 3)))
            if data.draw(st.sampled_from([True, True, False]), label="sends"):
                edited.sender.send(data.draw(records))
                if data.draw(st.booleans(), label="closes"):
                    edited.sender.close()
                edited.go()
                edited.judge()
        edited.sender.send(data.draw(records))
        edited.sender.close()
        edited.go()
        edited.judge()


@contextmanager
def portions(size: int) -> Iterator[None]:
    """Let edits and new joins go through state in small portions."""
    were = replaying.PORTION, kept._RELEASED
    replaying.PORTION, kept._RELEASED = size, 10 * size
    try:
        yield
    finally:
        replaying.PORTION, kept._RELEASED = were


def collection(run: Run, output: str, as_of: int | None = None) -> Collection:
    """What an output's updates come to.

    Errors have the names of parts in the checkpoint, which are left out.
    """
    return summed(
        ((key, _WRITER.sub(b"", value) if output == ERRORS else value), diff)
        for key, value, time, diff in run.written.updates[output]
        if as_of is None or time <= as_of
    )


def soon(run: Run, until: str) -> Collection:
    """The rows that are valid at the last closed time."""
    rows: dict[bytes, dict[str, Any]] = {}
    for message in run.topics.messages["orders"][0]:
        assert message is not None
        assert message.key is not None
        value = None if message.value is None else json.loads(message.value)
        if value is None:
            rows.pop(message.key, None)
        elif value["quantity"] != "many":
            rows[message.key] = value
    upper = run.last.upper
    factor = 2 if until.startswith("2") else 1
    return Counter(
        {
            (key, json.dumps(row, sort_keys=True, separators=(",", ":")).encode()): 1
            for key, row in rows.items()
            if row["quantity"] * factor >= upper
        }
    )

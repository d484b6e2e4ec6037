"""What a run notices beside its work: topics that are not there, messages unlike the plan."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.codecs.diff import ProgressRecord, Times
from ikebana.processor.base.notices import Notice
from ikebana.processor.cli.main import cli
from ikebana.processor.kafka import records
from ikebana.processor.kafka.inputs import wait_for_topics
from ikebana.processor.kafka.records import FirstMessages
from support.pipeline_processes import create, produce
from support.waiting import patient, wait_until

pytestmark = pytest.mark.kafka


def plan_of(*topics: str) -> Plan:
    columns = (Column("id", "BIGINT"), Column("nom", "VARCHAR"))
    inputs = tuple(Input(f"i{at}", (topic,), columns=columns) for at, topic in enumerate(topics))
    upserts = tuple(Upsert(f"u{at}", each.name) for at, each in enumerate(inputs))
    return Plan("p", inputs, upserts, (Output("o", "u0", "o"),))


class Looking:
    """The first messages of a run are looked at; `told` has all notices of each look."""

    def __init__(self, servers: str, plan: Plan) -> None:
        self.told: list[Sequence[Notice]] = []
        self.messages = FirstMessages(plan, {"bootstrap.servers": servers}, {}, self.told.append)
        self.messages.begin()


class Waiting:
    """A start that waits for topics, and what it tells; each thing said is a look at a clock."""

    def __init__(self, servers: str, *topics: str, known: Sequence[str] = ()) -> None:
        self.told: list[list[str]] = []
        self.said: list[str] = []
        self.stopped = False
        self.when_said: Callable[[], None] = lambda: None
        self._servers, self._topics, self._known = servers, topics, known

    def run(self) -> bool:
        settings = {"bootstrap.servers": self._servers}
        return wait_for_topics(
            plan_of(*self._topics),
            settings,
            lambda: self._known,
            self._tell,
            self._say,
            lambda: self.stopped,
        )

    def _tell(self, notices: Sequence[Notice]) -> None:
        self.told.append([each.words for each in notices])

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.when_said()


def test_a_start_waits_for_a_topic_and_says_which_is_named_like_it(
    servers: str, topic_name: Callable[[str], str]
) -> None:
    """It is said once, holds as a notice meanwhile, and is no more when the topic is there."""
    here, there = topic_name("customers-of-waiting"), topic_name("orders")
    mistyped = here.replace("customers", "custmers")
    create(servers, here, 1)
    waiting = Waiting(servers, here, mistyped, there)

    def make() -> None:
        for topic in (mistyped, there):
            create(servers, topic, 1)

    waiting.when_said = make

    assert waiting.run()
    (said,) = waiting.said
    assert said.startswith(
        f'waiting for topic "{mistyped}" of input i1; did you mean "{here}"? and topic "{there}" '
        "of input i2"
    )
    first, *_, last = waiting.told
    assert first[0] == f'waiting for topic "{mistyped}" of input i1; did you mean "{here}"?'
    assert last == []


def test_a_start_that_is_stopped_while_it_waits_ends(
    servers: str, topic_name: Callable[[str], str]
) -> None:
    """So that a program that has started it can go on."""
    waiting = Waiting(servers, topic_name("never"))

    def stop() -> None:
        waiting.stopped = True

    waiting.when_said = stop

    assert not waiting.run()


def test_a_topic_that_was_read_before_is_not_waited_for(
    servers: str, topic_name: Callable[[str], str]
) -> None:
    """What was in it is gone, which is for the start to refuse."""
    topic = topic_name("gone")
    waiting = Waiting(servers, topic, known=[topic])

    assert waiting.run()
    assert waiting.said == []
    assert waiting.told == [[]]


def test_messages_are_looked_at_beside_a_run(
    servers: str, topic_name: Callable[[str], str]
) -> None:
    """Those of each input, once before the end at least, in whatever partitions they are."""
    full, empty = topic_name("full"), topic_name("empty")
    for topic in (full, empty):
        create(servers, topic, 20)
    rows = [(b"%d" % at, json.dumps({"id": at, "name": "x"}).encode()) for at in range(3)]
    produce(servers, full, rows, partition=17)
    looking = Looking(servers, plan_of(full, empty))
    looking.messages.begin()
    begun = time.monotonic()
    looking.messages.end(patient(60))

    assert time.monotonic() - begun < patient(30)
    ((found,),) = looking.told
    assert found.line == (
        'i0: no message of 3 has the column "nom", so it is null: correct its name, or leave it '
        'out; they have id, name; did you mean "name"?'
    )


def test_columns_that_come_later_are_told_and_declared(
    servers: str, topic_name: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the run, however few there were before; `ikebana plan` shows the edit."""
    topic = topic_name("later")
    create(servers, topic, 1)
    old = [(b"%d" % at, json.dumps({"id": at, "nom": "x"}).encode()) for at in range(2)]
    produce(servers, topic, old)
    monkeypatch.setattr(records, "_AGAIN_S", 0.2)
    looking = Looking(servers, plan_of(topic))
    told, messages = looking.told, looking.messages
    wait_until(lambda: bool(told), 60, "a first look")
    assert told[-1] == []

    produce(servers, topic, [(b"1", json.dumps({"id": 1, "nom": "x", "gift": True}).encode())])
    wait_until(lambda: bool(told[-1]), 60, "a look at what is newest")
    messages.end()

    (found,) = told[-1]
    assert (found.kind, found.names) == ("new column", ": gift BOOLEAN")

    path = tmp_path / "p.yaml"
    path.write_text(
        f"""
pipeline: p
inputs:
  i0: {{topic: {topic}, columns: {{id: BIGINT, nom: VARCHAR}}}}
operators:
  u0: {{upsert: i0}}
  all: {{sql: SELECT * FROM u0}}
outputs:
  o: {{from: all, topic: o}}
kafka: {{bootstrap.servers: "{servers}"}}
run: {{checkpoint: {tmp_path}/checkpoint}}
"""
    )
    shown = CliRunner().invoke(cli, ["plan", str(path), "--latest-schemas"])
    assert "inputs:\n  i0:\n    columns:\n      gift: BOOLEAN\n" in shown.output
    as_json = CliRunner().invoke(cli, ["plan", str(path), "--latest-schemas", "--json"])
    assert json.loads(as_json.output)["columns"] == {"i0": {"gift": "BOOLEAN"}}


def test_inputs_with_times_of_different_kinds_are_told(
    servers: str, topic_name: Callable[[str], str]
) -> None:
    """Their progress tells the kinds; nothing that reads both would ever be closed."""
    names: dict[Times, str] = {"clock": topic_name("cities"), "offset": topic_name("places")}
    for times, topic in names.items():
        create(servers, topic, 1)
        create(servers, topic + ".progress", 1)
        record = ProgressRecord("c", "p", topic, 0, 0, 9, 0, {0: 0}, "upserts", times=times)
        produce(servers, topic + ".progress", [(record.key(), record.encode())])
    inputs = tuple(Input(times, (topic,), "diff") for times, topic in names.items())
    plan = Plan("p", inputs, (), (Output("o", "clock", "o"), Output("q", "offset", "q")))
    looking = Looking(servers, plan)
    looking.messages.end(patient(60))

    ((found,),) = looking.told
    assert found.words == (
        'times of offset and of clock cannot be read together: offset of "offset", clock of '
        '"clock"; no time of both is ever closed: join topics of pipelines with the same `time`'
    )


def test_a_run_whose_topics_cannot_be_read_is_not_ended_by_the_look(
    servers: str, topic_name: Callable[[str], str]
) -> None:
    """The run says what is wrong, if it lasts."""
    looking = Looking(servers, plan_of(topic_name("missing")))
    looking.messages.end(patient(60))

    assert looking.told == [[]]

"""docs/editing.md in memory: each edit does what the page says."""

import json

import flights
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.next_step import Desired
from ikebana.processor.engine.testing.run import MemoryWorld
from ikebana.testing import Run
from support.edited_flights import expected, files, summaries
from support.flight_examples import two_days


def test_the_page_is_what_happens() -> None:
    days = two_days()
    documents = files()
    plans = [parse(json.dumps(each), "delays.yaml", environ={}) for each in documents]
    run = Run(plans[0].plan.portable(), shards=4)
    for message in flights.departures(days):
        run.topics.send("flights.departures", message.key, message.value)
    run.read(limit=1_000)
    told = []
    for document, (plan, settings, *_) in zip(documents[1:], plans[1:], strict=True):
        observed = MemoryWorld(run, settings.shards).look()
        desired = Desired(plan.portable(), settings.shards)
        told.append(describe("./delays", observed, desired).summary())
        run.restart(plan.portable(), shards=settings.shards)
        run.read(limit=1_000)
        for output, rows in expected(document, days).items():
            assert sorted(run.collection(output), key=repr) == sorted(rows, key=repr), output
    assert told == summaries()
    assert run.errors() == []

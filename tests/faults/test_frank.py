"""The example of the post, through Kafka and Spark, in both time domains."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed, judge, truth_of
from support.pipeline_processes import Pipeline, create, produce

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

FRANK = [b'"mcsherry"', b'"zappa"', None, b'"oz"', b'"oz"', None]


def test_six_symbols_are_six_updates_by_offset_and_none_by_ingest(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """frank is mcsherry, zappa, nobody, oz, oz, nobody: +m, -m +z, -z, +o, nothing, -o.

    By offset every event has a time of its own; by ingest all have one, at which the
    last event says that there is nobody, as before.
    """
    servers, source = broker.bootstrap_servers, topic_name("frank")
    create(servers, source, 1)
    produce(servers, source, ((b"frank", value) for value in FRANK))
    found = {}
    for domain in ("offset", "ingest"):
        folder = tmp_path / domain
        folder.mkdir()
        pipeline = Pipeline(folder, servers, topic_name(domain), source, domain)
        pipeline.drained()
        assert judge(servers, pipeline.target, truth_of(servers, source)) == {}
        found[domain] = [
            (record.value(), *(int(header[1]) for header in record.headers() or ()))
            for record in committed(servers, pipeline.target)
        ]
    assert found == {
        "offset": [
            (b'"mcsherry"', 0, 1),
            (b'"mcsherry"', 1, -1),
            (b'"zappa"', 1, 1),
            (b'"zappa"', 2, -1),
            (b'"oz"', 3, 1),
            (b'"oz"', 5, -1),
        ],
        "ingest": [],
    }

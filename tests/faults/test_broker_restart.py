"""Clients that live on while their broker is killed and comes back."""

import pytest

from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.broker import running
from ikebana.processor.kafka.reader import Range, RangeReader
from support.pipeline_processes import create, produce

pytestmark = [pytest.mark.kafka, pytest.mark.long]


def test_a_client_finds_the_broker_that_was_killed_and_came_back() -> None:
    """The partitions' leaders have new epochs, and the client remembers the old ones.

    Nothing but asking for the leaders again helps: it got "leader epoch is older than
    broker epoch" for minutes, and now and then an offset of -1001 and no error.
    """
    with running() as broker:
        servers = broker.bootstrap_servers
        settings = {"bootstrap.servers": servers}
        create(servers, "in", 2)
        produce(servers, "in", [(b"a", b"1")] * 5, 0)
        admin, reader = client.admin(settings), RangeReader(settings)
        for is_killed in (True, True, False):
            assert topics.ends(admin, {"in": 2}) == {"in": {0: 5, 1: 0}}
            assert reader.watermarks("in", 0) == (0, 5)
            read = [len(found) for _, found in reader.read([Range("in", 0, 0, 5)])]
            assert sum(read) == 5
            assert topics.describe(admin, ["in", "out"]).keys() == {"in"}
            if is_killed:
                broker.kill()
                broker.start()

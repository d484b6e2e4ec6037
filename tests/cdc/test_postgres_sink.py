"""The sink for PostgreSQL passes what every sink has to pass, on a real server."""

from collections.abc import Iterator

import pytest

from cdc.fetched import Unavailable
from cdc.postgres import Postgres, running
from cdc.postgres_target import PostgresTarget
from support.sink_conformance import SinkConformance

pytestmark = [pytest.mark.cdc, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        opened = running()
        found = opened.__enter__()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield found
    opened.__exit__(None, None, None)


class TestPostgresSink(SinkConformance):
    @pytest.fixture
    def target(self, server: Postgres) -> PostgresTarget:
        return PostgresTarget(server)

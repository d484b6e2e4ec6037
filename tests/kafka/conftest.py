"""One secured broker for all tests that need one."""

from collections.abc import Iterator

import pytest

from support.secured_broker import Secured, secured_broker


@pytest.fixture(scope="session")
def secured() -> Iterator[Secured]:
    """A broker with encrypted listeners, users, certificates and rights."""
    with secured_broker() as found:
        yield found

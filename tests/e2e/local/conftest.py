"""The server of leases that tests of the local engine preempt."""

from collections.abc import Iterator

import pytest
from tests.e2e.support.lease_server import LeaseServer


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    """A server whose leases are renewed so often that they leave after a given step."""
    made = LeaseServer()
    made.valid_s = 0.1
    yield made
    made.close()

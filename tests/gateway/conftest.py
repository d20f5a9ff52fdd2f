"""A server on loopback for the tests of a module that look at the gateway from the outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # it needs the gateway's packages, as not all tests in this folder do
    from tests.gateway.support import Upstream


@pytest.fixture(scope="module")
def upstream_server() -> Iterator[Upstream]:
    from tests.gateway.support import Upstream, running  # noqa: PLC0415 - see above

    server = Upstream("a")
    with running(server):
        yield server


@pytest.fixture
def upstream(upstream_server: Upstream) -> Iterator[Upstream]:
    """The same, which answers well until a test says otherwise, and has been asked nothing yet."""
    from tests.gateway.support import eventually, well  # noqa: PLC0415 - see above

    upstream_server.requests.clear()
    yield upstream_server
    upstream_server.behaviour = well
    eventually(lambda: upstream_server.running == 0, "the end of all calls")

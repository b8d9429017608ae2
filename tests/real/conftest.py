"""What tests with real servers share: the servers, a site for those that read the web, and a last look."""

from collections.abc import AsyncGenerator, Generator

import pytest

from tests.conftest import Machine
from tests.real.processes import children, marked
from tests.real.servers import NPM_BIN, PYTHON_BIN, SERVERS, RealServer, mark_of
from tests.real.site import Site, open_site


@pytest.fixture(autouse=True)
def installed() -> None:
    """Skip where the servers are not installed."""
    if not (NPM_BIN.is_dir() and PYTHON_BIN.is_dir()):
        pytest.skip("the real servers are not installed: run tests/tools/install-servers")


@pytest.fixture(autouse=True)
def nobody_left(installed: None) -> Generator[None]:
    """Fail a test that leaves a child of ours, such as a server or a guardian, behind."""
    before = children()
    yield
    assert not children() - before


@pytest.fixture
async def site() -> AsyncGenerator[Site]:
    async with open_site() as site:
        yield site


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, machine: Machine, site: Site) -> Generator[RealServer]:
    """Each server in turn. None of its processes outlives the test, grandchildren included."""
    server = SERVERS[request.param](machine, f"{site.url}/page")
    yield server
    assert not marked(mark_of(machine, server.server_id))

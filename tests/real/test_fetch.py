"""A server of the modern era at work on something that takes long: pages of a site on loopback."""

import math

import anyio
import pytest

from tests.conftest import Machine
from tests.real.servers import fetch
from tests.real.site import Site

pytestmark = pytest.mark.slow


@pytest.mark.requirement("NEED-20")
async def test_a_server_stops_what_nobody_waits_for_any_more(machine: Machine, site: Site) -> None:
    server = fetch(machine, f"{site.url}/page")
    cancelled_at = math.inf
    with anyio.fail_after(60):
        async with server.open_host(machine) as host:
            async with anyio.create_task_group() as callers:
                callers.start_soon(host.call, "fetch", "fetch", {"url": f"{site.url}/slow"})
                await site.slow_page_asked_for.wait()
                callers.cancel_scope.cancel()
                cancelled_at = anyio.current_time()
            assert anyio.current_time() - cancelled_at < 1

            await site.slow_page_given_up.wait()
            await server.check_answer(host)
            assert host.status()[0].connects == 1


async def test_a_tool_that_may_not_do_what_it_is_asked_says_so_in_its_result(
    machine: Machine, site: Site
) -> None:
    with anyio.fail_after(60):
        async with fetch(machine, "").open_host(machine) as host:
            result = await host.call("fetch", "fetch", {"url": f"{site.url}/forbidden"})

    assert result.is_error
    assert "robots.txt" in result.text

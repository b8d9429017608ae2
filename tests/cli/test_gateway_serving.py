"""What a gateway puts together before it serves."""

import json

import anyio
import pytest

from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.cli.gateway_options import GatewayArguments
from fairlead.cli.gateway_serving import open_surfaces
from fairlead.gateway.access.middleware import authenticator_for
from fairlead.gateway.gateway import open_gateway
from tests.conftest import Machine

PUBLIC = "https://gateway.example.org"


@pytest.mark.parametrize(
    ("settings", "origin"),
    [
        ({}, "http://127.0.0.1:8130"),
        ({"public_url": PUBLIC}, PUBLIC),
        ({"public_url": f"{PUBLIC}/"}, PUBLIC),
    ],
)
async def test_links_for_logins_lead_to_where_people_reach_the_gateway(
    machine: Machine, settings: dict[str, str], origin: str
) -> None:
    machine.write_user(json.dumps({"gateway": settings}))
    loaded = machine.load()
    assert not loaded.problems
    with anyio.fail_after(60):
        async with open_gateway(loaded, env=machine.env) as gateway:
            configuration = LiveConfiguration(loaded, machine.load, gateway.reload)
            await open_surfaces(gateway, configuration, GatewayArguments(), ("0.0.0.0", 8130))
            url = gateway.login_links.url("ada", "notes")
    assert url is not None
    assert url.startswith(f"{origin}/connect/")


def test_the_name_in_the_public_address_is_one_of_the_gateways_own(machine: Machine) -> None:
    machine.write_user(json.dumps({"gateway": {"public_url": PUBLIC}}))
    authenticator = authenticator_for(machine.load().config.gateway, "0.0.0.0", 8130, machine.env)
    for name, status in (("gateway.example.org", None), ("another.example.org", 421)):
        headers = [(b"host", name.encode()), (b"origin", f"https://{name}".encode())]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/connect/x",
            "query_string": b"",
            "headers": headers,
        }
        refused = authenticator.screen({**scope, "headers": headers})
        assert (refused and refused.status) == status

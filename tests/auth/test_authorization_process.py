import aiohttp
import pytest

from fairlead.auth.flow import log_in, renew
from fairlead.auth.tokens import LoginTarget
from fairlead.errors import IssuerUnavailable
from tests.auth.authorization_server import Clicking, authorization_process
from tests.auth.logging_in import WEB


async def test_a_server_in_a_process_of_its_own_can_be_told_what_to_do() -> None:
    with authorization_process(expires_in=7) as url:
        target = LoginTarget(server_id="notes", url=f"{url}/mcp")
        login = await log_in(target, Clicking(), WEB)
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{url}/_behaviour", json={"token_status": 503}) as told:
                assert told.status == 204
            with pytest.raises(IssuerUnavailable, match="503"):
                await renew(target, login, WEB)
            async with client.get(f"{url}/_seen") as seen:
                paths = [request["path"] for request in await seen.json()]
    assert paths.count("/token") == 2

"""Many processes with one login: one of them renews it, whoever dies meanwhile."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from fairlead.auth.tokens import Login
from fairlead.auth.vault import FILE_NAME, Vault
from tests.auth import refreshing_process
from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.auth.refreshing_process import make_login
from tests.auth.server_behaviour import Grant

PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Child:
    """A process of ours that says things line by line."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def hear(self) -> str:
        return (await self._lines.receive_until(b"\n", 1000)).decode()

    async def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(text.encode() + b"\n")

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def child(verb: str, folder: Path, *arguments: str) -> AsyncGenerator[Child]:
    command = refreshing_process.command(verb, folder, *arguments)
    async with await anyio.open_process(command, stderr=None) as process:
        try:
            yield Child(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def logged_in(server: AuthorizationServer, folder: Path) -> Login:
    """A login whose access token has expired, with a refresh token that is good once."""
    server.add_client("the client")
    grant = Grant(account="ada", client_id="the client", scope="", resource=server.mcp_url, family="ada's")
    answer = server.issue(grant)
    login = make_login(
        server.mcp_url,
        issuer=server.issuer,
        access_token=answer["access_token"],
        refresh_token=answer["refresh_token"],
        expires_at=1000,
    )
    await Vault(folder / FILE_NAME, place="file").put(login)
    return login


@pytest.mark.requirement("HARD-36", "NEED-2")
async def test_five_processes_with_one_expired_rotating_token_renew_it_once(folder: Path) -> None:
    with anyio.fail_after(PATIENCE), authorization_server(token_delay=0.2) as server:
        login = await logged_in(server, folder)
        async with contextlib.AsyncExitStack() as stack:
            children = [
                await stack.enter_async_context(child("fresh", folder, login.resource)) for _ in range(5)
            ]
            for each in children:
                assert await each.hear() == "ready"
            for each in children:
                await each.tell("go")
            tokens = {await each.hear() for each in children}
        assert server.count("/token", grant_type="refresh_token") == 1
        assert len(tokens) == 1
        assert tokens <= server.access_tokens.keys() - {login.token.access_token}
        assert server.reused == 0


@pytest.mark.requirement("HARD-36", "HARD-35")
async def test_a_process_killed_while_it_renews_holds_the_others_up_for_its_lease_only(folder: Path) -> None:
    with anyio.fail_after(PATIENCE), authorization_server() as server:
        login = await logged_in(server, folder)
        async with (
            child("get_stuck", folder, login.resource) as first,
            child("fresh", folder, login.resource) as second,
        ):
            assert [await first.hear(), await second.hear()] == ["renewing", "ready"]
            await second.tell("go")
            await first.kill()
            assert await second.hear() in server.access_tokens.keys() - {login.token.access_token}

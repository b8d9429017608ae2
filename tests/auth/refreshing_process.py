"""What the other processes do in these tests. Run as a module: a verb, the folder of the state, arguments."""

import itertools
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from fairlead.auth import flow
from fairlead.auth.broker import Broker, Renew
from fairlead.auth.http import HttpContext
from fairlead.auth.tokens import Login, LoginTarget, OAuthClient, Token
from fairlead.auth.vault import FILE_NAME, Vault
from fairlead.errors import FairleadError
from fairlead.store.async_store import AsyncStore

LEASE_SECONDS = 2.0


def command(verb: str, folder: Path, *arguments: str) -> list[str]:
    """The command line that has another process do something."""
    return [sys.executable, "-m", "tests.auth.refreshing_process", verb, str(folder), *arguments]


def say(*words: object) -> None:
    """One line for the parent, at once."""
    print(*words, flush=True)  # noqa: T201 - this is how children answer


def make_login(
    resource: str = "https://mcp.example/mcp", *, issuer: str = "https://as.example", **token: Any
) -> Login:
    """A login to a server, for tests that need some."""
    return Login(
        principal="local",
        account="",
        issuer=issuer,
        resource=resource,
        token_endpoint=f"{issuer}/token",
        client=OAuthClient(client_id="the client"),
        token=replace(Token(access_token="old access", refresh_token="old refresh"), **token),
    )


async def renew(login: Login) -> Token:
    """Renew a login as a host does."""
    return await flow.renew(LoginTarget(server_id="test", url=login.resource), login, HttpContext())


@asynccontextmanager
async def brokered(folder: Path, renew: Renew) -> AsyncGenerator[Broker]:
    """A broker as a host has one."""
    async with AsyncStore.open(folder / "state.db") as store, anyio.create_task_group() as tasks:
        broker = Broker(Vault(folder / FILE_NAME, place="file"), store, renew, tasks)
        broker.lease_seconds = LEASE_SECONDS
        yield broker


async def fresh(folder: Path, resource: str) -> None:
    """Once told, take a token that can be used, and say it."""
    async with brokered(folder, renew) as broker:
        login = await broker.current("local", "", resource)
        assert login is not None
        say("ready")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        try:
            login = await broker.fresh(login.key, server_id="test")
        except FairleadError as exc:
            say(f"{exc.code}: {exc}")
        else:
            say(login.token.access_token)


async def get_stuck(folder: Path, resource: str) -> None:
    """Begin to renew a login, and never get there."""

    async def never(login: Login) -> Token:
        say("renewing")
        await anyio.sleep_forever()
        raise AssertionError

    async with brokered(folder, never) as broker:
        login = await broker.current("local", "", resource)
        assert login is not None
        await broker.fresh(login.key, server_id="test")


async def log_out(folder: Path, resource: str) -> None:
    async with brokered(folder, renew) as broker:
        login = await broker.current("local", "", resource)
        assert login is not None
        await broker.forget(login.key)


async def put_forever(folder: Path) -> None:
    """Keep one login after the other, and say the number of each once it is kept."""
    vault = Vault(folder / FILE_NAME, place="file")
    for number in itertools.count():
        await vault.put(make_login(access_token=f"{number}", refresh_token="r" * 20_000))
        say(number)


async def put_many(folder: Path, name: str, count: str) -> None:
    """Keep several logins."""
    vault = Vault(folder / FILE_NAME, place="file")
    for number in range(int(count)):
        await vault.put(make_login(f"https://{name}.example/{number}"))


if __name__ == "__main__":
    verb, folder, *arguments = sys.argv[1:]
    anyio.run(globals()[verb], Path(folder), *arguments)

"""An issuer that does as it is told, and brokers that ask it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from msgspec.structs import replace

from fairlead.auth.broker import Broker
from fairlead.auth.tokens import Login, LoginKey, Token
from fairlead.auth.vault import FILE_NAME, Vault
from fairlead.store.async_store import AsyncStore
from fairlead.testing.fixtures import FakeClock
from tests.auth.refreshing_process import make_login

RESOURCE = "https://mcp.example/mcp"


@dataclass
class Issuer:
    """Gives out new tokens, or does not, as a test wants."""

    clock: FakeClock
    lifetime: float = 3600
    answer: dict[str, Any] = field(default_factory=dict[str, Any])
    failure: Exception | None = None
    asked: list[Login] = field(default_factory=list[Login])
    reached: anyio.Event = field(default_factory=anyio.Event)
    gate: anyio.Event | None = None

    async def renew(self, login: Login) -> Token:
        self.asked.append(login)
        self.reached.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        number = len(self.asked)
        token = Token(access_token=f"access {number}", refresh_token=f"refresh {number}")
        return replace(token, **{"expires_at": self.at(self.lifetime), **self.answer})

    def at(self, seconds: float) -> int:
        return int((self.clock() + seconds) * 1000)


def another_process(folder: Path, store: AsyncStore, issuer: Issuer, tasks: anyio.abc.TaskGroup) -> Broker:
    """A broker that shares nothing but files with the first."""
    return Broker(Vault(folder / FILE_NAME, place="file"), store, issuer.renew, tasks, clock=issuer.clock)


async def adopted(broker: Broker, issuer: Issuer, *, seconds: float = 3600, **token: Any) -> Login:
    """A login that runs out in so many seconds from now."""
    fields: dict[str, Any] = {"expires_at": issuer.at(seconds), **token}
    login = make_login(RESOURCE, **fields)
    await broker.adopt(login)
    return login


async def fresh(broker: Broker, key: LoginKey, refused: str | None = None) -> str:
    return (await broker.fresh(key, server_id="notes", refused=refused)).token.access_token

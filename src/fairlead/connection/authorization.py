"""The headers that let requests in: of a login the broker keeps, or of a provider the program brought."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import anyio
from yarl import URL

from fairlead.auth.broker import Broker
from fairlead.auth.challenge import Challenge as Demand
from fairlead.auth.challenge import login_challenge
from fairlead.auth.dpop import request_headers
from fairlead.auth.target import Target
from fairlead.auth.tokens import Login
from fairlead.config.command_lines import command_line
from fairlead.connection.endpoint import Challenge
from fairlead.errors import AuthRequired

_PLAIN_SCOPE = re.compile(r"[\w:/. -]{1,200}", re.ASCII)

MachineLogin: TypeAlias = Callable[[Demand | None, Login | None], Awaitable[Login]]
"""Logs in without a person, as the configuration says, after what the server demanded and the last login."""


class AuthProvider(Protocol):
    """A program's own way to let requests in: `Host.open(auth_providers={"id": …})`."""

    async def headers(self, server_id: str, *, refused: Mapping[str, str] | None) -> Mapping[str, str]:
        """The headers for a request. `refused` are the last ones, where the server would not accept them."""
        ...


class ProvidedHeaders:
    """A source of headers that asks a program's own provider."""

    def __init__(self, server_id: str, provider: AuthProvider, fixed: Mapping[str, str]) -> None:
        self._server_id = server_id
        self._provider = provider
        self._fixed = fixed

    async def __call__(
        self, _method: str, _url: URL, challenge: Challenge | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers."""
        refused = challenge.refused if challenge is not None else None
        return {**self._fixed, **await self._provider.headers(self._server_id, refused=refused)}


class LoginHeaders:
    """A source of headers that takes tokens from the broker, and has them renewed when a server refuses one.

    Where only a person could help it raises `AuthRequired`, with what the server said.
    """

    def __init__(
        self,
        target: Target,
        broker: Broker,
        *,
        fixed: Mapping[str, str],
        machine_login: MachineLogin | None = None,
    ) -> None:
        self._target = target
        self._broker = broker
        self._fixed = fixed
        self._machine_login = machine_login
        self._logging_in = anyio.Lock()
        self._nonce: str | None = None

    async def __call__(
        self, method: str, url: URL, challenge: Challenge | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers; without a login, those that are always sent."""
        if challenge is not None and challenge.nonce:
            self._nonce = challenge.nonce
        if challenge is None or challenge.kind == "nonce":
            login = await self._known()
        else:
            login = await self._another(challenge)
        if login is None:
            return self._fixed
        return {**self._fixed, **request_headers(login, method, url, self._nonce)}

    async def _known(self) -> Login | None:
        target = self._target
        login = await self._broker.current(target.principal, target.account, target.resource)
        if login is None:
            return None
        try:
            return await self._broker.fresh(login.key, server_id=target.server_id)
        except AuthRequired:
            if self._machine_login is None:
                raise
            return None  # a machine logs in again once the server says what it wants

    async def _another(self, challenge: Challenge) -> Login:
        """A login in the place of the one that was refused, if there was one."""
        target = self._target
        refused = _token_in(challenge.refused)
        login = await self._broker.current(target.principal, target.account, target.resource)
        if challenge.kind == "login" and login is not None:
            try:
                return await self._broker.fresh(login.key, server_id=target.server_id, refused=refused)
            except AuthRequired:
                if self._machine_login is None:
                    raise self._wanted(challenge) from None
        if self._machine_login is None:
            raise self._wanted(challenge)
        async with self._logging_in:
            login = await self._broker.current(target.principal, target.account, target.resource)
            if login is not None and login.token.access_token != refused:
                return login  # another request was refused, too, and first
            said = login_challenge([challenge.www_authenticate or ""])
            login = await self._machine_login(said, login)
            await self._broker.adopt(login)
            return login

    @staticmethod
    def _scope_in(challenge: Challenge) -> Sequence[str]:
        """What to say on the command line, unless it is odd: people copy hints."""
        demand = login_challenge([challenge.www_authenticate or ""]) if challenge.kind == "scope" else None
        plain = demand is not None and demand.scope is not None and _PLAIN_SCOPE.fullmatch(demand.scope)
        return ("--scope", plain[0]) if plain else ()

    def _wanted(self, challenge: Challenge) -> AuthRequired:
        server_id, more = self._target.server_id, challenge.kind == "scope"
        return AuthRequired(
            server_id,
            "it wants a login that may do more" if more else "it wants a login",
            hint=f"run `{command_line('login', server_id, options=self._scope_in(challenge))}`",
            challenge=challenge.www_authenticate,
            wants_more=more,
        )


def _token_in(headers: Mapping[str, str]) -> str | None:
    return headers.get("Authorization", "").partition(" ")[2] or None

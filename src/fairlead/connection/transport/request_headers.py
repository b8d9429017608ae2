"""Sources of authorization headers: a headers helper program, OAuth logins, and auth providers."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.abc
import msgspec
from multidict import CIMultiDict
from yarl import URL

from fairlead.auth.broker import Broker
from fairlead.auth.discovery import AuthChallenge as Demand
from fairlead.auth.discovery import login_challenge
from fairlead.auth.proofs import request_headers
from fairlead.auth.tokens import Login, LoginTarget
from fairlead.config.command_lines import command_line
from fairlead.config.secrets.masking import KEPT_HEADERS, SECRETS
from fairlead.config.secrets.redaction import header_secrets
from fairlead.connection.outcomes import CredentialOrigin, HeadersUnavailable
from fairlead.connection.process.stderr import OutputTail
from fairlead.connection.transport.http_endpoint import RejectedRequest, credential_names
from fairlead.descriptors import keep_descriptors_back
from fairlead.errors import (
    AuthRequired,
    ClientRegistrationRequired,
    ConnectFailed,
    IssuerUnavailable,
    LoginFailed,
)

MAX_SECONDS = 10.0
MAX_OUTPUT_BYTES = 64 * 1024

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

_decode_object = msgspec.json.Decoder(dict[str, str]).decode


class HeadersHelper:
    """A source of headers that runs a program for them, and again when a server refuses what it printed.

    The program is run as it is, never through a shell. `fixed` headers are given too, unless it prints others
    of the same name. `before` is awaited each time it is to run, and raises where it may not.
    """

    origin: Final[CredentialOrigin] = "headers_helper"

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        fixed: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
        seconds: float = MAX_SECONDS,
    ) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._fixed = dict(fixed or {})
        self._cwd = cwd
        self._before = before
        self._seconds = seconds
        self._headers: CIMultiDict[str] | None = None
        self._running = anyio.Lock()

    async def __call__(
        self, _method: str, _url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers. Raises `HeadersUnavailable`, which never tells what was printed."""
        if self._headers is None or (challenge is not None and challenge.status == 401):
            async with self._running:
                # Of many requests that were refused the same headers, only the first has new ones printed.
                if self._headers is None or (challenge is not None and challenge.refused == self._headers):
                    headers = CIMultiDict(self._fixed)
                    printed = parse_headers(await self._output())
                    SECRETS.learn(*header_secrets(printed), owner=self._argv, kept=KEPT_HEADERS)
                    headers.update(printed)
                    self._headers = headers
        return self._headers

    async def _output(self) -> bytes:
        if self._before is not None:
            await self._before()
        try:
            with keep_descriptors_back():
                process = await anyio.open_process(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    env=self._environment,
                    cwd=self._cwd,
                    start_new_session=True,
                )
        except OSError as exc:
            raise self._failure(f"cannot be run: {exc.strerror}") from exc
        complaints = OutputTail()
        output = b""
        try:
            with anyio.move_on_after(self._seconds) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_drain, process.stderr, complaints)
                    output = await _read(process.stdout)
                    if len(output) > MAX_OUTPUT_BYTES:
                        tasks.cancel_scope.cancel()
                    await process.wait()
        finally:
            await _end(process)
        if len(output) > MAX_OUTPUT_BYTES:
            raise self._failure(f"printed more than {MAX_OUTPUT_BYTES} bytes")
        if limit.cancelled_caught:
            raise self._failure(f"was not done within {self._seconds:g} s")
        if process.returncode != 0:
            last_words = "".join(f": {line}" for line in complaints.lines[-1:])
            raise self._failure(f"exited with code {process.returncode}{last_words}")
        return output

    def _failure(self, what: str) -> HeadersUnavailable:
        return HeadersUnavailable(f"the headers helper {self._argv[0]!r} {what}")


async def _read(stream: anyio.abc.ByteReceiveStream | None) -> bytes:
    """Return what is printed, as far as it can be used and a little further."""
    output = bytearray()
    if stream is not None:
        async for chunk in stream:
            output += chunk
            if len(output) > MAX_OUTPUT_BYTES:
                break
    return bytes(output)


async def _drain(stream: anyio.abc.ByteReceiveStream | None, tail: OutputTail) -> None:
    if stream is not None:
        async for chunk in stream:
            tail.add(chunk)


async def _end(process: anyio.abc.Process) -> None:
    """End the program and its descendants."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with anyio.CancelScope(shield=True):
        await process.aclose()


def parse_headers(output: bytes) -> dict[str, str]:
    """Return the headers in what a program printed: lines of `Name: value`, or a JSON object of strings.

    Raises `HeadersUnavailable` where it is neither.
    """
    text = output.decode(errors="replace").strip()
    if text.startswith("{"):
        try:
            headers = _decode_object(text)
        except ValueError as exc:
            raise HeadersUnavailable("the headers helper printed no JSON object of strings") from exc
    else:
        lines = (line.partition(":") for line in text.splitlines() if line.strip())
        headers = {name.strip(): value.strip() if colon else "\0" for name, colon, value in lines}
    if not headers:
        raise HeadersUnavailable("the headers helper printed no headers")
    for number, (name, value) in enumerate(headers.items(), start=1):
        if not _NAME.fullmatch(name) or _UNPRINTABLE.search(value):
            raise HeadersUnavailable(f"header {number} that the headers helper printed is not valid")
    return headers


_PLAIN_SCOPE = re.compile(r"[\w:/. -]{1,200}", re.ASCII)

MachineLogin: TypeAlias = Callable[[Demand | None, Login | None], Awaitable[Login]]
"""Logs in without the user (machine grants), given the server's challenge and the last login."""
HasLogin: TypeAlias = Callable[[Demand | None], Awaitable[bool]]
"""Finds out whether a server has a login, given its challenge. Raises where the user must register first."""

_DISCOVERY_SECONDS = 10.0


class AuthProvider(Protocol):
    """Authentication of a program's own, by server: `Host.open(auth_providers={"id": …})`."""

    async def headers(self, server_id: str, *, refused: Mapping[str, str] | None) -> Mapping[str, str]:
        """The headers for a request. `refused` are the last ones, where the server would not accept them."""
        ...


class ProvidedHeaders:
    """A source of headers that asks a program's own provider."""

    origin: Final[CredentialOrigin] = "auth_provider"

    def __init__(self, server_id: str, provider: AuthProvider, fixed: Mapping[str, str]) -> None:
        self._server_id = server_id
        self._provider = provider
        self._fixed = fixed

    async def __call__(
        self, _method: str, _url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers."""
        refused = challenge.refused if challenge is not None else None
        return {**self._fixed, **await self._provider.headers(self._server_id, refused=refused)}


class LoginHeaders:
    """A source of headers that takes tokens from the broker, which refreshes one that a server refuses.

    Where only the user could help it raises `AuthRequired`, with the server's challenge.

    Args:
        target: The login target of the server.
        broker: Has the logins.
        fixed: The configured headers, which are sent as well.
        machine_login: Logs in without the user, where the entry has a machine grant.
        has_login: Finds out whether the server has a login at all.
    """

    origin: Final[CredentialOrigin] = "login"

    def __init__(
        self,
        target: LoginTarget,
        broker: Broker,
        *,
        fixed: Mapping[str, str],
        machine_login: MachineLogin | None = None,
        has_login: HasLogin | None = None,
    ) -> None:
        self._target = target
        self._broker = broker
        self._fixed = fixed
        self._machine_login = machine_login
        self._has_login = has_login
        self._logging_in = anyio.Lock()
        self._nonce: str | None = None

    async def __call__(
        self, method: str, url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers; without a login, those that are always sent."""
        if challenge is not None and challenge.nonce:
            self._nonce = challenge.nonce
        if challenge is None or challenge.kind == "nonce":
            login = await self._get_fresh_login()
        else:
            login = await self._another(challenge)
        if login is None:
            return self._fixed
        return {**self._fixed, **request_headers(login, method, url, self._nonce)}

    async def _get_fresh_login(self) -> Login | None:
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

    async def _another(self, challenge: RejectedRequest) -> Login:
        """A login in the place of the one that was refused, if there was one."""
        target = self._target
        refused = _token_in(challenge.refused)
        login = await self._broker.current(target.principal, target.account, target.resource)
        if challenge.kind == "login" and login is not None:
            try:
                return await self._broker.fresh(login.key, server_id=target.server_id, refused=refused)
            except AuthRequired:
                if self._machine_login is None:
                    raise self._login_required_error(challenge, had_login=True) from None
        if self._machine_login is None:
            before = await self._broker.previous(target.principal, target.account, target.resource)
            if before is None and challenge.kind == "login":
                await self._require_login_page(challenge)
            raise self._login_required_error(challenge, had_login=before is not None)
        async with self._logging_in:
            login = await self._broker.current(target.principal, target.account, target.resource)
            if login is not None and login.token.access_token != refused:
                return login  # another request was refused, too, and first
            parsed = login_challenge([challenge.www_authenticate or ""])
            login = await self._machine_login(parsed, login)
            await self._broker.adopt(login)
            return login

    async def _require_login_page(self, challenge: RejectedRequest) -> None:
        """Raise where there is no way to log in, so that the user is not sent to a login that does not exist.

        What cannot be found out now is left to the login, which says why it fails.
        """
        if self._has_login is None:
            return
        demand = login_challenge([challenge.www_authenticate or ""])
        found = True
        with anyio.move_on_after(_DISCOVERY_SECONDS):
            try:
                found = await self._has_login(demand)
            except ClientRegistrationRequired:
                raise
            except (LoginFailed, IssuerUnavailable):
                return
        if found:
            return
        message = "it wants a key or token (401), and has no login: no OAuth metadata was found"
        hint = 'set `headers.Authorization`, such as `"headers": {"Authorization": "Bearer ${NAME}"}`'
        if keys := credential_names(self._fixed):
            named = " and ".join(f"`headers.{name}`" for name in keys)
            message = f"it refused {named} (401), and has no login: no OAuth metadata was found"
            hint = f"correct {named}; or {hint}"
        raise ConnectFailed(self._target.server_id, message, hint=hint)

    @staticmethod
    def _scope_in(challenge: RejectedRequest) -> Sequence[str]:
        """The value for a hint, unless it is unsafe: users copy hints."""
        demand = login_challenge([challenge.www_authenticate or ""]) if challenge.kind == "scope" else None
        plain = demand is not None and demand.scope is not None and _PLAIN_SCOPE.fullmatch(demand.scope)
        return ("--scope", plain[0]) if plain else ()

    def _login_required_error(self, challenge: RejectedRequest, *, had_login: bool) -> AuthRequired:
        server_id, more = self._target.server_id, challenge.kind == "scope"
        if more:
            message = "a login with more OAuth scopes is required"
        elif had_login:
            message = "your login has expired, or was revoked there: a new login is required"
        else:
            message = "login required"
        hint = f"run `{command_line('login', server_id, options=self._scope_in(challenge))}`"
        if not more and (keys := credential_names(self._fixed)):
            named = " and ".join(f"`headers.{name}`" for name in keys)
            message, hint = f"{message}, or refused {named}", f"correct {named}; or {hint}"
        return AuthRequired(
            server_id,
            message,
            hint=hint,
            challenge=challenge.www_authenticate,
            wants_more=more,
        )


def _token_in(headers: Mapping[str, str]) -> str | None:
    return headers.get("Authorization", "").partition(" ")[2] or None

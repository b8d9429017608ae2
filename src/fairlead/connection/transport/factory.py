"""The transports of a configured server. Secrets are resolved when one is opened."""

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Protocol

import aiohttp
from anyio import to_thread
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fairlead.config.consent import Consent, ConsentKey, with_bound_values, working_folder
from fairlead.config.extension_files import ExtensionFolder
from fairlead.config.launch import Launch
from fairlead.config.load import LoadedServer
from fairlead.config.models import (
    BuiltinServer,
    ExtensionServer,
    RemoteServer,
    SandboxSettings,
    Server,
    StdioServer,
)
from fairlead.config.paths import home_folder
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.redaction import proxy_secrets, secret_values
from fairlead.config.untyped import as_object
from fairlead.connection.process.child import Command, ProcessLease, child_environment
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.process.sandbox import (
    SandboxRequest,
    pack_without_program,
    paths_brought,
    wrap_in_sandbox,
)
from fairlead.connection.process.sandbox_state import describe_sandbox
from fairlead.connection.tracing import Tracer
from fairlead.connection.transport.dispatcher import Transport, WireDispatcher
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.connection.transport.http_endpoint import HeaderSource
from fairlead.connection.transport.legacy_sse import SseDispatcher
from fairlead.connection.transport.memory import MemoryDispatcher
from fairlead.connection.transport.request_headers import HeadersHelper
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.errors import ConnectFailed, ToolFailed

if TYPE_CHECKING:
    from tempfile import _TemporaryFileWrapper  # pyright: ignore[reportPrivateUsage] - it has no other name

    from fairlead.servers.framework.server import McpServer
    from fairlead.servers.shell.tools import ShellAccess


LeasedTransport = Callable[[ProcessLease | None], AbstractAsyncContextManager[WireDispatcher]]
"""Starts a server process that may run for as long as a lease says, for the length of a block."""


class ServerOwnership(Protocol):
    """Decides which of several gateway processes runs a server: its owner, that the others send calls to."""

    def open(
        self, server: LoadedServer, start: LeasedTransport
    ) -> AbstractAsyncContextManager[WireDispatcher]:
        """Connect to the one process of a server: start it where no other gateway process has it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportContext:
    """The transport context: what all transports of a host share."""

    env: Mapping[str, str]
    guardian: Guardian
    http: Callable[[], aiohttp.ClientSession]
    logs: Path | None
    cache: Path | None
    docs_allow: Callable[[], Sequence[str]]
    """The sites whose documentation may be read, as the configuration says now."""
    own_code: Callable[[], Sequence[Path]]
    """Files and folders that decide what is started without asking: built-in servers do not change them."""
    programs: Mapping[str, "McpServer"]
    """The in-process servers of the program."""
    headers_for: Callable[[LoadedServer, RemoteServer], HeaderSource]
    """Returns the source of authorization headers where the entry has none."""
    require_approved: Callable[[ConsentKey], Awaitable[None]]
    """Raises unless the user consented to exactly this. Called at each start of a project file's server."""
    tracer: Tracer | None = None
    """Records requests of servers as spans, if there is one."""
    ownership: ServerOwnership | None = None
    """Decides where processes that all clients share are started; None: here."""


def transports_of(
    server: LoadedServer, context: TransportContext, *, version: Callable[[], str | None] = lambda: None
) -> list[Transport]:
    """The transports to try for a server, best first: Streamable HTTP, then the older HTTP+SSE.

    Args:
        server: The server.
        context: What all transports share.
        version: Returns the protocol version that it speaks, as far as that is known.
    """
    match server.transport:
        case "stdio":
            return _of_process(server, context, partial(_stdio, server, context), version)
        case "extension":
            return _of_process(server, context, partial(_extension, server, context), version)
        case "http":
            return [
                lambda: _remote(server, context, HttpDispatcher),
                lambda: _remote(server, context, SseDispatcher),
            ]
        case "sse":
            return [lambda: _remote(server, context, SseDispatcher)]
        case _:
            return [lambda: _in_process(server, context)]


def _of_process(
    server: LoadedServer,
    context: TransportContext,
    start: LeasedTransport,
    version: Callable[[], str | None],
) -> list[Transport]:
    """The transports of a server process: at its owner, where all clients share it, else here."""
    ownership = context.ownership
    sharing = server.config.sharing if server.config is not None else None
    if ownership is None or sharing not in ("auto", "shared"):
        return [lambda: start(None)]

    def open_shared() -> AbstractAsyncContextManager[WireDispatcher]:
        # Clients share a server of an older protocol only where its entry says so: else each starts its own,
        # and what is started here is for its lists alone.
        is_for_lists = sharing == "auto" and version() in HANDSHAKE_PROTOCOL_VERSIONS
        return start(None) if is_for_lists else ownership.open(server, start)

    return [open_shared]


@asynccontextmanager
async def _stdio(
    server: LoadedServer, context: TransportContext, lease: ProcessLease | None
) -> AsyncGenerator[WireDispatcher]:
    resolved = await _resolve_secrets(server, context)
    assert isinstance(resolved, StdioServer)
    launch = await _require_consent(server, resolved, context)
    folder = server.working_folder(resolved)
    command = Command(
        # What was approved is what is started: found once, and not looked for again.
        argv=launch.argv if launch else (resolved.command, *resolved.args),
        env=resolved.env,
        parent=context.env,
        # A sandbox looks for links on the way itself, and mounts none.
        cwd=launch.cwd if launch and launch.starts_in_cwd and resolved.sandbox is None else folder,
        lease=lease,
    )
    wanted = None
    if resolved.sandbox is not None:
        wanted = _sandbox_request(server, resolved.sandbox, context.env)
        command = await to_thread.run_sync(wrap_in_sandbox, server.server_id, command, wanted)
    log = context.logs / f"{server.server_id}.log" if context.logs else None
    async with StdioDispatcher(
        command, guardian=context.guardian, stderr_log=log, max_line_bytes=resolved.max_message_bytes
    ) as dispatcher:
        dispatcher.sandbox_state = describe_sandbox(wanted, folder or Path.cwd())
        yield dispatcher


@asynccontextmanager
async def _extension(
    server: LoadedServer, context: TransportContext, lease: ProcessLease | None
) -> AsyncGenerator[WireDispatcher]:
    """Run the files of an extension in a process of their own: those that were read, and approved if need be.

    The process gets them as one archive with its digest, and reads nothing of the folder, which may change
    meanwhile.
    """
    resolved = await _resolve_secrets(server, context)
    assert isinstance(resolved, ExtensionServer)
    consent = await _find_consent(server, resolved, context)
    extension = consent.extension if consent else None
    if extension is None:
        extension = await to_thread.run_sync(server.extension_folder, resolved)
    assert extension is not None, "its entry names a folder"
    if extension.failure is not None:
        hint = "`extension` names a folder with Python files that register tools, and little else"
        raise ConnectFailed(server.server_id, extension.failure, hint=hint)
    with await to_thread.run_sync(_archive_file, extension, context.cache) as archive:
        command = Command(
            argv=(
                sys.executable,
                "-I",  # neither the folder nor variables say what is imported
                "-B",
                "-m",
                "fairlead.servers.extensions.supervisor",
                archive.name,
                extension.archive_digest,
                server.server_id,
            ),
            env=resolved.env,
            parent=context.env,
            cwd=server.working_folder(resolved),
            lease=lease,
        )
        if resolved.sandbox is not None:
            wanted = _sandbox_request(server, resolved.sandbox, context.env)
            # A clone that is installed in place lies outside its environment, which the program brings.
            wanted = replace(wanted, read=(*wanted.read, Path(archive.name), Path(__file__).parents[2]))
            command = await to_thread.run_sync(wrap_in_sandbox, server.server_id, command, wanted)
        log = context.logs / f"{server.server_id}.log" if context.logs else None
        async with StdioDispatcher(
            command, guardian=context.guardian, stderr_log=log, max_line_bytes=resolved.max_message_bytes
        ) as dispatcher:
            yield dispatcher


def _archive_file(extension: ExtensionFolder, cache: Path | None) -> "_TemporaryFileWrapper[bytes]":
    """The archive in a file of ours alone, which is removed when it is closed."""
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = NamedTemporaryFile(dir=cache, prefix="extension-", suffix=".json")  # noqa: SIM115 - entered above
    file.write(extension.archive)
    file.flush()
    return file


def paths_brought_by(server: LoadedServer, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Paths that a server's sandbox shows and its entry does not name; starts nothing.

    Only references that decide what is executed are resolved. Raises `ConnectFailed` if it could not start.
    """
    entry = with_bound_values(server.definition, env)
    config = server.config
    if not isinstance(config, StdioServer) or config.sandbox is None:
        return ()
    sandbox = SandboxSettings.model_validate(entry["sandbox"])
    command = Command(
        argv=(entry["command"], *entry.get("args", ())),
        env={name: str(value) for name, value in as_object(entry.get("env")).items()},
        parent=env,
        cwd=working_folder(server.definition, entry.get("cwd")),
    )
    return paths_brought(server.server_id, command, _sandbox_request(server, sandbox, env))


def _sandbox_request(
    server: LoadedServer, sandbox: SandboxSettings, env: Mapping[str, str]
) -> SandboxRequest:
    """The sandbox settings of an entry; relative paths start from the folder of its file."""
    home = home_folder(env)

    def paths(field: str, named: Sequence[str]) -> tuple[Path, ...]:
        base = server.definition.origin(("sandbox", field)).layer.base
        return tuple(base / (home / name[2:] if name[:2] == "~/" else Path(name)) for name in named)

    return SandboxRequest(
        home=home,
        read=paths("read", sandbox.read),
        write=paths("write", sandbox.write),
        network=sandbox.network,
    )


@asynccontextmanager
async def _remote(
    server: LoadedServer, context: TransportContext, dispatcher: type[HttpDispatcher] | type[SseDispatcher]
) -> AsyncGenerator[WireDispatcher]:
    resolved = await _resolve_secrets(server, context)
    assert isinstance(resolved, RemoteServer)
    launch = await _require_consent(server, resolved, context)
    async with dispatcher(
        resolved.url,
        context.http(),
        headers=_header_source(server, resolved, launch, context),
        max_message_bytes=resolved.max_message_bytes,
    ) as opened:
        yield opened


@asynccontextmanager
async def _in_process(server: LoadedServer, context: TransportContext) -> AsyncGenerator[WireDispatcher]:
    async with AsyncExitStack() as stack:
        own = context.programs.get(server.server_id)
        if own is None:
            resolved = await _resolve_secrets(server, context)
            await _require_consent(server, resolved, context)
            # Here rather than above: a host without built-in servers need not load them, and that takes long.
            await to_thread.run_sync(import_module, "fairlead.servers.builtin")
            own = stack.enter_context(_serve_builtin(server, resolved, context))
        yield await stack.enter_async_context(MemoryDispatcher(own.sdk_server()))


@contextmanager
def _serve_builtin(
    server: LoadedServer, resolved: Server, context: TransportContext
) -> Generator["McpServer"]:
    from fairlead.servers.builtin import BuiltinAccess, open_builtin_server  # loaded by now

    assert isinstance(resolved, BuiltinServer)
    roots = server.builtin_roots()
    shell = _shell_access(server, resolved, roots, context) if resolved.builtin == "shell" else None
    reach = BuiltinAccess(
        roots=roots,
        allow=context.docs_allow,
        cache=context.cache,
        protected=context.own_code,
        shell=shell,
    )
    try:
        with open_builtin_server([resolved.builtin], reach) as made:
            yield made
    except ToolFailed as exc:
        raise ConnectFailed(server.server_id, str(exc), hint=exc.hint) from exc


def _shell_access(
    server: LoadedServer, resolved: BuiltinServer, roots: Sequence[Path], context: TransportContext
) -> "ShellAccess":
    """The sandbox of the commands of the built-in `shell`. Raises `ConnectFailed` where there can be none."""
    if sys.platform != "linux":
        message = "it runs commands only in a sandbox, which needs bubblewrap, and that is for Linux only"
        raise ConnectFailed(server.server_id, message, hint="run Fairlead in a Linux container or machine")
    from fairlead.servers.shell.tools import ShellAccess

    wanted = _sandbox_request(server, resolved.sandbox or SandboxSettings(), context.env)
    real = tuple(Path(os.path.realpath(root)) for root in roots)
    wanted = replace(wanted, write=(*wanted.write, *real))
    bwrap, view = pack_without_program(server.server_id, wanted, context.env)
    locks = context.cache / "shell" if context.cache else None
    return ShellAccess(bwrap=bwrap, view=view, parent=context.env, locks=locks, protected=context.own_code)


async def _resolve_secrets(server: LoadedServer, context: TransportContext) -> Server:
    """Resolve secrets, if there are any away from the event loop: a file or a keyring may take its time."""
    if server.has_references:
        resolved = await to_thread.run_sync(server.resolve, context.env)
    else:
        resolved = server.resolve(context.env)
    SECRETS.learn(*proxy_secrets(context.env))
    values = resolved.model_dump(mode="json", exclude_unset=True)
    SECRETS.learn(*secret_values(server.entry, values, refers=server.has_references))
    return resolved


async def _require_consent(
    server: LoadedServer, resolved: Server, context: TransportContext
) -> Launch | None:
    """Raise unless the user approved this very start; returns what a project's server is to execute."""
    consent = await _find_consent(server, resolved, context)
    return consent.launch if consent else None


async def _find_consent(server: LoadedServer, resolved: Server, context: TransportContext) -> Consent | None:
    """The user's consent to this very start; None where none is needed. Raises where it was not given."""
    if not server.needs_consent:
        return None
    consent = await to_thread.run_sync(server.consent_to, resolved, context.env)
    if consent is not None:
        await context.require_approved(consent.key)
    return consent


def _header_source(
    server: LoadedServer, resolved: RemoteServer, launch: Launch | None, context: TransportContext
) -> HeaderSource:
    if resolved.headers_helper is None:
        return context.headers_for(server, resolved)
    environment = child_environment({}, context.env)
    return HeadersHelper(
        launch.argv if launch else resolved.headers_helper,
        environment=environment,
        fixed=resolved.headers,
        cwd=launch.cwd if launch and launch.starts_in_cwd else None,
        # It runs again when a server refuses its headers, and may have changed by then.
        before=(lambda: _require_consent(server, resolved, context)) if launch else None,
    )

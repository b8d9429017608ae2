"""The tool of the built-in `shell` server: `shell.run`."""

import base64
import fcntl
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import anyio
from anyio import to_thread
from mcp_types import BlobResourceContents, EmbeddedResource, TextContent, ToolAnnotations
from pydantic import Field

from fairlead.bubblewrap import SandboxView
from fairlead.errors import ToolFailed
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.servers.repo.files import PathText, describe_path_base
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.shell.command import CommandOutcome, KeptOutput, OnOutput, run_command
from fairlead.servers.shell.guard import FolderGuard, HeldPath
from fairlead.servers.shell.linked_tree import LinkedTree
from fairlead.servers.shell.rebase import PendingCommands, pending_commands

WHOLE_BYTES: Final = 46_000
"""An output up to this size is shown whole. A longer one does not fit the default budget of a result with
what is shown of it, and so becomes an artifact."""
HEAD_BYTES: Final = 10_000
TAIL_BYTES: Final = 32_000
DEFAULT_SECONDS: Final = 120.0
MAX_SECONDS: Final = 3_600.0
MAX_WORDS: Final = 1_000
MAX_COMMAND_CHARACTERS: Final = 100_000
"""The system takes no longer word."""

_LOCK_POLL_SECONDS = 0.05
_MAX_PENDING = 5
_MAX_PENDING_SHOWN = 200
_WAIT_REPORT_SECONDS = 5.0
_PASSED_ON = ("LANG", "LANGUAGE", "LOGNAME", "TZ", "USER")
_FIXED = {
    "EDITOR": "true",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
}
"""No program is to wait for a person, or to write for a terminal."""

Word = Annotated[str, Field(max_length=MAX_COMMAND_CHARACTERS)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellAccess:
    """Access of commands: a sandbox with the system's folders, the roots, and what the entry names."""

    bwrap: str
    view: SandboxView
    parent: Mapping[str, str] = field(repr=False)
    """Our own environment, of which commands get only what they need."""
    locks: Path | None
    """Where to keep locks: one command at a time runs in a folder, of all processes."""
    protected: Callable[[], Sequence[Path]] = tuple
    """Returns what is protected now, whatever its name."""


class RunInput(ToolModel):
    """Input of `shell.run`."""

    command: Word | None = None
    """A command line for the shell. Give this or `argv`."""
    argv: Annotated[list[Word], Field(min_length=1, max_length=MAX_WORDS)] | None = None
    """A program and its arguments, without a shell."""
    cwd: PathText = "."
    """The folder to run it in."""
    timeout_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = DEFAULT_SECONDS
    """When it is ended."""


class Held(ToolModel):
    """A file or folder that the command made and that was renamed."""

    path: str
    renamed_to: str | None = None
    """Nothing if it could not be renamed."""


class RunOutput(ToolModel):
    """Output of `shell.run`."""

    exit_code: int | None = None
    """Nothing if the command was ended."""
    ended_because: str | None = None
    """Why it was ended: it took too long, or wrote too much."""
    seconds: float
    output: str
    """What it wrote, to stdout and stderr; cut in the middle if it is long."""
    output_bytes: int
    """How much it wrote."""
    truncated: bool = False
    held: list[Held] = Field(default_factory=list[Held])
    """Protected paths that the command made, which were renamed."""
    pending_commands: list[str] = Field(default_factory=list[str])
    """Commands that `git rebase --continue` would run, of a rebase that the command left half done."""


def shell_tools(confinement: Confinement, access: ShellAccess) -> tuple[AnyTool, ...]:
    """The tool that runs commands in the roots of `confinement`, which stays the caller's to close."""
    environment = clean_environment(access.parent, access.view)
    program = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"

    async def run(context: ToolContext, request: RunInput) -> Reply[RunOutput]:
        argv = _words(request, program)
        cwd = await to_thread.run_sync(_folder, confinement, request.cwd)
        on_output = _progress_reporter(context)
        async with _alone(confinement, access.locks, request.timeout_seconds, on_output):
            more = access.protected()
            guards: list[FolderGuard | LinkedTree] = [FolderGuard(root, more) for root in confinement.roots]
            guards += map(LinkedTree, confinement.roots)
            trees = [root.path for root in confinement.roots]
            before = await to_thread.run_sync(_pending_commands, trees)
            async with _guard_folders(guards) as held:
                view = replace(access.view, cwd=cwd)
                for guard in guards:
                    view = guard.add_to(view)
                outcome = await run_command(
                    access.bwrap,
                    view,
                    argv,
                    environment={**environment, "PWD": str(cwd)},
                    timeout_seconds=request.timeout_seconds,
                    on_output=on_output,
                )
            pending = await to_thread.run_sync(_pending_commands, trees)
        _require_sandbox(outcome)
        return _reply(outcome, held, [*(pending - before)])

    network = "the network" if access.view.network else "no network"
    return (
        ToolDefinition(
            name="shell.run",
            title="Run a command",
            description=(
                "Run a command in a sandbox: it can change the repository, has "
                f"{network}, an empty home and an empty `/tmp`, and ends with all that it started. What "
                "version control, editors and agents would run later is read-only (`.git/hooks`, `.vscode`, "
                f"`.envrc` …). {describe_path_base(confinement)}"
            ),
            input=RunInput,
            output=RunOutput,
            handler=run,
            # Without the network it reaches nothing but the repository.
            annotations=ToolAnnotations(
                read_only_hint=False,
                destructive_hint=True,
                idempotent_hint=False,
                open_world_hint=access.view.network,
            ),
        ),
    )


def clean_environment(parent: Mapping[str, str], view: SandboxView) -> dict[str, str]:
    """Environment of every command: paths of programs, the language, and nothing else of this process.

    Args:
        parent: Our own environment.
        view: What commands see: other folders are left out of `PATH`.
    """
    passed = {name: value for name, value in parent.items() if name in _PASSED_ON or name.startswith("LC_")}
    folders = [*parent.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin", "/bin"]
    seen = [
        folder
        for folder in dict.fromkeys(folders)
        if os.path.isabs(folder) and view.sees(Path(os.path.realpath(folder)))
    ]
    shell = shutil.which("bash", path="/bin:/usr/bin") or "/bin/sh"
    return {**passed, **_FIXED, "PATH": os.pathsep.join(seen), "HOME": str(view.home), "SHELL": shell}


def _words(request: RunInput, shell: str) -> Sequence[str]:
    if (request.command is None) == (request.argv is None):
        raise ToolFailed("give either `command` or `argv`")
    words = request.argv if request.argv is not None else [shell, "-c", request.command or ""]
    if any("\0" in word for word in words):
        raise ToolFailed("a command holds a character that no command has (U+0000)")
    size = sum(len(word.encode()) for word in words)
    if size > MAX_COMMAND_CHARACTERS:
        raise ToolFailed(
            f"the command has {size:,} bytes; {MAX_COMMAND_CHARACTERS:,} is the most",
            hint="write it to a file, and run that",
        )
    if not words[0]:
        raise ToolFailed("the command has no program")
    return words


def _folder(confinement: Confinement, path: str) -> Path:
    """The folder to run a command in: below a root, and no link on the way."""
    names = confinement.names(path)
    if not names:
        return confinement.roots[0].path
    with confinement.folder_at(names) as folder:
        return folder.path


def _progress_reporter(context: ToolContext) -> OnOutput:
    async def report(seconds: float, last: str) -> None:
        await context.progress(seconds, None, last)

    return report


@asynccontextmanager
async def _alone(
    confinement: Confinement, locks: Path | None, timeout_seconds: float, report: OnOutput
) -> AsyncGenerator[None]:
    """Wait until no other command runs in these folders, in this process or another.

    One could change the folders while the other's sandbox is made of them.
    """
    opened: list[int] = []
    try:
        with anyio.move_on_after(timeout_seconds) as limit:
            for root in sorted(confinement.roots, key=lambda root: root.path):
                fd = await to_thread.run_sync(_open_lock, root.path, locks)
                opened.append(fd)
                await _lock(fd, report)
        if limit.cancelled_caught:
            raise ToolFailed("another command is still running in this folder", hint="try again later")
        yield
    finally:
        for fd in opened:
            os.close(fd)


def _open_lock(root: Path, locks: Path | None) -> int:
    if locks is None:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    # Not the folder itself: edits of a configuration file in it lock that.
    locks.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return os.open(locks / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


async def _lock(fd: int, report: OnOutput) -> None:
    started = reported = anyio.current_time()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await anyio.sleep(_LOCK_POLL_SECONDS)
        else:
            return
        if (now := anyio.current_time()) - reported >= _WAIT_REPORT_SECONDS:
            reported = now
            await report(now - started, "waiting for another command in this folder")


@asynccontextmanager
async def _guard_folders(guards: Sequence[FolderGuard | LinkedTree]) -> AsyncGenerator[list[HeldPath]]:
    """Guard the folders for the length of the block; the list has what was renamed once that has ended."""
    held: list[HeldPath] = []
    prepared: list[FolderGuard | LinkedTree] = []
    try:
        for guard in guards:
            prepared.append(guard)
            await to_thread.run_sync(guard.prepare)
        yield held
    finally:
        # Not to be cancelled: what a command made is looked at however it ended.
        with anyio.CancelScope(shield=True):
            for guard in prepared:  # of all folders first: one may lie in another
                await to_thread.run_sync(guard.give_back)
            for guard in prepared:
                held += await to_thread.run_sync(guard.settle)


def _require_sandbox(outcome: CommandOutcome) -> None:
    """Raise if there was no sandbox to run the command in."""
    if outcome.exit_code and not outcome.has_started:
        words = outcome.output.last(1_000).decode(errors="replace").strip()
        hint = "try again; if it stays so, run `fairlead doctor`"
        raise ToolFailed(f"the command could not be started in its sandbox: {words}", hint=hint)


def _pending_commands(trees: Sequence[Path]) -> PendingCommands:
    found: PendingCommands = Counter()
    for tree in trees:
        found += pending_commands(tree)
    return found


def _reply(outcome: CommandOutcome, held: Sequence[HeldPath], pending: Sequence[str]) -> Reply[RunOutput]:
    text, is_cut = cut_output(outcome.output)
    output = RunOutput(
        exit_code=outcome.exit_code,
        ended_because=outcome.ended_because,
        seconds=round(outcome.seconds, 1),
        output=text,
        output_bytes=outcome.output.total,
        truncated=is_cut,
        held=[Held(path=each.path, renamed_to=each.renamed_to) for each in held],
        pending_commands=[command[:_MAX_PENDING_SHOWN] for command in pending[:_MAX_PENDING]],
    )
    ending = f"exit status {outcome.exit_code}"
    if outcome.ended_because:
        ending = f"ended, with all that it started: {outcome.ended_because}"
    lines = [f"{ending} ({output.seconds:g} s)", *map(_words_of_held, held)]
    if pending:
        named = "; ".join(f"`{command}`" for command in output.pending_commands)
        more = f" and {len(pending) - _MAX_PENDING} more" if len(pending) > _MAX_PENDING else ""
        lines.append(
            "a rebase is left half done: `git rebase --continue`, run by the user, would run outside the "
            f"sandbox: {named}{more}. Tell the user, or end it here"
        )
    content: list[TextContent | EmbeddedResource] = [TextContent(text="\n".join(lines))]
    if text:
        content.append(TextContent(text=text))
    if is_cut:
        content.append(_whole(outcome.output))
    return Reply(output=output, content=tuple(content))


def _words_of_held(held: HeldPath) -> str:
    became = f"was renamed to `{held.renamed_to}`" if held.renamed_to else "could not be renamed: remove it"
    return f"`{held.path}` is protected (programs outside would run what it says), and {became}"


def cut_output(kept: KeptOutput) -> tuple[str, bool]:
    """Output within its limit, and whether it was cut.

    Args:
        kept: The output.
    """
    head, missing, tail = kept.pieces()
    if kept.total <= WHOLE_BYTES:
        return (head + tail).decode(errors="replace"), False
    whole = head + tail if not missing else None
    end = (whole or tail)[-TAIL_BYTES:]
    begin = head[:HEAD_BYTES]
    # Whole lines, where lines are not too long.
    begin = begin[: begin.rfind(b"\n", HEAD_BYTES // 2) + 1] or begin
    start = end.find(b"\n", 0, TAIL_BYTES // 2) + 1
    end = end[start:]
    left_out = kept.total - len(begin) - len(end)
    note = f"\n[… {left_out:,} bytes left out …]\n"
    return begin.decode(errors="replace") + note + end.decode(errors="replace"), True


def _whole(kept: KeptOutput) -> EmbeddedResource:
    """All that was kept. It is too large for a result, so that the host stores it as an artifact."""
    head, missing, tail = kept.pieces()
    note = f"\n[… {missing:,} bytes were not kept …]\n".encode() if missing else b""
    text = b"".join((head, note, tail)).decode(errors="replace").encode()
    blob = base64.b64encode(text).decode()
    return EmbeddedResource(
        resource=BlobResourceContents(uri="shell:output", mime_type="text/plain", blob=blob)
    )

"""The tools of the built-in `edit` server: write, replace, patch, move, delete and undo."""

import codecs
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from anyio import to_thread
from mcp_types import TextContent, ToolAnnotations
from pydantic import Field

from fairlead.errors import ToolFailed
from fairlead.servers.edit.changes import (
    MAX_FILE_BYTES,
    Change,
    FileChanges,
    FileContent,
    UndoPlan,
    enumerate_paths,
)
from fairlead.servers.edit.diffs import moves_in, render_diff
from fairlead.servers.edit.patch import FilePatch, apply_hunks, parse_patch
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.servers.repo.files import PathText, describe_path_base, version_of
from fairlead.servers.repo.folders import Confinement

_MAX_SHOWN = 10_000
"""More than can wait for an answer: of a change that is forgotten, it would not be known what was shown."""


Content = Annotated[str, Field(max_length=MAX_FILE_BYTES)]
Version = Annotated[str, Field(max_length=64)]


class WriteFileInput(ToolModel):
    """Input of the tool that writes a file."""

    path: PathText
    """The file, with `/` between names. Folders that are missing are made."""
    content: Content
    """The whole text of the file."""
    version: Version | None = None
    """To replace a file that exists: its version, from `repo.readFile` `withVersion` or an edit tool."""


class ReplaceInput(ToolModel):
    """Input of the tool that replaces a text in a file."""

    path: PathText
    old_text: Annotated[str, Field(min_length=1, max_length=MAX_FILE_BYTES)]
    """The text as it is in the file, with enough around it to occur once."""
    new_text: Content
    """The text to put there."""
    replace_all: bool = False
    """Replace it wherever it occurs."""
    version: Version | None = None
    """The version that was read: then a file that was changed since is left alone."""


class ApplyPatchInput(ToolModel):
    """Input of the tool that applies a patch."""

    patch: Content
    """A unified diff, as `git diff` writes it: of one file or several; also new, deleted and renamed ones."""


class MoveInput(ToolModel):
    """Input of the tool that moves a file."""

    source: PathText
    """The file."""
    target: PathText
    """Its new path, where no file is yet. Folders that are missing are made."""
    version: Version | None = None
    """The version that was read: then a file that was changed since is left alone."""


class DeleteInput(ToolModel):
    """Input of the tool that deletes a file."""

    path: PathText
    version: Version | None = None
    """The version that was read: then a file that was changed since is left alone."""


class UndoInput(ToolModel):
    """Input of the tool that undoes the last step: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Coding:
    """Encoding of a file's text, and its byte order mark."""

    encoding: str
    mark: bytes = b""


_PLAIN = _Coding(encoding="utf-8")
_MARKED = tuple(
    _Coding(encoding=encoding, mark=mark)
    for encoding, mark in (
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
    )
)

FileAction = Literal["created", "changed", "deleted", "moved"]


class ChangedFile(ToolModel):
    """What happened to one file."""

    path: str
    action: FileAction
    version: str | None = None
    """Version of the file now, for the next `edit.writeFile`."""
    moved_from: str | None = None


class EditOutput(ToolModel):
    """Output of all editing tools: the changed files."""

    files: list[ChangedFile]
    diff: str
    """The change as a unified diff; cut if it is long."""
    truncated: bool = False
    """Whether the diff is cut. The change itself is whole."""


class UndoOutput(EditOutput):
    """Output of the tool that undoes: the changed files, and those left alone."""

    changed_since: list[str] = Field(default_factory=list[str])
    """Files that were edited later, and changed since by others: they are left as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """The changes of one call, and the files that a move took elsewhere."""

    changes: tuple[Change, ...]
    moved: tuple[tuple[str, str], ...] = ()


InputT = TypeVar("InputT", bound=ToolModel)
Planner = Callable[[FileChanges, InputT], _Step]


def edit_tools(
    confinement: Confinement, *, protected: Callable[[], Sequence[Path]] = tuple
) -> tuple[AnyTool, ...]:
    """The tools that change files within `confinement`, which stays the caller's to close.

    Args:
        confinement: The folders.
        protected: Returns files and folders that are left alone, whatever their names.
    """
    changes = FileChanges(confinement, protected)
    shown = _ShownChanges()
    where = describe_path_base(confinement)

    def tool(
        name: str,
        title: str,
        description: str,
        model: type[InputT],
        plan: Planner[InputT],
    ) -> AnyTool:
        def work(request: InputT) -> Reply[EditOutput]:
            step = plan(changes, request)
            shown.require_same(_key(name, request), step.changes)
            changes.apply(step.changes)
            return _reply(step)

        def show(request: InputT) -> str:
            with shown.showing(_key(name, request)) as remember:
                step = plan(changes, request)
                remember(step.changes)
            return _describe_step(step)

        async def handler(_: ToolContext, request: InputT) -> Reply[EditOutput]:
            return await to_thread.run_sync(work, request)

        async def preview(request: InputT) -> str:
            return await to_thread.run_sync(show, request)

        return ToolDefinition(
            name=f"edit.{name}",
            title=title,
            description=f"{description} {where}",
            input=model,
            output=EditOutput,
            handler=handler,
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
            preview=preview,
        )

    def take_back(request: UndoInput) -> Reply[UndoOutput]:
        plan = changes.undo(partial(shown.require_same, _key("undo", request)))
        reply = _reply(_Step(changes=plan.changes))
        output = UndoOutput(**dict(reply.output), changed_since=list(plan.changed_since))
        notes = [TextContent(text=_describe_changed(plan))] if plan.changed_since else []
        return Reply(output=output, content=(*notes, *reply.content))

    def show_undo(request: UndoInput) -> str:
        with shown.showing(_key("undo", request)) as remember:
            plan = changes.plan_undo()
            remember(plan.changes)
        text = _describe_step(_Step(changes=plan.changes))
        return f"{_describe_changed(plan)}\n{text}" if plan.changed_since else text

    async def undo(_: ToolContext, request: UndoInput) -> Reply[UndoOutput]:
        return await to_thread.run_sync(take_back, request)

    async def preview_undo(request: UndoInput) -> str:
        return await to_thread.run_sync(show_undo, request)

    return (
        tool(
            "writeFile",
            "Write a file",
            "Create a text file, or replace all of one, given its version. `edit.replace` changes a part.",
            WriteFileInput,
            _plan_write,
        ),
        tool(
            "replace",
            "Replace text in a file",
            "Replace a text in a file by another. The old text must be there exactly, and once.",
            ReplaceInput,
            _plan_replace,
        ),
        tool(
            "applyPatch",
            "Apply a patch",
            "Apply a unified diff to one or more files: all of it, or nothing if a part does not fit.",
            ApplyPatchInput,
            _plan_patch,
        ),
        tool("move", "Move a file", "Move or rename a file.", MoveInput, _plan_move),
        tool("delete", "Delete a file", "Delete a file.", DeleteInput, _plan_delete),
        ToolDefinition(
            name="edit.undo",
            title="Undo the last edit",
            description=(
                "Take back the last change that an edit tool made. Repeat it to go further back. An edit of "
                "a file that the user or a command changed since is left alone and named."
            ),
            input=UndoInput,
            output=UndoOutput,
            handler=undo,
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
            preview=preview_undo,
        ),
    )


@dataclass(slots=True)
class _Shown:
    """A change as it was shown last, and how many calls are still to be made of those it was shown for."""

    digest: str
    calls: int = 0


class _ShownChanges:
    """The changes that a user was shown before calls, by their arguments.

    What is made is what was shown: a file that was changed between the two would give another change, and so
    may the first of two calls with the same arguments, such as two of `edit.undo`.
    """

    def __init__(self) -> None:
        self._shown: OrderedDict[str, _Shown] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def showing(self, key: str) -> Generator[Callable[[Sequence[Change]], None]]:
        """Note that a call's change is shown, and take what it is.

        What fails meanwhile must not be made, unseen, if it works by the time of the call.
        """
        with self._lock:
            shown = self._shown.setdefault(key, _Shown(""))
            shown.digest = _digest(())
            shown.calls += 1
            self._shown.move_to_end(key)
            while len(self._shown) > _MAX_SHOWN:
                self._shown.popitem(last=False)

        def remember(changes: Sequence[Change]) -> None:
            shown.digest = _digest(changes)

        yield remember

    def require_same(self, key: str, changes: Sequence[Change]) -> None:
        """Refuse a change that is not the one that was shown, if one was."""
        with self._lock:
            shown = self._shown.get(key)
            if shown is None:
                return
            shown.calls -= 1
            if not shown.calls:
                del self._shown[key]
        if shown.digest != _digest(changes):
            raise ToolFailed(
                "a file was changed since this change was shown to the user",
                hint="call it again, so that the user sees what it would change now",
            )


def _key(name: str, request: ToolModel) -> str:
    return hashlib.sha256(f"{name} {request.model_dump_json()}".encode()).hexdigest()


def _digest(changes: Sequence[Change]) -> str:
    digest = hashlib.sha256()
    for change in changes:
        for part in ("/".join(change.names).encode(), change.before, change.after):
            digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return digest.hexdigest()


def _describe_step(step: _Step) -> str:
    """A step as the user is shown it beforehand: the diff, and moves, which it does not have."""
    diff, is_cut = render_diff(step.changes)
    moved = dict.fromkeys((*step.moved, *((gone.shown, new.shown) for gone, new in moves_in(step.changes))))
    lines = [f"move `{source}` to `{target}`" for source, target in moved]
    lines += [diff] if diff else []
    return "\n".join([*lines, "(the diff goes on: the arguments have all of it)"] if is_cut else lines)


def _describe_changed(plan: UndoPlan) -> str:
    return (
        f"{enumerate_paths(plan.changed_since)} changed since by others, and left as "
        f"{'it is' if len(plan.changed_since) == 1 else 'they are'}: the edit before that is taken back"
    )


def _plan_write(files: FileChanges, request: WriteFileInput) -> _Step:
    found = files.read(request.path)
    if found.data is None and request.version is not None:
        raise ToolFailed(
            f"there is no `{found.shown}` of version {request.version}", hint="leave `version` out"
        )
    if found.data is not None:
        _require_version(found, request.version)
    return _Step(changes=(_change(found, _encode(request.content, _detect_coding(found), found.shown)),))


def _require_version(found: FileContent, version: str | None) -> None:
    assert found.data is not None
    if version is None:
        raise ToolFailed(
            f"`{found.shown}` exists already",
            hint="use `edit.replace`, or `repo.readFile` with `withVersion` and give that version",
        )
    if version != version_of(found.data):
        raise ToolFailed(f"`{found.shown}` was changed since version {version}", hint="read it again")


def _plan_replace(files: FileChanges, request: ReplaceInput) -> _Step:
    found = _read_existing(files, request.path, request.version)
    text, coding = _decode(found)
    old, new = request.old_text, request.new_text
    if old not in text and "\r\n" in text:
        # Models read and write plain newlines, also where the file has CRLF.
        old, new = (value.replace("\r\n", "\n").replace("\n", "\r\n") for value in (old, new))
    count = text.count(old)
    if count == 0:
        raise ToolFailed(
            f"the old text is not in `{found.shown}`", hint="read the file again; every character counts"
        )
    if count > 1 and not request.replace_all:
        raise ToolFailed(
            f"the old text is {count} times in `{found.shown}`",
            hint="give more of the text around it, or set `replaceAll`",
        )
    changed = _encode(text.replace(old, new), coding, found.shown)
    return _Step(changes=(_change(found, changed),))


def _plan_patch(files: FileChanges, request: ApplyPatchInput) -> _Step:
    changes: list[Change] = []
    moved: list[tuple[str, str]] = []
    for patch in parse_patch(request.patch):
        planned = _plan_one_patch(files, patch)
        changes += planned.changes
        moved += planned.moved
    paths = [change.names for change in changes]
    if len(set(paths)) < len(paths):
        raise ToolFailed("the patch has a file twice", hint="put all hunks of a file under one header")
    return _Step(changes=tuple(changes), moved=tuple(moved))


def _plan_one_patch(files: FileChanges, patch: FilePatch) -> _Step:
    if patch.source is None:
        assert patch.target is not None
        target = files.read(patch.target)
        text = apply_hunks("", patch.hunks, target.shown)
        created = _change(target, _encode(text, _PLAIN, target.shown))
        if patch.is_executable and target.data is None:
            created = replace(created, mode=0o755)
        return _Step(changes=(created,))
    source = _read_existing(files, patch.source)
    data = _apply_patch(source, patch)
    if patch.target is None:
        return _Step(changes=(_change(source, None),))
    if patch.target == patch.source:
        return _Step(changes=(_change(source, data),))
    moved = _move(source, files.read(patch.target), data)
    return _Step(changes=moved.changes[:1]) if patch.is_copy else moved


def _apply_patch(source: FileContent, patch: FilePatch) -> bytes | None:
    """The content after the hunks, which must fit a deleted file too: so that it is the one meant."""
    if not patch.hunks:
        return source.data
    text, coding = _decode(source)
    return _encode(apply_hunks(text, patch.hunks, source.shown), coding, source.shown)


def _plan_move(files: FileChanges, request: MoveInput) -> _Step:
    source = _read_existing(files, request.source, request.version)
    return _move(source, files.read(request.target), source.data)


def _move(source: FileContent, target: FileContent, data: bytes | None) -> _Step:
    if target.data is not None:
        raise ToolFailed(f"`{target.shown}` exists already", hint="delete it first, or choose another path")
    created = Change(names=target.names, shown=target.shown, before=None, after=data, mode=source.mode)
    return _Step(changes=(created, _change(source, None)), moved=((source.shown, target.shown),))


def _plan_delete(files: FileChanges, request: DeleteInput) -> _Step:
    return _Step(changes=(_change(_read_existing(files, request.path, request.version), None),))


def _read_existing(files: FileChanges, path: str, version: str | None = None) -> FileContent:
    found = files.read(path)
    if found.data is None:
        raise ToolFailed(f"there is no `{found.shown}`", hint="`repo.listDir` shows what is there")
    if version is not None:
        _require_version(found, version)
    return found


def _change(found: FileContent, after: bytes | None) -> Change:
    if found.data == after:
        raise ToolFailed(f"`{found.shown}` holds this already: nothing would change")
    return Change(names=found.names, shown=found.shown, before=found.data, after=after, mode=found.mode)


def _detect_coding(found: FileContent) -> _Coding:
    data = found.data or b""
    if coding := next((coding for coding in _MARKED if data.startswith(coding.mark)), None):
        return coding
    if b"\0" in data:
        raise ToolFailed(f"`{found.shown}` is a binary file; only text is edited")
    try:
        data.decode()
    except UnicodeDecodeError:
        return _Coding(encoding="latin-1")  # as `repo.readFile` shows it; every byte keeps its value
    return _PLAIN


def _decode(found: FileContent) -> tuple[str, _Coding]:
    assert found.data is not None
    coding = _detect_coding(found)
    try:
        return found.data.removeprefix(coding.mark).decode(coding.encoding), coding
    except UnicodeDecodeError as error:
        raise ToolFailed(f"`{found.shown}` is not valid {coding.encoding}; it is not edited") from error


def _encode(text: str, coding: _Coding, shown: str) -> bytes:
    try:
        data = coding.mark + text.encode(coding.encoding)
    except UnicodeEncodeError as error:
        missing = ascii(text[error.start])
        raise ToolFailed(f"`{shown}` is encoded in {coding.encoding}, which has no {missing}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ToolFailed(f"`{shown}` would have {len(data)} bytes; {MAX_FILE_BYTES} is the most")
    return data


def _reply(step: _Step) -> Reply[EditOutput]:
    sources = {target: source for source, target in step.moved}
    gone = set(sources.values())
    files = [
        ChangedFile(
            path=change.shown,
            action="moved" if change.shown in sources else _action(change),
            version=None if change.after is None else version_of(change.after),
            moved_from=sources.get(change.shown),
        )
        for change in step.changes
        if change.shown not in gone
    ]
    diff, is_cut = render_diff(step.changes)
    output = EditOutput(files=files, diff=diff, truncated=is_cut)
    summary = "\n".join(_summarize(file) for file in files)
    content = [TextContent(text=summary)]
    if diff:
        content.append(TextContent(text=diff))
    if is_cut:
        content.append(TextContent(text="(the diff is cut; the change is whole)"))
    return Reply(output=output, content=tuple(content))


def _action(change: Change) -> FileAction:
    if change.before is None:
        return "created"
    return "deleted" if change.after is None else "changed"


def _summarize(file: ChangedFile) -> str:
    origin = f" from `{file.moved_from}`" if file.moved_from else ""
    version = f" (version {file.version})" if file.version else ""
    return f"{file.action} `{file.path}`{origin}{version}"

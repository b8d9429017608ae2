"""The file tools of the built-in `repo` server: read a file, list a folder."""

import base64
import mimetypes
from typing import Annotated, cast

from anyio import to_thread
from mcp_types import ContentBlock, ImageContent, TextContent, ToolAnnotations
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fairlead.servers.confine import Confinement
from fairlead.servers.definition import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.servers.listing import Entry, EntryType, list_folder
from fairlead.servers.names import escaped
from fairlead.servers.opened import OpenFile, in_words
from fairlead.servers.reading import Encoding, Head, read_bytes, read_head, read_lines, read_part

MOST_BYTES = 2_000_000
MOST_IMAGE_BYTES = 5_000_000
MOST_ENTRIES = 20_000
MOST_LEVELS = 32

_MARKS: dict[EntryType, str] = {"dir": "/", "link": "  (link)", "other": "  (neither file nor folder)"}


def file_tools(confinement: Confinement) -> tuple[AnyTool, ...]:
    """The tools that read files and list folders within `confinement`, which stays the caller's to close."""

    async def read_file(_: ToolContext, asked: ReadFileInput) -> Reply[ReadFileOutput]:
        return await to_thread.run_sync(_read_file, confinement, asked)

    async def list_dir(_: ToolContext, asked: ListDirInput) -> Reply[ListDirOutput]:
        return await to_thread.run_sync(_list_dir, confinement, asked)

    annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    where = _where_paths_start(confinement)
    return (
        ToolDefinition(
            name="repo.readFile",
            title="Read a file",
            description=(
                f"Read a text file or an image of the project. {where} A long file is cut: go on with "
                "`offset`, or ask for the lines you need with `lineRange`."
            ),
            input=ReadFileInput,
            output=ReadFileOutput,
            handler=read_file,
            annotations=annotations,
        ),
        ToolDefinition(
            name="repo.listDir",
            title="List a folder",
            description=f"List the files and folders of a folder of the project, with sizes. {where}",
            input=ListDirInput,
            output=ListDirOutput,
            handler=list_dir,
            annotations=annotations,
        ),
    )


def _where_paths_start(confinement: Confinement) -> str:
    if len(confinement.roots) == 1:
        return "Paths are relative to the project's folder, like `src/main.py`; links are not followed."
    names = ", ".join(f"`{root.name}`" for root in confinement.roots)
    return f"Paths start with one of the folders {names}; links are not followed."


def _at_most(limit: int) -> AfterValidator:
    """A number over the limit is taken for the limit: the answer says that it is not all."""
    return AfterValidator(lambda value: min(value, limit))


def _without_null(value: object) -> object:
    """`[10, null]` is how some write `[10]`."""
    if not isinstance(value, list):
        return value
    lines = cast("list[object]", value)
    return lines[:1] if lines[1:] == [None] else lines


PathText = Annotated[str, Field(max_length=4096)]


# ── readFile ──


class ReadFileInput(ToolModel):
    """What to read."""

    path: PathText
    """The file, with `/` between names."""
    max_bytes: Annotated[int, Field(ge=1), _at_most(MOST_BYTES)] = 200_000
    """How much to read; 2000000 at most."""
    offset: Annotated[int, Field(ge=0)] = 0
    """The byte to start at."""
    line_range: (
        Annotated[
            list[Annotated[int, Field(ge=1)]],
            Field(min_length=1, max_length=2),
            BeforeValidator(_without_null),
        ]
        | None
    ) = None
    """First and last line, counted from 1: [10, 40]. [10] is from line 10 to the end. Not with offset."""

    @model_validator(mode="after")
    def _is_one_place(self) -> "ReadFileInput":
        if self.line_range and self.offset:
            raise ValueError("give either offset or lineRange, not both")
        if self.line_range and self.line_range[-1] < self.line_range[0]:
            raise ValueError("lineRange ends before it begins")
        return self


class ReadFileOutput(ToolModel):
    """What was read."""

    path: str
    content: str
    """The text; empty for an image or another binary file."""
    truncated: bool
    """Whether there is more of what was asked for."""
    total_bytes: int
    """The size of the whole file."""
    encoding: Encoding
    """How the file is encoded: `utf-8-replaced` has marks for bytes that were wrong, `latin-1` is a guess."""
    next_offset: int | None = None
    """The offset to go on at, where it is truncated."""


def _read_file(confinement: Confinement, asked: ReadFileInput) -> Reply[ReadFileOutput]:
    with confinement.file(asked.path) as file, in_words(file.shown):
        head = read_head(file)
        return _read_binary(file, head, asked) if head.encoding == "binary" else _read_text(file, head, asked)


def _read_text(file: OpenFile, head: Head, asked: ReadFileInput) -> Reply[ReadFileOutput]:
    if asked.line_range:
        first, *rest = asked.line_range
        last = rest[0] if rest else None
        excerpt = read_lines(file, head, first=first, last=last, max_bytes=asked.max_bytes)
    else:
        excerpt = read_part(file, head, offset=asked.offset, max_bytes=asked.max_bytes)
    output = ReadFileOutput(
        path=file.shown,
        content=excerpt.text,
        truncated=excerpt.is_cut,
        total_bytes=file.stat.st_size,
        encoding=excerpt.encoding,
        next_offset=excerpt.end if excerpt.is_cut else None,
    )
    return Reply(output=output, content=tuple(map(_text, _told(output))))


def _told(output: ReadFileOutput) -> list[str]:
    """The text itself, and then what has to be known about it."""
    told = [output.content or "(there is no text here)"]
    if output.truncated:
        on = f"; go on with offset {output.next_offset}" if output.next_offset is not None else ""
        told.append(f"(cut: the file has {output.total_bytes} bytes{on})")
    if output.encoding in {"latin-1", "utf-8-replaced"}:
        told.append(f"(not all of this is UTF-8; it was read as {output.encoding})")
    return told


def _read_binary(file: OpenFile, head: Head, asked: ReadFileInput) -> Reply[ReadFileOutput]:
    size = file.stat.st_size
    mime_type = head.image_type or mimetypes.guess_type(file.shown)[0] or "application/octet-stream"
    content: list[ContentBlock] = [_text(f"(a binary file: {mime_type}, {size} bytes)")]
    is_shown = head.image_type is not None and size <= MOST_IMAGE_BYTES
    if is_shown:
        data = base64.b64encode(read_bytes(file, size)).decode()
        content.append(ImageContent(data=data, mime_type=mime_type))
    output = ReadFileOutput(
        path=file.shown,
        content="",
        truncated=not is_shown and size > asked.max_bytes,
        total_bytes=size,
        encoding="binary",
    )
    return Reply(output=output, content=tuple(content))


# ── listDir ──


class ListDirInput(ToolModel):
    """What to list."""

    path: PathText = "."
    """The folder, with `/` between names."""
    max_entries: Annotated[int, Field(ge=1), _at_most(MOST_ENTRIES)] = 2000
    """How many entries to list; 20000 at most."""
    recursive: bool = False
    """Also list the folders below, 32 levels at most, but not what is in `.git`."""
    depth: Annotated[int, Field(ge=1), _at_most(MOST_LEVELS)] | None = None
    """How many levels to list: 1 is the folder alone, 2 also the folders in it, even without `recursive`."""


class ListDirOutput(ToolModel):
    """What is there."""

    path: str
    entries: list[Entry]
    truncated: bool
    """Whether there is more."""


def _list_dir(confinement: Confinement, asked: ListDirInput) -> Reply[ListDirOutput]:
    names = confinement.names(asked.path)
    depth = asked.depth or (MOST_LEVELS if asked.recursive else 1)
    entries, is_cut = list_folder(confinement, names, max_entries=asked.max_entries, depth=depth)
    path = "/".join(map(escaped, names)) or "."
    output = ListDirOutput(path=path, entries=entries, truncated=is_cut)
    return Reply(output=output, content=(_text(_listed(output)),))


def _listed(output: ListDirOutput) -> str:
    """A line for each entry: a folder ends in `/`, a file is followed by its size."""
    lines = [f"{entry.name}{_MARKS.get(entry.type) or f'  {entry.size_bytes}'}" for entry in output.entries]
    if not lines:
        lines.append("(nothing is in here)")
    if output.truncated:
        lines.append("(this is not all: ask for more entries, or for a folder below)")
    return "\n".join(lines)


def _text(text: str) -> TextContent:
    return TextContent(text=text)

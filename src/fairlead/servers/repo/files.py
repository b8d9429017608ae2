"""The file tools of the built-in `repo` server: read a file or a part of it, list a folder.

The encoding is that of the byte order mark, else UTF-8, else Latin-1, judged for each part by itself. A zero
byte near the beginning means that the file is binary. Listings are in a stable order.
"""

import base64
import codecs
import hashlib
import itertools
import mimetypes
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from typing import Annotated, ClassVar, Literal, cast

from anyio import to_thread
from mcp_types import ContentBlock, ImageContent, TextContent, ToolAnnotations
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.errors import ToolFailed
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel
from fairlead.servers.repo.folders import Confinement, OpenFile, OpenFolder, escape_name, in_words, is_private

EntryType = Literal["file", "dir", "link", "other"]

_Found = tuple[str, EntryType, int | None]
_TYPES: dict[int, EntryType] = {S_IFREG: "file", S_IFDIR: "dir", S_IFLNK: "link"}
_NAMES_LOOKED_AT = 200_000
_NAMES_AT_A_TIME = 1000


# No model, and not frozen: there can be thousands of these, and either takes several times as long to make.
@dataclass(slots=True)
class FolderEntry:
    """One entry of a folder."""

    __pydantic_config__: ClassVar[ConfigDict] = ToolModel.model_config

    name: str
    r"""Its name, or its path from the listed folder. What cannot be shown is written like `\xff`."""
    type: EntryType
    size_bytes: int | None = None
    """The size of a file."""


def list_folder(
    confinement: Confinement, names: Sequence[str], *, max_entries: int, depth: int
) -> tuple[list[FolderEntry], bool]:
    """The entries of a folder, `depth` levels of them, and whether there are more than these.

    Each folder is followed by what is in it. Where not all fit, upper levels are there before lower ones, and
    of one folder the first names, among as many as are looked at.
    """
    entries: list[FolderEntry] = []
    is_cut = False
    waiting: deque[tuple[str, ...]] = deque([()])
    while waiting:
        below = waiting.popleft()
        try:
            found, is_more = _list_one(confinement, names, below, max_entries - len(entries))
        except ToolFailed:
            if not below:
                raise
            is_cut = True  # it cannot be opened; the rest of the tree is worth having all the same
            continue
        prefix = "".join(f"{escape_name(name)}/" for name in below)
        entries += [FolderEntry(prefix + escape_name(name), kind, size) for name, kind, size in found]
        if is_more:
            is_cut = True
            break
        if len(below) + 1 < depth:
            waiting.extend(
                (*below, name) for name, kind, _ in found if kind == "dir" and not is_private(name)
            )
    if depth > 1:
        entries.sort(key=lambda entry: entry.name.split("/"))
    return entries, is_cut


def _list_one(
    confinement: Confinement, above: Sequence[str], below: tuple[str, ...], room: int
) -> tuple[list[_Found], bool]:
    """First entries of one folder, as many as there is room for, and whether there are more."""
    if not above and not below and len(confinement.roots) > 1:
        roots = sorted(root.name for root in confinement.roots)
        return [(name, "dir", None) for name in roots[:room]], len(roots) > room
    with confinement.folder_at((*above, *below)) as folder, in_words(folder.shown):
        names, is_more = _first_names(folder, room)
        return [_look(folder, name) for name in names], is_more


def _first_names(folder: OpenFolder, count: int) -> tuple[list[str], bool]:
    """The first names in a folder, and whether there are more. Few more than wanted are held at a time."""
    first: list[str] = []
    with folder.scan() as entries:
        # Names alone: to hold all the entries, each with its status, would take half as long again.
        names = (entry.name for entry in islice(entries, _NAMES_LOOKED_AT))
        while more := list(islice(names, max(count, _NAMES_AT_A_TIME))):
            first = sorted(first + more)[: count + 1]
        return first[:count], len(first) > count or next(entries, None) is not None


def _look(folder: OpenFolder, name: str) -> _Found:
    try:
        status = folder.status(name)
    except OSError:  # it was removed since the folder was read
        return name, "other", None
    kind = _TYPES.get(S_IFMT(status.st_mode), "other")
    return name, kind, status.st_size if kind == "file" else None


Encoding = Literal[
    "utf-8",
    "utf-8-sig",
    "utf-8-replaced",
    "utf-16-le",
    "utf-16-be",
    "utf-32-le",
    "utf-32-be",
    "latin-1",
    "binary",
]

# Those of UTF-32 come first: one of them begins with that of UTF-16.
_BYTE_ORDER_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_IMAGES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
_NEVER_TEXT = (b"%PDF-", b"PK\x03\x04", b"\x1f\x8b")
_INSIDE_A_CHARACTER = re.compile(rb"[\x80-\xbf]{0,3}")

_HEAD_BYTES = 8192
_BLOCK_BYTES = 1 << 16
_FARTHEST_LINE = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class FileHead:
    """Facts about a file that its beginning reveals, such as its encoding."""

    encoding: Encoding
    mark: bytes = b""
    image_type: str | None = None

    @property
    def unit(self) -> int:
        """Number of bytes of the shortest character."""
        return _UNITS.get(self.encoding, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A part of a file's text."""

    text: str
    encoding: Encoding
    is_cut: bool
    """Whether there is more than this page."""
    end: int | None
    """The offset at which it ends, where that is known."""


def read_head(file: OpenFile) -> FileHead:
    """Read the beginning of a file."""
    data = read_bytes(file, _HEAD_BYTES)
    for magic, image_type in _IMAGES:
        if magic.match(data):
            return FileHead(encoding="binary", image_type=image_type)
    mark, encoding = next((pair for pair in _BYTE_ORDER_MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    if data.startswith(_NEVER_TEXT) or "\0" in data.decode(encoding, "ignore"):
        return FileHead(encoding="binary")
    return FileHead(encoding=encoding, mark=mark)


def read_bytes(file: OpenFile, count: int, start: int = 0) -> bytes:
    """Up to `count` bytes from `start`; fewer where the file ends."""
    os.lseek(file.fd, start, os.SEEK_SET)
    left = min(count, file.stat.st_size - start)
    blocks: list[bytes] = []
    while left > 0 and (block := os.read(file.fd, left)):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def version_of(data: bytes) -> str:
    """Version of a file's content: a digest of all of it, short enough for a model to repeat."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def read_part(file: OpenFile, head: FileHead, *, offset: int, max_bytes: int) -> Excerpt:
    """The text from an offset on, up to `max_bytes` of the file, in whole characters and at least one."""
    size = file.stat.st_size
    if offset > size:
        raise ToolFailed(f"offset {offset} is past the end: `{file.shown}` has {size} bytes")
    start = max(offset + -offset % head.unit, len(head.mark))
    data = read_bytes(file, max_bytes, start)
    is_cut = start + len(data) < size
    text, encoding, used = _decode_text(data, head.encoding, is_cut=is_cut, may_begin_inside=offset > 0)
    if not used and len(data) == max_bytes:
        return read_part(file, head, offset=offset, max_bytes=max_bytes + 1)
    return Excerpt(text=text, encoding=encoding, is_cut=is_cut, end=start + used)


def read_lines(file: OpenFile, head: FileHead, *, first: int, last: int | None, max_bytes: int) -> Excerpt:
    """The text of some lines, counted from 1, up to `max_bytes` of it; all that follow without a last one."""
    blocks = _blocks(file, head)
    skipped, rest = _skip_lines(blocks, first - 1, file.shown)
    count = None if last is None else last - first + 1
    data, is_cut = _take_lines(itertools.chain([rest], blocks), count, max_bytes)
    if first > 1 and not data:
        raise _too_few_lines(file.shown, first - 1)
    if head.unit > 1:
        text, _, _ = _decode_text(data, "utf-8", is_cut=is_cut)
        return Excerpt(text=text, encoding=head.encoding, is_cut=is_cut, end=None)
    text, encoding, used = _decode_text(data, head.encoding, is_cut=is_cut)
    return Excerpt(text=text, encoding=encoding, is_cut=is_cut, end=len(head.mark) + skipped + used)


def _blocks(file: OpenFile, head: FileHead) -> Iterator[bytes]:
    """The file after its mark, a block at a time; in UTF-8 where a line break takes more than a byte."""
    decoder = codecs.getincrementaldecoder(head.encoding)("replace") if head.unit > 1 else None
    position = os.lseek(file.fd, len(head.mark), os.SEEK_SET)
    while block := os.read(file.fd, _BLOCK_BYTES):
        yield decoder.decode(block).encode() if decoder else block
        position += len(block)
        if position > _FARTHEST_LINE:
            raise ToolFailed(
                f"those lines are too far down in `{file.shown}` to be counted", hint="use an offset instead"
            )


def _skip_lines(blocks: Iterator[bytes], count: int, shown: str) -> tuple[int, bytes]:
    """Length of the first lines in bytes, and what follows them in the block where they end."""
    found, length, block = 0, 0, b""
    for block in blocks:
        breaks = block.count(b"\n")
        if found + breaks >= count:
            rest = block.split(b"\n", count - found)[-1]
            return length + len(block) - len(rest), rest
        found, length = found + breaks, length + len(block)
    if count:
        raise _too_few_lines(shown, found + bool(block and not block.endswith(b"\n")))
    return 0, b""


def _take_lines(blocks: Iterator[bytes], count: int | None, max_bytes: int) -> tuple[bytes, bool]:
    """Some lines, or as much of them as is wanted, and whether that is not all."""
    taken = bytearray()
    for block in blocks:
        if count is not None and (breaks := block.count(b"\n")) < count:
            count -= breaks
            taken += block
        elif count is not None:
            taken += block[: len(block) - len(block.split(b"\n", count)[-1])]
            break
        else:
            taken += block
        if len(taken) > max_bytes:
            break
    return bytes(taken[:max_bytes]), len(taken) > max_bytes


def _too_few_lines(shown: str, count: int) -> ToolFailed:
    return ToolFailed(f"`{shown}` has only {count} {'line' if count == 1 else 'lines'}")


def _decode_text(
    data: bytes, encoding: Encoding, *, is_cut: bool, may_begin_inside: bool = False
) -> tuple[str, Encoding, int]:
    """The text, how it was encoded, and how many bytes that took: a character that is cut off is left out."""
    if encoding in _UNITS:
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        text = decoder.decode(data, final=not is_cut)
        return text, encoding, len(data) - len(decoder.getstate()[0])
    inside = _INSIDE_A_CHARACTER.match(data) if may_begin_inside else None
    begin = inside.end() if inside else 0
    try:
        text, used = codecs.utf_8_decode(data[begin:], "strict", not is_cut)
    except UnicodeDecodeError:
        return _decode_with_fallback(data, is_cut=is_cut)
    return text, encoding, begin + used


def _decode_with_fallback(data: bytes, *, is_cut: bool) -> tuple[str, Encoding, int]:
    """The text of what is not all UTF-8: UTF-8 with a few faults, or no UTF-8 at all."""
    text, used = codecs.utf_8_decode(data, "replace", not is_cut)
    faults = text.count("\N{REPLACEMENT CHARACTER}")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    if beyond_ascii > 2 * faults:
        return text, "utf-8-replaced", used
    return data.decode("latin-1"), "latin-1", len(data)


MOST_BYTES = 2_000_000
MOST_IMAGE_BYTES = 5_000_000
MOST_ENTRIES = 20_000
MOST_LEVELS = 32

_MARKS: dict[EntryType, str] = {"dir": "/", "link": "  (link)", "other": "  (neither file nor folder)"}


def file_tools(confinement: Confinement) -> tuple[AnyTool, ...]:
    """The tools that read files and list folders within `confinement`, which stays the caller's to close."""

    async def read_file(_: ToolContext, request: ReadFileInput) -> Reply[ReadFileOutput]:
        return await to_thread.run_sync(_read_file, confinement, request)

    async def list_dir(_: ToolContext, request: ListDirInput) -> Reply[ListDirOutput]:
        return await to_thread.run_sync(_list_dir, confinement, request)

    annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    where = describe_path_base(confinement)
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


def describe_path_base(confinement: Confinement) -> str:
    """Sentence for tool descriptions: the folder that paths are relative to."""
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
    """Input of the tool that reads a file."""

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
    with_version: bool = False
    """Also tell the version of the content, which `edit.writeFile` takes. Needs all of the file."""

    @model_validator(mode="after")
    def _is_one_place(self) -> "ReadFileInput":
        if self.line_range and self.offset:
            raise ValueError("give either offset or lineRange, not both")
        if self.line_range and self.line_range[-1] < self.line_range[0]:
            raise ValueError("lineRange ends before it begins")
        return self


class ReadFileOutput(ToolModel):
    """Output of the tool that reads a file."""

    path: str
    content: str
    """The text; empty for an image or another binary file."""
    truncated: bool
    """Whether there is more than this page."""
    total_bytes: int
    """The size of the whole file."""
    encoding: Encoding
    """How the file is encoded: `utf-8-replaced` has marks for bytes that were wrong, `latin-1` is a guess."""
    next_offset: int | None = None
    """The offset to go on at, where it is truncated."""
    version: str | None = None
    """Version of the content, where it was requested and all of it was read."""


def _read_file(confinement: Confinement, request: ReadFileInput) -> Reply[ReadFileOutput]:
    with confinement.file(request.path) as file, in_words(file.shown):
        head = read_head(file)
        return (
            _read_binary(file, head, request)
            if head.encoding == "binary"
            else _read_text(file, head, request)
        )


def _read_text(file: OpenFile, head: FileHead, request: ReadFileInput) -> Reply[ReadFileOutput]:
    if request.line_range:
        first, *rest = request.line_range
        last = rest[0] if rest else None
        excerpt = read_lines(file, head, first=first, last=last, max_bytes=request.max_bytes)
    else:
        excerpt = read_part(file, head, offset=request.offset, max_bytes=request.max_bytes)
    is_whole = not (excerpt.is_cut or request.offset or request.line_range)
    output = ReadFileOutput(
        path=file.shown,
        content=excerpt.text,
        truncated=excerpt.is_cut,
        total_bytes=file.stat.st_size,
        encoding=excerpt.encoding,
        next_offset=excerpt.end if excerpt.is_cut else None,
        version=_file_version(file) if request.with_version and is_whole else None,
    )
    return Reply(output=output, content=tuple(map(_text, _render_file(output))))


def _file_version(file: OpenFile) -> str:
    return version_of(read_bytes(file, file.stat.st_size))


def _render_file(output: ReadFileOutput) -> list[str]:
    """The text itself, and then what has to be known about it."""
    parts = [output.content or "(there is no text here)"]
    if output.truncated:
        on = f"; go on with offset {output.next_offset}" if output.next_offset is not None else ""
        parts.append(f"(cut: the file has {output.total_bytes} bytes{on})")
    if output.encoding in {"latin-1", "utf-8-replaced"}:
        parts.append(f"(not all of this is UTF-8; it was read as {output.encoding})")
    if output.version:
        parts.append(f"(version {output.version})")
    return parts


def _read_binary(file: OpenFile, head: FileHead, request: ReadFileInput) -> Reply[ReadFileOutput]:
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
        truncated=not is_shown and size > request.max_bytes,
        total_bytes=size,
        encoding="binary",
    )
    return Reply(output=output, content=tuple(content))


# ── listDir ──


class ListDirInput(ToolModel):
    """Input of the tool that lists a folder."""

    path: PathText = "."
    """The folder, with `/` between names."""
    max_entries: Annotated[int, Field(ge=1), _at_most(MOST_ENTRIES)] = 2000
    """How many entries to list; 20000 at most."""
    recursive: bool = False
    """Also list the folders below, 32 levels at most, but not what is in `.git`."""
    depth: Annotated[int, Field(ge=1), _at_most(MOST_LEVELS)] | None = None
    """How many levels to list: 1 is the folder alone, 2 also the folders in it, even without `recursive`."""


class ListDirOutput(ToolModel):
    """Output of the tool that lists a folder."""

    path: str
    entries: list[FolderEntry]
    truncated: bool
    """Whether there is more."""


def _list_dir(confinement: Confinement, request: ListDirInput) -> Reply[ListDirOutput]:
    names = confinement.names(request.path)
    depth = request.depth or (MOST_LEVELS if request.recursive else 1)
    entries, is_cut = list_folder(confinement, names, max_entries=request.max_entries, depth=depth)
    path = "/".join(map(escape_name, names)) or "."
    output = ListDirOutput(path=path, entries=entries, truncated=is_cut)
    return Reply(output=output, content=(_text(_render_listing(output)),))


def _render_listing(output: ListDirOutput) -> str:
    """A line for each entry: a folder ends in `/`, a file is followed by its size."""
    lines = [f"{entry.name}{_MARKS.get(entry.type) or f'  {entry.size_bytes}'}" for entry in output.entries]
    if not lines:
        lines.append("(nothing is in here)")
    if output.truncated:
        lines.append("(this is not all: ask for more entries, or for a folder below)")
    return "\n".join(lines)


def _text(text: str) -> TextContent:
    return TextContent(text=text)

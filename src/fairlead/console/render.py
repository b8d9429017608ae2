"""Rendering of results, block by block: text cut to a screen, media drawn or stored.

Images are drawn where the terminal can, and described where it cannot.

What a server sent reaches the terminal as base64 inside a frame of ours, and only if its first bytes say that
it is an image of a bearable size; nothing of it is ever written as it came.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Any, Final, Literal

from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import as_object
from fairlead.console.session import ConsoleSession
from fairlead.policy.results import PLAIN_TEXT, ResultSource, media_type

Graphics = Literal["kitty", "iterm"]
"""How a terminal takes images."""

MAX_DRAWN_BYTES: Final = 4 * 1024 * 1024
MAX_DRAWN_PIXELS: Final = 40_000_000
"""More than any screen has; a few bytes can claim to be as much as they like."""

_MOST_COLUMNS, _MOST_ROWS = 60, 20
_COLUMN_PIXELS, _ROW_PIXELS = 10, 20
"""About what a character takes, so that a small image stays small."""
_FRAME_CHARACTERS = 4096
"""The longest piece of data that kitty's protocol has in one frame."""
_MOST_SEGMENTS = 256
"""How far into a JPEG its size is looked for."""

_KITTY_TERMS = frozenset({"xterm-kitty", "xterm-ghostty"})
_KITTY_PROGRAMS = frozenset({"kitty", "ghostty"})
_ITERM_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "mintty"})
_FORMATS: Final[dict[Graphics, frozenset[str]]] = {
    "kitty": frozenset({"image/png"}),
    "iterm": frozenset({"image/png", "image/jpeg", "image/gif"}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageInfo:
    """Facts about an image that are known without decoding it."""

    media_type: str
    """What its first bytes say; what the server says where they say nothing."""
    size: int
    """In bytes."""
    pixels: tuple[int, int] | None = None
    """Its width and height; None where its beginning does not tell."""

    def __str__(self) -> str:
        pixels = f", {self.pixels[0]:,} by {self.pixels[1]:,} pixels" if self.pixels else ""
        return f"{self.media_type}{pixels}, {self.size:,} bytes"


def picture_of(content: bytes, content_type: object) -> ImageInfo:
    """Format of an image by its first bytes, else by the media type of the server."""
    for kind, beginning, pixels in _KNOWN:
        if content.startswith(beginning):
            found = pixels(content)
            if found is not None:
                return ImageInfo(media_type=kind, size=len(content), pixels=found)
    return ImageInfo(media_type=media_type(content_type), size=len(content))


def graphics_of(env: Mapping[str, str]) -> Graphics | None:
    """Graphics protocol of the terminal, as far as its environment tells; None for none.

    A multiplexer draws its own screen: what it does not understand would end up on it as text.
    """
    term, program = env.get("TERM", ""), env.get("TERM_PROGRAM", "")
    if "TMUX" in env or "STY" in env or "ZELLIJ" in env or term.startswith(("screen", "tmux", "dumb")):
        return None
    if "KITTY_WINDOW_ID" in env or term in _KITTY_TERMS or program in _KITTY_PROGRAMS:
        return "kitty"
    if program in _ITERM_PROGRAMS or env.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return None


def drawing_of(content: bytes, picture: ImageInfo, graphics: Graphics | None, *, columns: int) -> str | None:
    """Control sequences that draw the image on the terminal; None where it cannot.

    It is no wider than `columns` characters, and leaves the cursor in the last line of the image.
    """
    if graphics is None or picture.media_type not in _FORMATS[graphics] or picture.pixels is None:
        return None
    width, height = picture.pixels
    if not 0 < width * height <= MAX_DRAWN_PIXELS or not 0 < len(content) <= MAX_DRAWN_BYTES:
        return None
    taken = _columns_for(width, height, min(columns, _MOST_COLUMNS))
    data = base64.b64encode(content).decode("ascii")
    frames = _kitty(data, taken) if graphics == "kitty" else _iterm(data, len(content), taken)
    return "".join(frames)


def _columns_for(width: int, height: int, most: int) -> int:
    """Width to draw it in: its own if that fits and is not too high, else less. Its shape stays."""
    columns, rows = width / _COLUMN_PIXELS, height / _ROW_PIXELS
    return max(1, math.floor(columns * min(1.0, most / columns, _MOST_ROWS / rows)))


def _kitty(data: str, columns: int) -> Iterator[str]:
    """Frames of kitty's graphics protocol. `q=2` has the terminal answer nothing, as if it were typed."""
    pieces = [data[start : start + _FRAME_CHARACTERS] for start in range(0, len(data), _FRAME_CHARACTERS)]
    how = f"a=T,f=100,q=2,c={columns},"
    for number, piece in enumerate(pieces, start=1):
        more = int(number < len(pieces))
        yield f"\x1b_G{how if number == 1 else ''}m={more};{piece}\x1b\\"


def _iterm(data: str, size: int, columns: int) -> Iterator[str]:
    how = f"inline=1;size={size};width={columns};preserveAspectRatio=1"
    yield f"\x1b]1337;File={how}:{data}\x07"


# The first bytes of each format.


def _unpack_at(form: str, content: bytes, start: int) -> tuple[int, ...] | None:
    return struct.unpack_from(form, content, start) if len(content) >= start + struct.calcsize(form) else None


def _png(content: bytes) -> tuple[int, int] | None:
    found = _unpack_at(">II", content, 16) if content[12:16] == b"IHDR" else None
    return (found[0], found[1]) if found else None


def _gif(content: bytes) -> tuple[int, int] | None:
    found = _unpack_at("<HH", content, 6) if content[3:6] in (b"87a", b"89a") else None
    return (found[0], found[1]) if found else None


def _jpeg(content: bytes) -> tuple[int, int] | None:
    """The size is in a segment of its own, behind others of any length."""
    start = 2
    for _ in range(_MOST_SEGMENTS):
        head = _unpack_at(">BBH", content, start)
        if head is None or head[0] != 0xFF:
            return None
        _, marker, length = head
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            found = _unpack_at(">HH", content, start + 5)
            return (found[1], found[0]) if found else None
        start += 2 + length
    return None


def _webp(content: bytes) -> tuple[int, int] | None:
    if content[8:12] != b"WEBP":
        return None
    match content[12:16]:
        case b"VP8 ":
            found = _unpack_at("<HH", content, 26)
            return (found[0] & 0x3FFF, found[1] & 0x3FFF) if found else None
        case b"VP8L":
            bits = _unpack_at("<I", content, 21)
            return ((bits[0] & 0x3FFF) + 1, (bits[0] >> 14 & 0x3FFF) + 1) if bits else None
        case b"VP8X":
            found = _unpack_at("<HBHB", content, 24)
            return (found[0] + (found[1] << 16) + 1, found[2] + (found[3] << 16) + 1) if found else None
        case _:
            return None


_KNOWN: Final[tuple[tuple[str, bytes, Callable[[bytes], tuple[int, int] | None]], ...]] = (
    ("image/png", b"\x89PNG\r\n\x1a\n", _png),
    ("image/jpeg", b"\xff\xd8\xff", _jpeg),
    ("image/gif", b"GIF", _gif),
    ("image/webp", b"RIFF", _webp),
)


MOST_LINES: Final = 200
MOST_CHARACTERS: Final = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerOrigin:
    """Origin of an answer: its server, and the tool, URI or prompt."""

    server_id: str
    what: str


async def show_blocks(
    session: ConsoleSession, origin: AnswerOrigin, blocks: Iterable[Mapping[str, Any]]
) -> None:
    """Show content blocks of any type. What is not shown whole is stored, and the path is shown."""
    for block in blocks:
        await _show_block(session, origin, block)


async def _show_block(session: ConsoleSession, origin: AnswerOrigin, block: Mapping[str, Any]) -> None:
    match block:
        case {"type": "text", "text": str(text)}:
            await _show_text(session, origin, text)
        case {"type": "image" | "audio", "data": str(data)}:
            await _show_media(session, origin, data, block.get("mimeType"))
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            session.screen.say(f"[{as_object(resource).get('uri', 'a resource')}]")
            await _show_text(session, origin, text)
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            session.screen.say(f"[{as_object(resource).get('uri', 'a resource')}]")
            await _show_media(session, origin, data, as_object(resource).get("mimeType"))
        case {"type": "resource_link", "uri": str(uri)}:
            label = block.get("title") or block.get("name") or "a resource"
            session.screen.say(f"[{label}: `/resources {origin.server_id} {uri}` reads it]")
        case _:
            session.screen.say(
                f"[something of the type {str(block.get('type'))[:40]!r}, which is not known here]"
            )


def _beginning(text: str) -> str:
    """The part of a text that is shown."""
    return "\n".join(text[:MOST_CHARACTERS].split("\n")[:MOST_LINES])


def is_shown_whole(blocks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the person saw all of these blocks' text."""
    holders = (as_object(block.get("resource")) or block for block in blocks)
    return all(_beginning(text) == text for each in holders if isinstance(text := each.get("text"), str))


async def _show_text(session: ConsoleSession, origin: AnswerOrigin, text: str) -> None:
    shown = _beginning(text)
    session.screen.data(shown)
    if len(shown) < len(text):
        where = await _store_artifact(session, origin, text.encode(errors="replace"), PLAIN_TEXT)
        session.screen.say(f"[{len(shown):,} of {len(text):,} characters are shown; {where}]")


async def _show_media(session: ConsoleSession, origin: AnswerOrigin, data: str, content_type: object) -> None:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        session.screen.say("[media that cannot be read]")
        return
    picture = picture_of(content, content_type)
    if picture.media_type.startswith("text/"):
        # The gate leaves binary data as it is, and this is text: a secret or an escape sequence may be in it.
        await _show_text(session, origin, await gate.run(gate.file_steps(content)))
        return
    columns = get_terminal_size().columns
    drawing = drawing_of(content, picture, graphics_of(session.env), columns=columns)
    if drawing is not None:
        session.screen.raw(drawing)
        session.screen.say(f"[{picture}]")
        return
    where = await _store_artifact(session, origin, content, picture.media_type)
    session.screen.say(f"[{picture}; {where}]")


async def _store_artifact(
    session: ConsoleSession, origin: AnswerOrigin, content: bytes, media_type: str
) -> str:
    """Keep something for the person to look at elsewhere, and return the words that say where."""
    trusted = session.host.configured(origin.server_id).trust == "trusted"
    source = ResultSource(server_id=origin.server_id, tool=origin.what, trusted=trusted, limit=None)
    handle = await session.host.artifacts.keep(content, media_type, source)
    return f"`fairlead artifacts show {handle} -o FILE` saves it" if handle else "it could not be kept"

"""What servers answered, block by block: text as far as a screen takes it, media drawn or kept."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Any, Final

from fairlead.config.shapes import as_object
from fairlead.console.images import drawing_of, graphics_of, picture_of
from fairlead.console.session import Session
from fairlead.policy.results import PLAIN_TEXT, Source

MOST_LINES: Final = 200
MOST_CHARACTERS: Final = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Whose answer it is: of which server, and to what (a tool, a URI, a prompt)."""

    server_id: str
    what: str


async def show_blocks(session: Session, origin: Origin, blocks: Iterable[Mapping[str, Any]]) -> None:
    """Show blocks of content, whatever they are. What is not shown whole is kept, and where is said."""
    for block in blocks:
        await _show_block(session, origin, block)


async def _show_block(session: Session, origin: Origin, block: Mapping[str, Any]) -> None:
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


async def _show_text(session: Session, origin: Origin, text: str) -> None:
    lines = text[:MOST_CHARACTERS].split("\n")
    shown = "\n".join(lines[:MOST_LINES])
    session.screen.data(shown)
    if len(shown) < len(text):
        where = await _kept(session, origin, text.encode(errors="replace"), PLAIN_TEXT)
        session.screen.say(f"[{len(shown):,} of {len(text):,} characters are shown; {where}]")


async def _show_media(session: Session, origin: Origin, data: str, said: object) -> None:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        session.screen.say("[media that cannot be read]")
        return
    picture = picture_of(content, said)
    if picture.media_type.startswith("text/"):
        await _show_text(session, origin, content.decode(errors="replace"))
        return
    columns = get_terminal_size().columns
    drawing = drawing_of(content, picture, graphics_of(session.env), columns=columns)
    if drawing is not None:
        session.screen.raw(drawing)
        session.screen.say(f"[{picture}]")
        return
    where = await _kept(session, origin, content, picture.media_type)
    session.screen.say(f"[{picture}; {where}]")


async def _kept(session: Session, origin: Origin, content: bytes, media_type: str) -> str:
    """Keep something for the person to look at elsewhere, and return the words that say where."""
    trusted = session.host.configured(origin.server_id).trust == "trusted"
    source = Source(server_id=origin.server_id, tool=origin.what, trusted=trusted, limit=None)
    handle = await session.host.artifacts.keep(content, media_type, source)
    return f"`fairlead artifacts show {handle} -o FILE` saves it" if handle else "it could not be kept"

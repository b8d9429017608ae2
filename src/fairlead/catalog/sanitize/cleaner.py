"""Cleaning and masking of one JSON message: a native scan for nothing to do, else string by string.

Part of the gate, which is its interface. `is_plain` answers for nearly every message; `Cleaner` and
`clean_literals_steps` do the work for the rest, in steps (see `catalog.sanitize.slices`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from fairlead.catalog.sanitize.slices import (
    SLICE_BYTES,
    TEXT_AT_ONCE,
    SlicedDocument,
    SliceTimer,
    Steps,
    boundary,
    decode,
    join_steps,
    literal_steps,
    literals,
    mentions,
)
from fairlead.catalog.sanitize.text import (
    MAX_READ_CHARACTERS,
    HiddenKind,
    HiddenText,
    clean,
    has_hiding_escape,
    inspect,
    may_hide,
    reveal_hidden,
)
from fairlead.config.secrets.masking import SECRETS, digits_and_capitals
from fairlead.config.untyped import is_list, is_object

OURS = "fairlead/"
"""Prefix of keys that only Fairlead writes into `_meta` and an error's `data`; dropped from servers."""
UNTRUSTED = "fairlead/untrusted"
"""Key of `_meta`, or of an error's `data`, with the untrusted server that sent it."""
OMITTED = "fairlead/omitted"
"""Key of an error's `data` that says what was left out of it."""
_MARKS = frozenset((UNTRUSTED, OMITTED, "fairlead/delivery", "fairlead/repaired", "fairlead/session"))
_QUOTED_MARK = b'"fairlead'
"""Beginning of a key of ours in JSON, whether its slash is escaped or not."""
_IS_KEY = re.compile(rb"\s*:")
MAX_SAMPLE_CHARACTERS = 200
"""Most characters of hidden text in a finding."""
_MAX_INSPECTED = 1000
"""Most texts whose hidden characters are counted: the exact number of more does not matter."""
PRINTED = bytes((*b"\t\n", *range(0x20, 0x7F)))
_QUIET = bytes({*PRINTED} - {*digits_and_capitals(PRINTED)})


def sample(text: str) -> str:
    """Hidden text for a finding: masked, and then cut."""
    shown = SECRETS.mask_known(text)
    if len(text) >= MAX_READ_CHARACTERS:  # there may be more, and half of a secret at the end
        shown = shown[: max(0, len(shown) - SECRETS.reach)]
    return shown if len(shown) <= MAX_SAMPLE_CHARACTERS else f"{shown[: MAX_SAMPLE_CHARACTERS - 1]}…"


ESCAPED_LETTER = re.compile(rb"\\u00[2-7]")


def is_plain(raw: bytes, *names: bytes) -> bool:
    """Whether this JSON certainly needs no sanitizing and holds no secret. A no only asks for a closer look.

    Nor may it mention these `names`, which are given with their quotes.
    """
    is_small = len(raw) <= _SMALL_BYTES
    if is_small:  # most results are, and a function call costs as much as scanning them
        if raw.rfind(_QUOTED_MARK) >= 0:
            return False  # it may be a mark that the server wrote itself
        for name in names:
            if raw.rfind(name) >= 0:
                return False
    elif mentions(raw, _QUOTED_MARK, *names):
        return False
    # Looking for one byte takes a thirtieth of the time of escapes, and mostly it is not there. In a small
    # result, `find` takes half of the time of `in`.
    if raw.find(b"\\") >= 0 and (ESCAPED_LETTER.search(raw) or has_hiding_escape(raw)):
        return False
    if not raw.isascii():
        try:
            return not may_hide(raw) and not (SECRETS.knows_any and SECRETS.may_hold(raw))
        except ValueError:
            return False
    if not SECRETS.knows_any:
        return not (raw.translate(None, PRINTED) if is_small else _has_control(raw))
    # One native pass leaves what both checks need: control characters, digits and capitals.
    looked_at = raw.translate(None, _QUIET)
    return not looked_at.translate(None, PRINTED) and not SECRETS.may_hold(raw, looked_at)


_CONTROL = tuple(bytes((code,)) for code in sorted({*range(0x80)} - {*PRINTED}))
_FEW_BYTES = 4096
_SMALL_BYTES = 2048


def _has_control(raw: bytes) -> bool:
    """Whether there is any ASCII control character other than white space."""
    if len(raw) <= _FEW_BYTES:
        return bool(raw.translate(None, PRINTED))
    # One byte is found at memory speed: all of them take half the time of a look at each character.
    for character in _CONTROL:  # noqa: SIM110 - twice as fast as a generator
        if raw.find(character) >= 0:
            return True
    return False


def is_plain_steps(raw: bytes) -> "Steps[bool]":
    """Like `is_plain`, for JSON of any size."""
    turn = SliceTimer()
    start = 0
    while start < len(raw):
        end = boundary(raw, start + SLICE_BYTES)
        # An escape, a mark or a secret may begin in one slice and end in the next.
        reach = boundary(raw, end + max(SECRETS.reach, len(_QUOTED_MARK)))
        if not is_plain(raw[start:reach]):
            return False
        start = end
        if turn.is_over():
            yield
    return True


def clean_literals_steps(raw: bytes, cleaner: "Cleaner | None" = None) -> "Steps[bytes]":
    """Sanitize and mask the strings of JSON of any size one by one, all else byte for byte.

    Returns the very same bytes where there was nothing to do. A key that is a mark of ours is put in
    brackets: only a parser could drop it.
    """
    cleaner, turn, start = cleaner or Cleaner(), SliceTimer(), 0
    made: list[bytes | memoryview] = []
    for begin, end in literals(raw):
        if turn.is_over():
            yield
        if begin < 0 or (end - begin <= SLICE_BYTES and is_plain(raw[begin:end])):
            continue
        if end - begin <= TEXT_AT_ONCE:
            text = str(decode(raw[begin:end]))
            cleaned = cleaner.text(text)
        else:
            text = yield from join_steps(SlicedDocument(raw).pieces_of(begin, end))
            cleaned = yield from cleaner.text_steps(text)
        if cleaned.startswith(OURS) and _IS_KEY.match(raw, end):
            cleaner.may_be_marked = True
            if cleaned in _MARKS:
                cleaned = f"({cleaned})"
        if cleaned != text or "\ufffd" in cleaned:  # the replacement of bytes that are no text
            made.append(memoryview(raw)[start:begin])
            made += yield from literal_steps(cleaned)
            start = end
    if not start:
        return raw
    made.append(memoryview(raw)[start:])
    yield
    return b"".join(made)


class Cleaner:
    """Sanitizes and masks one message, and counts what was hidden in it."""

    def __init__(self, opened: SlicedDocument | None = None, *, counts: bool = True) -> None:
        """Without `counts`, hidden characters are not counted, which takes a third of the time."""
        self._opened = opened
        self.found: dict[HiddenKind, HiddenText] = {}
        self.notes: list[str] = []
        self.may_be_marked = False
        """Whether a key had our prefix, in JSON that was sanitized without being parsed."""
        self._findings = 0 if counts else _MAX_INSPECTED + 1
        self._turn = SliceTimer()

    def has_long(self, raw: bytes) -> bool:
        """Whether this part of the document has placeholders of long texts."""
        return self._opened is not None and self._opened.has_any(raw)

    def text(self, text: str) -> str:
        """Sanitize and mask a short text."""
        return SECRETS.mask_known(self._clean(text))

    def _clean(self, text: str) -> str:
        if self._findings > _MAX_INSPECTED:
            return clean(text)
        cleaned = inspect(text)
        for finding in cleaned.findings:
            known = self.found.get(finding.kind)
            count = finding.count + (known.count if known else 0)
            shown = known.sample if known else sample(finding.sample)
            self.found[finding.kind] = replace(finding, count=count, sample=shown)
            self._findings += 1
        return cleaned.text

    def text_steps(self, text: str) -> "Steps[str]":
        """Sanitize and mask a text of any length."""
        if self._opened is not None and self._opened.stands_in(text):
            return (yield from self._long_steps(self._opened.pieces(text)))
        if len(text) <= TEXT_AT_ONCE:
            return self.text(text)
        return (yield from self._long_steps(_pieces(text)))

    def _long_steps(self, parts: Iterator[str]) -> "Steps[str]":
        pieces: list[str] = []
        for part in parts:
            for piece in _pieces(part):
                pieces.append(self._clean(piece))
                if self._turn.is_over():
                    yield
        whole = "".join(pieces)
        return (yield from self._mask_steps(whole)) if SECRETS.knows_any else whole

    def _mask_steps(self, text: str) -> "Steps[str]":
        """Mask a long text in windows, each with the end of the one before, where a secret may begin."""
        margin = SECRETS.reach
        pieces: list[str] = []
        carried = ""
        for start in range(0, len(text), TEXT_AT_ONCE):
            window = carried + text[start : start + TEXT_AT_ONCE]
            masked = SECRETS.mask_known(window)
            certain = max(0, len(masked) - margin)
            pieces.append(masked[:certain])
            carried = masked[certain:]
            if self._turn.is_over():
                yield
        return "".join((*pieces, carried))

    def value_steps(self, root: Any, *, media: bool = False) -> "Steps[Any]":  # noqa: ANN401 - any JSON
        """Sanitize and mask every text in a JSON value, names included, in place.

        Keys of ours are dropped from every `_meta`, and the mark of untrusted content from everything. With
        `media`, base64 is left unchanged where the protocol has it: see `_binary_members`.
        """
        if isinstance(root, str):
            return (yield from self.text_steps(root))
        exempt = {id(holder): place for holder, place in _binary_members(root)} if media else {}
        waiting: list[tuple[Any, bool]] = [(root, False)]
        while waiting:
            holder, is_meta = waiting.pop()
            if is_object(holder) and (yield from self._rename_steps(holder, is_meta=is_meta)):
                exempt.clear()  # its members may not be where clients look for them any more
            for place, item in self._members(holder):
                if isinstance(item, str):
                    is_data = place == exempt.get(id(holder))
                    holder[place] = yield from self._text_or_data_steps(item, is_data=is_data)
                elif is_object(item) or is_list(item):
                    waiting.append((item, place == "_meta"))
                if self._turn.is_over():
                    yield
        return root

    def _members(self, holder: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON value
        if is_list(holder):
            return enumerate(holder)
        return iter([*holder.items()]) if is_object(holder) else iter(())

    def _text_or_data_steps(self, text: str, *, is_data: bool) -> "Steps[str]":
        if not is_data:
            return (yield from self.text_steps(text))
        if self._opened is not None and self._opened.stands_in(text):
            whole = yield from join_steps(self._opened.pieces(text))
            return (
                whole
                if (yield from _is_base64_steps(whole))
                else (yield from self._long_steps(_pieces(whole)))
            )
        return text if (yield from _is_base64_steps(text)) else (yield from self.text_steps(text))

    def _rename_steps(self, holder: dict[str, Any], *, is_meta: bool) -> "Steps[bool]":
        """Sanitize the names of an object's members, in place and in order, and drop marks of ours.

        Returns whether names collided, so that even clean ones may have changed.
        """
        names: dict[str, str] = {}
        for name in [*holder]:
            cleaned = self._name(name)
            if cleaned == UNTRUSTED or (is_meta and cleaned.startswith(OURS)):
                del holder[name]
            else:
                names[name] = cleaned
            if self._turn.is_over():
                yield
        if all(name == cleaned for name, cleaned in names.items()):
            return False
        fall_together = len(set(names.values())) < len(names)
        if fall_together:
            names = _disambiguate_names(names)
        members = [(names[name], item) for name, item in holder.items()]
        holder.clear()
        holder.update(members)
        return fall_together

    def _name(self, name: str) -> str:
        if self._opened is not None and self._opened.stands_in(name):
            return f"(a name of {self._opened.size(name):,} bytes)"
        return self.text(name)


def _binary_members(root: object) -> Iterator[tuple[dict[str, Any], str]]:
    """Objects with binary data where the protocol has it, each with the name of that member.

    `root` is a list of content blocks, or an answer with `content`, `contents` or `messages`. These are
    binary for every client; anything else may be repaired to text (`catalog.repair.content`), and is masked.
    """
    answer = root if is_object(root) else {"content": root}
    for part in _items(answer.get("contents")):
        if _is_binary_part(part):
            yield part, "blob"
    holders = (answer, *(each for each in _items(answer.get("messages")) if is_object(each)))
    for holder in holders:
        content: object = holder.get("content")
        for block in [content] if is_object(content) else _items(content):
            match block:
                case {"type": "image" | "audio" as kind, "data": str(), "mimeType": str(media_type)}:
                    if media_type.startswith(f"{kind}/"):
                        yield block, "data"
                case {"type": "resource", "resource": resource} if _is_binary_part(resource):
                    yield resource, "blob"
                case _:
                    pass


def _is_binary_part(part: Any) -> TypeGuard[dict[str, Any]]:  # noqa: ANN401 - any JSON value
    return is_object(part) and isinstance(part.get("blob"), str) and isinstance(part.get("uri"), str)


def _items(value: object) -> list[Any]:
    return value if is_list(value) else []


def _disambiguate_names(names: Mapping[str, str]) -> dict[str, str]:
    """Distinguish names that differ only in hidden characters: by those if few, else by number."""
    if sum(map(len, names)) > _MAX_SHOWN_NAMES:
        return _number_names(names)
    visible = {name: SECRETS.mask_known(reveal_hidden(name)) for name in names}
    return visible if len(set(visible.values())) == len(visible) else _number_names(visible)


_MAX_SHOWN_NAMES = 4096
_BASE64_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"


def _is_base64_steps(text: str) -> "Steps[bool]":
    """Whether a text is nothing but base64. Other text in its place is masked like any text."""
    size = 0
    for start in range(0, len(text), TEXT_AT_ONCE):
        piece = text[start : start + TEXT_AT_ONCE]
        if not piece.isascii():
            return False
        other = piece.encode().translate(None, _BASE64_CHARACTERS)
        is_last = start + TEXT_AT_ONCE >= len(text)
        if not set(other) <= set(b"\r\n=" if is_last else b"\r\n"):
            return False
        size += len(piece) - len(other)
        yield
    # A single character is no byte: clients would get all of it as text.
    return size % 4 != 1 and text.rstrip("=\r\n").find("=") < 0


def _number_names(names: Mapping[str, str]) -> dict[str, str]:
    return {name: f"{shown} ({place})" for place, (name, shown) in enumerate(names.items(), 1)}


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = _breath(text, start + TEXT_AT_ONCE)
        yield text[start:end]
        start = end


def _breath(text: str, place: int) -> int:
    """Place to cut a long text: after a line if one ends nearby, so that no escape sequence is torn."""
    if place >= len(text):
        return len(text)
    line = text.rfind("\n", place - 2048, place)
    return place if line < 0 else line + 1

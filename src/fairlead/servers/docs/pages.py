"""Title and text of a response body: HTML, PDF, Markdown and plain text, parsed in a limited process.

A page of a few megabytes, or a PDF of a few kilobytes, can keep a parser busy for minutes, have it take
gigabytes, or hold the interpreter, in a single call that nothing interrupts. So large bodies are parsed in a
child process with limits of memory and CPU time, a deadline, no environment, and bounded output.
"""

import codecs
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final, Literal

import msgspec

from fairlead.config.command_lines import extra_hint
from fairlead.servers.docs.html import parse_html
from fairlead.servers.docs.markdown import to_markdown

MAX_MEMORY: Final = 1024 * 1024 * 1024
"""Address space of a child."""


def run_child(module: str, *arguments: str, given: bytes, seconds: float, max_output: int) -> bytes | None:
    """Run a module of this package as a child process, and wait for it: for use in a thread.

    Args:
        module: Its whole name. It has to call `limit_child` first.
        arguments: Its command line.
        given: What it reads from stdin.
        seconds: How long it may take.
        max_output: How much of its stdout is read.

    Returns:
        What it wrote; None where it failed, wrote too much or took too long.
    """
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-I", "-m", module, *arguments],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
            start_new_session=True,
        )
    deadline = threading.Timer(seconds, child.kill)
    deadline.start()
    assert child.stdout is not None
    try:
        output = child.stdout.read(max_output + 1)
        if len(output) > max_output:
            return None
        return output if child.wait() == 0 else None
    finally:
        deadline.cancel()
        child.kill()
        child.wait()
        child.stdout.close()


def limit_child(seconds: float) -> None:
    """Limit this process, where the system can: memory, processor time, and no file can be written."""
    try:
        import resource
    except ImportError:
        return  # on Windows the deadline alone ends it
    limits = {
        resource.RLIMIT_AS: MAX_MEMORY,
        resource.RLIMIT_CPU: int(seconds) + 1,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        try:
            resource.setrlimit(kind, (limit, limit))
        except (OSError, ValueError):
            continue  # the limit is lower already, or macOS does not set this one


MAX_INPUT = 5 * 1024 * 1024
"""How much of a body is looked at."""
MAX_TEXT = 5_000_000
MAX_HTML_HERE = 512 * 1024
"""A larger page is read in a process of its own."""
PAGE_SECONDS = 10.0
"""After which no further page of a PDF is begun."""
GRACE_SECONDS = 5.0
"""How much longer a process may take that reads a page."""

Kind = Literal["html", "text", "pdf", "binary", "unknown"]

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.+|.+\+(?:json|xml|yaml)"
    r"|application/(?:.*[.-])?(?:ecmascript|graphql|javascript|json|jsonl|ndjson|sh|sql|tex|toml|xml|yaml)"
)
_UNKNOWN = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown"})
_HTML_BEGINNING = re.compile(rb"\s*(?:<!doctype html|<html|<head)", re.I)

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.I)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.I)
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# Python also calls things an encoding that have no business in a page, and some that take for ever.
_ENCODING = re.compile(
    r"ascii|big5\w*|cp\d+|euc_\w+|gb\w+|hz|iso2022_\w+|iso8859-\d+|johab|koi8-\w|mac-\w+|shift_jis\w*|tis-620"
    r"|utf-(?:8|8-sig|16|16-le|16-be|32)"
)
_WIDENED = {"ascii": "cp1252", "iso8859-1": "cp1252"}
"""What pages call by these names is what browsers read."""

_PDF_TROUBLE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadPage:
    """Content of a page. `whole` is false where there is more; `note` says what the text lacks."""

    text: str = ""
    title: str | None = None
    whole: bool = True
    note: str | None = None


def media_type(content_type: str) -> str:
    """Return the type in a `Content-Type`, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def kind_of(content_type: str) -> Kind:
    """Return the kind of parser for a body, by its media type."""
    named = media_type(content_type)
    if named in _HTML:
        return "html"
    if named == "application/pdf":
        return "pdf"
    if named in _UNKNOWN:
        return "unknown"
    return "text" if _TEXT.fullmatch(named) else "binary"


def read_page(body: bytes, content_type: str, *, url: str, whole: bool = True) -> ReadPage:
    """Parse a body; `whole` is whether all of it is there. It takes long: for use in a thread.

    A PDF, and a large page, is read in a process of its own.
    """
    kind = kind_of(content_type)
    if kind == "unknown":
        kind = _guess(body)
    if (kind != "pdf" or not whole) and (kind != "html" or len(body) <= MAX_HTML_HERE):
        return _read(kind, body, content_type, url, whole=whole)
    if kind == "pdf" and find_spec("pypdf") is None:
        note = f"reading PDFs needs the package `pypdf`: {extra_hint('pdf')}"
        return ReadPage(whole=False, note=note)
    # What a site says may be of any length; a command line cannot be, nor can it hold a NUL.
    arguments = (kind, content_type[:500].replace("\0", ""), url[:8000].replace("\0", ""))
    arguments = (*arguments, "whole" if whole else "part")
    limits: dict[str, Any] = {"seconds": PAGE_SECONDS + GRACE_SECONDS, "max_output": 6 * MAX_TEXT + 65_536}
    output = run_child("fairlead.servers.docs.pages", str(PAGE_SECONDS), *arguments, given=body, **limits)
    if output is None:
        return ReadPage(whole=False, note=f"the page cannot be read in {PAGE_SECONDS:g} s")
    return msgspec.json.decode(output, type=ReadPage)


def _main(seconds: str, kind: Kind, content_type: str, url: str, whole: str) -> None:
    """Read the page on stdin, and write it to stdout: in the child process."""
    limit_child(float(seconds) + GRACE_SECONDS)
    logging.disable()
    try:
        body = sys.stdin.buffer.read()
        if kind == "pdf":
            page = _read_pdf(body, time.monotonic() + float(seconds))
        else:
            page = _read(kind, body, content_type, url, whole=whole == "whole")
    except (MemoryError, RecursionError) as exc:
        page = ReadPage(whole=False, note=f"the page cannot be read: {type(exc).__name__}")
    sys.stdout.buffer.write(msgspec.json.encode(page))


def _read(kind: Kind, body: bytes, content_type: str, url: str, *, whole: bool) -> ReadPage:
    if kind == "html":
        return _read_html(decode(body, content_type, is_html=True), url, whole=whole)
    if kind == "text":
        return ReadPage(text=decode(body, content_type), whole=whole)
    if kind == "pdf":
        return ReadPage(whole=False, note=f"a PDF of more than {MAX_INPUT >> 20} MiB is not read")
    return ReadPage(note=f"{media_type(content_type) or 'what is there'} holds no text")


def _guess(body: bytes) -> Kind:
    if body.startswith(b"%PDF-"):
        return "pdf"
    if _HTML_BEGINNING.match(body):
        return "html"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body[:4096])
    except UnicodeDecodeError:
        return "binary"
    return "binary" if b"\0" in body[:4096] else "text"


def decode(body: bytes, content_type: str, *, is_html: bool = False) -> str:
    """Decode a body: by its byte order mark, its declared charset, as UTF-8, else as browsers do."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    charset = _CHARSET.search(content_type)
    name = charset[1] if charset else None
    if name is None and is_html and (meta := _META_CHARSET.search(body, 0, 1024)):
        name = meta[1].decode()
    encoding = _encoding(name or "")
    if encoding is not None:
        return body.decode(encoding, "replace")
    try:
        # What was cut off may end in the middle of a character.
        return codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _encoding(name: str) -> str | None:
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return None
    return _WIDENED.get(known, known) if _ENCODING.fullmatch(known) else None


def _read_html(text: str, url: str, *, whole: bool) -> ReadPage:
    html = parse_html(text, url)
    markdown, written = to_markdown(html.main, html.base, MAX_TEXT)
    whole = whole and html.whole and written
    note = None if markdown else "the page holds no text; it may be made by a program in the browser"
    return ReadPage(text=markdown, title=html.title, whole=whole, note=note)


def _read_pdf(body: bytes, until: float) -> ReadPage:
    import pypdf
    from pypdf.errors import PyPdfError

    texts: list[str] = []
    try:
        reader = pypdf.PdfReader(BytesIO(body))
        title = _sound(reader.metadata.title or "") if reader.metadata else ""
        many = len(reader.pages)
        for page in reader.pages:
            if time.monotonic() > until or sum(map(len, texts)) > MAX_TEXT:
                break
            texts.append(page.extract_text())
    except (PyPdfError, zlib.error, *_PDF_TROUBLE) as exc:
        return ReadPage(note=f"the PDF cannot be read: {type(exc).__name__}")
    text = _sound("\n\n".join(texts).strip()[:MAX_TEXT])
    complete = len(texts) == many
    note = None if complete else f"only the first {len(texts)} of {many} pages were read"
    return ReadPage(
        text=text, title=title or None, whole=complete, note=note if text else "the PDF holds no text"
    )


def _sound(text: str) -> str:
    """Return a text without lone surrogates, which cannot be encoded."""
    return text.encode(errors="replace").decode()


if __name__ == "__main__":
    _main(*sys.argv[1:])  # pyright: ignore[reportArgumentType] - `read_page` gives them

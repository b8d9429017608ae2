"""Bodies of every kind, and what they say."""

import logging
import resource
import sys
import time
import zlib
from io import BytesIO

import anyio
import pypdf
import pytest
from anyio import to_thread
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from fairlead.servers.docs import pages
from fairlead.servers.docs.pages import ReadPage, decode, kind_of, read_page
from fairlead.testing import watch_loop

URL = "https://docs.test/guide/loops.html"


def read(body: bytes | str, content_type: str = "text/html; charset=utf-8", **rest: bool) -> ReadPage:
    return read_page(body.encode() if isinstance(body, str) else body, content_type, url=URL, **rest)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html", "html"),
        ("TEXT/HTML;charset=x", "html"),
        ("application/xhtml+xml", "html"),
        ("text/plain", "text"),
        ("text/markdown; charset=utf-8", "text"),
        ("application/json", "text"),
        ("application/ld+json", "text"),
        ("application/vnd.api+json", "text"),
        ("application/x-yaml", "text"),
        ("application/xml", "text"),
        ("image/svg+xml", "text"),
        ("application/x-javascript", "text"),
        ("application/pdf", "pdf"),
        ("application/octet-stream", "unknown"),
        ("", "unknown"),
        ("image/png", "binary"),
        ("application/zip", "binary"),
        ("application/vnd.ms-excel", "binary"),
        ("nonsense", "binary"),
    ],
)
def test_a_kind_is_told_by_the_type(content_type: str, kind: str) -> None:
    assert kind_of(content_type) == kind


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"caf\xc3\xa9", "text/plain", "caf\u00e9"),
        (b"caf\xe9", "text/plain; charset=iso-8859-1", "caf\u00e9"),
        (b"\x80 5", "text/plain; charset=latin1", "\u20ac 5"),
        (b"\x80 5", "text/plain", "\u20ac 5"),
        (b"\xef\xbb\xbfcaf\xc3\xa9", "text/plain; charset=latin1", "caf\u00e9"),
        ("caf\u00e9".encode("utf-16"), "text/plain", "caf\u00e9"),
        ("\u65e5\u672c".encode("shift_jis"), 'text/plain; charset="Shift_JIS"', "\u65e5\u672c"),
        (b"caf\xc3\xa9", "text/plain; charset=nonsense", "caf\u00e9"),
        (b"+AGE-", "text/plain; charset=utf-7", "+AGE-"),
        (b"68", "text/plain; charset=hex", "68"),
        (b"caf\xc3", "text/plain", "caf"),
        (b"caf\xff", "text/plain; charset=utf-8", "caf\ufffd"),
    ],
)
def test_text_is_decoded_as_it_is_meant(body: bytes, content_type: str, text: str) -> None:
    assert decode(body, content_type) == text


def test_a_page_may_say_itself_how_it_is_encoded() -> None:
    body = b"<meta charset='windows-1251'><p>\xcf\xf0\xe8\xe2\xe5\xf2"
    assert read(body, "text/html").text == "\u041f\u0440\u0438\u0432\u0435\u0442"
    assert read(body, "text/html; charset=iso-8859-5").text != "\u041f\u0440\u0438\u0432\u0435\u0442"


@pytest.mark.parametrize(
    ("body", "text", "note"),
    [
        (b" <!DOCTYPE html><h1>A page", "# A page", None),
        (b"plain words", "plain words", None),
        (b"", "", None),
        (b"\x00\x01", "", "holds no text"),
        (b"\x89PNG\xff", "", "holds no text"),
    ],
)
def test_what_is_said_to_be_anything_is_looked_at(body: bytes, text: str, note: str | None) -> None:
    page = read(body, "application/octet-stream")
    assert page.text == text
    assert (note or "") in (page.note or "")


def test_a_page_without_words_says_so() -> None:
    page = read("<title>App</title><div id=root></div><script>start()</script>")
    assert (page.text, page.title) == ("", "App")
    assert "browser" in (page.note or "")


def test_a_page_that_was_cut_is_read_as_far_as_it_goes() -> None:
    page = read("<main><p>one<p>two <a href='x", whole=False)
    assert (page.text, page.whole) == ("one\n\ntwo", False)


def a_pdf(*texts: str, title: str | None = None, password: str | None = None) -> bytes:
    writer = pypdf.PdfWriter()
    for text in texts:
        page = writer.add_blank_page(300, 300)
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = stream
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    written = BytesIO()
    writer.write(written)
    return written.getvalue()


@pytest.mark.parametrize("content_type", ["application/pdf", "application/octet-stream"])
def test_a_pdf_is_read_page_by_page(content_type: str) -> None:
    page = read(a_pdf("first words", "second words", title="A paper"), content_type)
    assert (page.text, page.title, page.whole) == ("first words\n\nsecond words", "A paper", True)


def test_a_pdf_that_takes_too_long_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_SECONDS", -1.0)
    page = read(a_pdf("one", "two"), "application/pdf")
    assert (page.text, page.whole, page.note) == ("", False, "the PDF holds no text")


def test_without_its_extra_a_pdf_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    page = read(a_pdf("words"), "application/pdf")
    assert "fairlead[pdf]" in (page.note or "")
    assert not page.whole


def a_bomb() -> bytes:
    """Make a PDF of a few hundred kilobytes whose one page unpacks to hundreds of megabytes."""
    stream = zlib.compress(b"BT (a) Tj ET " * 20_000_000, 9)
    parts = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"]
    parts.append(b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>")
    parts.append(b"<< /Length %d /Filter /FlateDecode >>stream\n%b\nendstream" % (len(stream), stream))
    made, places = b"%PDF-1.4\n", list[int]()
    for number, part in enumerate(parts, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(made)
    made += b"xref\n0 5\n0000000000 65535 f \n" + table
    return made + b"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % start


@pytest.mark.requirement("HARD-68")
async def test_a_pdf_that_is_a_bomb_costs_a_bounded_time_and_nothing_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "PAGE_SECONDS", 1.0)
    monkeypatch.setattr(pages, "GRACE_SECONDS", 2.0)
    bomb = a_bomb()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with anyio.fail_after(30), watch_loop():
        page = await to_thread.run_sync(read, bomb, "application/pdf")
    assert page.text == ""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


HUGE_PAGES = {
    "paragraphs": b"<p>a</p>" * 600_000,
    "nested headings": b"<h1>" * 1_200_000,
    "nested divs": b"<div>" * 1_000_000,
    "cells": b"<table>" + b"<tr><td>a<td>b" * 350_000,
    "links": b"<a href=x>y</a>" * 330_000,
    "hidden": b"<span style='display:none'>a</span>" * 140_000,
    "nothing but <": b"<" * 5_000_000,
    "attributes": b"<p " + b" ".join(b"a%d=1" % number for number in range(400_000)) + b">x</p>",
    "lists": b"<ul><li>" * 600_000,
    "entities": b"&amp;" * 1_000_000,
}


@pytest.mark.requirement("HARD-68")
@pytest.mark.parametrize("shape", HUGE_PAGES)
async def test_a_huge_page_holds_no_loop_and_takes_a_bounded_time(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_SECONDS", 1.0)
    monkeypatch.setattr(pages, "GRACE_SECONDS", 2.0)
    with anyio.fail_after(30), watch_loop():
        page = await to_thread.run_sync(read, b"<html><body>" + HUGE_PAGES[shape], "text/html")
    assert page.text or page.note


@pytest.mark.parametrize(
    "body", [b"%PDF-1.7 nonsense", b"", a_pdf("secret", password="word"), a_pdf("x")[:200]]
)
def test_a_pdf_that_cannot_be_read_says_so(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    page = read(body, "application/pdf")
    assert page.text == ""
    assert "PDF" in (page.note or "")


def test_half_a_pdf_is_not_tried() -> None:
    assert "not read" in (read(b"%PDF-1.7", "application/pdf", whole=False).note or "")


@pytest.mark.requirement("HARD-60")
@pytest.mark.parametrize(
    "body",
    [
        b"<div " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">",
        b"<b>" * 200_000 + b"</i>" * 200_000,
        b"<p>a<b>b" * 100_000,
        b"<ul><li>" * 90 + b"x<br>" * 100_000,
        b"<table><tr><td>" * 100_000,
        b"<table>" + b"<tr><td>a<td>b" * 20_000,
        b"<a href=x>y</a>" * 50_000,
        b"<header>" * 150 + b"<p>x" * 50_000 + b"<h1>y",
        b"<code>" * 150 + b"x " * 200_000,
        b"<pre>" + b"```` " * 200_000,
        b"<!--" * 500_000,
        b"<" * 1_000_000,
        b"&#x41;" * 200_000,
        b"\0" * 1_000_000,
    ],
    ids=lambda body: body[:20].decode(),
)
def test_a_page_made_to_hurt_does_not(body: bytes) -> None:
    began = time.process_time()
    page = read(body)
    assert time.process_time() - began < 20
    assert len(page.text) <= pages.MAX_TEXT

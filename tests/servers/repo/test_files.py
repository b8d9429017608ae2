"""Reading files, as a model asks for it."""

import base64
import os
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ImageContent
from pydantic import ValidationError

from fairlead.errors import ToolFailed
from fairlead.servers.framework.tools import AnyTool, Reply
from fairlead.servers.repo import files
from fairlead.servers.repo.files import ReadFileOutput, file_tools
from fairlead.servers.repo.folders import Confinement
from tests.servers.calling import call, texts

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


Read = Callable[..., Awaitable[Reply[ReadFileOutput]]]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    return repo


@pytest.fixture(params=[True, False], ids=["strict", "checked"])
def tools(repo: Path, request: pytest.FixtureRequest) -> Generator[tuple[AnyTool, ...]]:
    with Confinement([repo], is_strict=request.param) as confinement:
        yield file_tools(confinement)


@pytest.fixture
def read(tools: tuple[AnyTool, ...]) -> Read:
    async def read(path: str, **rest: Any) -> Reply[ReadFileOutput]:
        return await call(tools[0], {"path": path, **rest})

    return read


# ── what the tools say of themselves ──


def test_the_tools_read_and_nothing_else(tools: tuple[AnyTool, ...]) -> None:
    assert [tool.name for tool in tools] == ["repo.readFile", "repo.listDir"]
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.open_world_hint is False
        assert "Paths are relative" in tool.description


def test_names_are_in_camel_case_on_the_wire(tools: tuple[AnyTool, ...]) -> None:
    read, list_dir = (list(tool.input.model_json_schema()["properties"]) for tool in tools)
    assert read == ["path", "maxBytes", "offset", "lineRange", "withVersion"]
    assert list_dir == ["path", "maxEntries", "recursive", "depth"]


# ── readFile: text ──


async def test_a_file_is_its_text(repo: Path, read: Read) -> None:
    (repo / "a.txt").write_text("höhe\n")
    reply = await read("a.txt")
    assert reply.output == ReadFileOutput(
        path="a.txt", content="höhe\n", truncated=False, total_bytes=6, encoding="utf-8"
    )
    assert texts(reply) == ["höhe\n"]


async def test_an_empty_file_still_has_something_to_show(repo: Path, read: Read) -> None:
    (repo / "empty").touch()
    reply = await read("empty")
    assert (reply.output.content, reply.output.truncated) == ("", False)
    assert texts(reply) == ["(there is no text here)"]
    assert (await read("empty", lineRange=[1])).output.content == ""


async def test_a_long_file_is_cut_and_says_where_to_go_on(repo: Path, read: Read) -> None:
    (repo / "long").write_text("0123456789")
    reply = await read("long", maxBytes=4)
    assert (reply.output.content, reply.output.truncated, reply.output.next_offset) == ("0123", True, 4)
    assert texts(reply) == ["0123", "(cut: the file has 10 bytes; go on with offset 4)"]
    rest = await read("long", offset=4, maxBytes=6)
    assert (rest.output.content, rest.output.truncated, rest.output.next_offset) == ("456789", False, None)


@pytest.mark.requirement("HARD-55")
async def test_how_much_to_read_is_bounded_both_ways(repo: Path, read: Read) -> None:
    (repo / "huge").write_text("a" * 3_000_000)
    assert len((await read("huge")).output.content) == 200_000
    reply = await read("huge", maxBytes=1e12)
    assert (len(reply.output.content), reply.output.truncated) == (2_000_000, True)
    for wrong in (-1, 0):
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            await read("huge", maxBytes=wrong)


@pytest.mark.blocks_loop  # the watchdog reads files, too
async def test_nothing_is_read_from_the_disk_that_is_not_asked_for(
    repo: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "huge").write_text("line\n" * 1_000_000)
    counted = 0
    system_read = os.read

    def counting(fd: int, count: int) -> bytes:
        nonlocal counted
        data = system_read(fd, count)
        counted += len(data)
        return data

    monkeypatch.setattr(files.os, "read", counting)
    await read("huge", offset=4_000_000, maxBytes=50_000)
    assert counted == 8192 + 50_000
    counted = 0
    await read("huge", lineRange=[10, 20])
    assert counted <= 8192 + 65_536


async def test_a_file_that_ends_early_ends_early(repo: Path, read: Read) -> None:
    (repo / "a.txt").write_text("abc")
    assert (await read("a.txt", offset=3)).output.content == ""
    with pytest.raises(ToolFailed, match=r"offset 4 is past the end: `a\.txt` has 3 bytes"):
        await read("a.txt", offset=4)


# ── readFile: lines ──


@pytest.mark.parametrize(
    ("lines", "content"),
    [
        ([1, 1], "one\n"),
        ([2, 3], "two\nthree"),
        ([2], "two\nthree"),
        ([2, None], "two\nthree"),
        ([1, 100], "one\ntwo\nthree"),
        (None, "one\ntwo\nthree"),
    ],
)
async def test_lines_are_counted_from_one_and_both_ends_are_included(
    repo: Path, read: Read, lines: list[int | None] | None, content: str
) -> None:
    (repo / "a.txt").write_text("one\ntwo\nthree")
    reply = await read("a.txt", lineRange=lines)
    assert (reply.output.content, reply.output.truncated) == (content, False)


async def test_lines_that_are_not_there_are_an_error_that_says_how_many_are(repo: Path, read: Read) -> None:
    (repo / "open").write_text("one\ntwo")
    (repo / "closed").write_text("one\n")
    with pytest.raises(ToolFailed, match="`open` has only 2 lines"):
        await read("open", lineRange=[3, 4])
    for first in (2, 3):
        with pytest.raises(ToolFailed, match=r"`closed` has only 1 line$"):
            await read("closed", lineRange=[first])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"lineRange": [0, 1]}, "greater than or equal to 1"),
        ({"lineRange": []}, "at least 1 item"),
        ({"lineRange": [1, 2, 3]}, "at most 2 items"),
        ({"lineRange": [3, 2]}, "lineRange ends before it begins"),
        ({"lineRange": [1, 2], "offset": 5}, "either offset or lineRange"),
        ({"lineRange": "1-2"}, "valid list"),
        ({"offset": -1}, "greater than or equal to 0"),
        ({"encoding": "utf-8"}, "Extra inputs"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    repo: Path, read: Read, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        await read("a.txt", **arguments)


async def test_too_many_lines_are_cut_and_can_be_gone_on_with(repo: Path, read: Read) -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))
    (repo / "log").write_text(text)
    reply = await read("log", lineRange=[60_001, 90_000], maxBytes=100)
    assert reply.output.truncated
    assert reply.output.content.startswith("line 60000\n")
    end = text.index("line 60000\n") + 100
    assert reply.output.next_offset == end
    assert (await read("log", offset=end, maxBytes=20)).output.content == text[end : end + 20]


async def test_lines_are_not_looked_for_without_end(
    repo: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_FARTHEST_LINE", 100_000)
    (repo / "log").write_text("line\n" * 50_000)
    assert (await read("log", lineRange=[10_000, 10_000])).output.content == "line\n"
    with pytest.raises(ToolFailed, match="too far down"):
        await read("log", lineRange=[49_000])


@given(
    lines=st.lists(st.text(alphabet="ab é\r", max_size=6), max_size=12),
    first=st.integers(1, 14),
    count=st.integers(1, 14),
    mark=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_any_range_of_lines_is_what_splitting_the_text_gives(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], first: int, count: int, mark: str
) -> None:
    text = "\n".join(lines)
    folder = tmp_path_factory.getbasetemp() / "lines"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_bytes(text.encode(mark))
    expected = "".join(_lines(text)[first - 1 :][:count])
    with Confinement([folder]) as confinement, confinement.file("file") as file:
        head = files.read_head(file)
        if first > max(1, len(_lines(text))):
            with pytest.raises(ToolFailed, match="has only"):
                files.read_lines(file, head, first=first, last=first + count - 1, max_bytes=1000)
        else:
            found = files.read_lines(file, head, first=first, last=first + count - 1, max_bytes=1000)
            assert found.text == expected


def _lines(text: str) -> list[str]:
    """The lines of a text, with their breaks, of which `\\n` is the only one."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [line for line in text.split("\n")[-1:] if line]


# ── readFile: encodings ──


@pytest.mark.parametrize(
    ("data", "content", "encoding"),
    [
        (b"plain", "plain", "utf-8"),
        ("\ufeffmärk".encode(), "märk", "utf-8-sig"),
        ("märk\n".encode("utf-16"), "märk\n", "utf-16-le"),
        (b"\xfe\xff" + "märk 🌊".encode("utf-16-be"), "märk 🌊", "utf-16-be"),
        ("märk".encode("utf-32"), "märk", "utf-32-le"),
        ("caf\u00e9 \u00bd".encode("latin-1"), "café ½", "latin-1"),
        ("日本語日本語".encode() + b"\xff", "日本語日本語\ufffd", "utf-8-replaced"),
    ],
    ids=ascii,
)
async def test_the_encoding_is_told_from_the_file(
    repo: Path, read: Read, data: bytes, content: str, encoding: str
) -> None:
    (repo / "file").write_bytes(data)
    reply = await read("file")
    assert (reply.output.content, reply.output.encoding, reply.output.truncated) == (content, encoding, False)
    by_lines = await read("file", lineRange=[1])
    assert (by_lines.output.content, by_lines.output.encoding) == (content, encoding)
    is_guess = encoding in {"latin-1", "utf-8-replaced"}
    assert any("not all of this is UTF-8" in text for text in texts(reply)) is is_guess


@pytest.mark.parametrize("mark", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("max_bytes", [1, 2, 3, 5, 7])
async def test_a_text_read_in_parts_is_the_whole_text(
    repo: Path, read: Read, mark: str, max_bytes: int
) -> None:
    text = "aé日🌊\n" * 3
    (repo / "file").write_bytes(text.encode(mark))
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        output = (await read("file", offset=offset, maxBytes=max_bytes)).output
        parts.append(output.content)
        assert output.next_offset is None or output.next_offset > offset
        offset = output.next_offset
    assert "".join(parts) == text


async def test_an_offset_inside_a_character_begins_with_the_next_one(repo: Path, read: Read) -> None:
    (repo / "file").write_text("日本")
    assert [(await read("file", offset=offset)).output.content for offset in (1, 2, 3)] == ["本", "本", "本"]


async def test_a_line_break_of_two_bytes_is_a_line_break(repo: Path, read: Read) -> None:
    (repo / "file").write_bytes("一\n二\n\u0a0a\n".encode("utf-16"))
    assert (await read("file", lineRange=[2, 3])).output.content == "二\n\u0a0a\n"
    cut = (await read("file", lineRange=[1], maxBytes=4)).output
    assert (cut.content, cut.truncated, cut.next_offset) == ("一\n", True, None)


# ── readFile: what is no text ──


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("tool.bin", b"\x7fELF\0\0", "(a binary file: application/octet-stream, 6 bytes)"),
        ("page.pdf", b"%PDF-1.7\n", "(a binary file: application/pdf, 9 bytes)"),
        ("odd.zip", b"PK\x03\x04abc", "(a binary file: application/zip, 7 bytes)"),
        ("wide.txt", b"\xff\xfea\0\0\0", "(a binary file: text/plain, 6 bytes)"),
    ],
)
async def test_a_binary_file_is_told_in_words(
    repo: Path, read: Read, name: str, data: bytes, told: str
) -> None:
    (repo / name).write_bytes(data)
    reply = await read(name)
    assert reply.output == ReadFileOutput(
        path=name, content="", truncated=False, total_bytes=len(data), encoding="binary"
    )
    assert texts(reply) == [told]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a rest", "image/gif"),
        (b"RIFF\n\n\n\nWEBPVP8 ", "image/webp"),
    ],
)
async def test_an_image_is_shown_whatever_its_name(repo: Path, read: Read, data: bytes, kind: str) -> None:
    (repo / "picture.txt").write_bytes(data)
    reply = await read("picture.txt", maxBytes=3)
    assert texts(reply) == [f"(a binary file: {kind}, {len(data)} bytes)"]
    image = reply.content[1]
    assert isinstance(image, ImageContent)
    assert (base64.b64decode(image.data), image.mime_type) == (data, kind)


async def test_an_image_that_is_too_large_is_told_in_words(repo: Path, read: Read) -> None:
    (repo / "huge.png").write_bytes(PNG.ljust(5_000_001, b"\0"))
    reply = await read("huge.png")
    assert texts(reply) == ["(a binary file: image/png, 5000001 bytes)"]
    assert len(reply.content) == 1


@pytest.mark.requirement("HARD-55")
async def test_what_is_refused_stays_refused_through_the_tools(
    repo: Path, tools: tuple[AnyTool, ...]
) -> None:
    (repo.parent / "secret").write_text("secret")
    (repo / "link").symlink_to(repo.parent)
    for path in ("../secret", "link/secret", "/etc/passwd"):
        for tool in tools:
            with pytest.raises(ToolFailed):
                await call(tool, {"path": path})

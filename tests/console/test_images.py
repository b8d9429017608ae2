"""Images in a terminal: what they are, who can show them, and that nothing else gets through with them."""

import base64
import re
import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.console.render import MAX_DRAWN_BYTES, Graphics, ImageInfo, drawing_of, graphics_of, picture_of


def png(width: int, height: int, rest: bytes = b"") -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checked = header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + checked + rest


def jpeg(width: int, height: int, *, before: int = 3) -> bytes:
    segment = b"\xff\xe1" + struct.pack(">H", 2000) + bytes(1998)
    frame = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + bytes(10)
    return b"\xff\xd8" + segment * before + frame


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def webp(kind: bytes, header: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 100) + b"WEBP" + kind + struct.pack("<I", 50) + header + bytes(20)


LOSSY = webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480 | 0x4000))
LOSSLESS = webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14))
EXTENDED = webp(b"VP8X", bytes(4) + struct.pack("<HBHB", 639, 0, 479, 0))


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (png(640, 480), "image/png"),
        (jpeg(640, 480), "image/jpeg"),
        (gif(640, 480), "image/gif"),
        (LOSSY, "image/webp"),
        (LOSSLESS, "image/webp"),
        (EXTENDED, "image/webp"),
    ],
)
def test_an_image_is_what_its_first_bytes_say_whatever_the_server_says(
    content: bytes, media_type: str
) -> None:
    picture = picture_of(content, "text/html")
    assert picture == ImageInfo(media_type=media_type, size=len(content), pixels=(640, 480))
    assert str(picture) == f"{media_type}, 640 by 480 pixels, {len(content):,} bytes"


@pytest.mark.parametrize("content", [png(640, 480), jpeg(640, 480), gif(640, 480), LOSSY, LOSSLESS, EXTENDED])
def test_an_image_that_is_cut_off_has_no_size(content: bytes) -> None:
    assert picture_of(content[:9], "image/png").pixels is None


def test_a_webp_of_an_unknown_kind_has_no_size() -> None:
    assert picture_of(webp(b"VP9X", b""), "image/webp") == ImageInfo(media_type="image/webp", size=40)


def test_a_jpeg_is_searched_only_so_far() -> None:
    assert picture_of(jpeg(640, 480, before=300), "image/jpeg").pixels is None
    assert picture_of(b"\xff\xd8\xff\xe0" + bytes(5000), "image/jpeg").pixels is None


@given(
    st.binary(max_size=200), st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF", b""])
)
def test_any_bytes_at_all_can_be_looked_at(content: bytes, beginning: bytes) -> None:
    assert str(picture_of(beginning + content, "image/png")).isprintable()


def test_what_the_server_says_of_something_unknown_is_checked_before_it_is_shown() -> None:
    assert picture_of(b"?", "image/x-odd").media_type == "image/x-odd"
    assert picture_of(b"?", "image/png\x1b]0;pwned\x07").media_type == "application/octet-stream"
    assert picture_of(b"?", None).media_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("env", "graphics"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"}, None),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "STY": "1.x"}, None),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, None),
    ],
)
def test_a_terminal_is_known_by_its_environment_and_a_multiplexer_is_none(
    env: dict[str, str], graphics: Graphics | None
) -> None:
    assert graphics_of(env) == graphics


def drawn(content: bytes, graphics: Graphics | None, *, columns: int = 100) -> str | None:
    return drawing_of(content, picture_of(content, "image/png"), graphics, columns=columns)


def test_kitty_gets_a_png_in_frames_that_hold_nothing_but_base64_and_ask_for_no_answer() -> None:
    content = png(300, 200, bytes(range(256)) * 40)
    drawing = drawn(content, "kitty")
    assert drawing is not None
    frames = re.findall(r"\x1b_G([a-zA-Z0-9=,]+);([A-Za-z0-9+/=]*)\x1b\\", drawing)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in frames) == drawing
    assert base64.b64decode("".join(data for _, data in frames)) == content
    assert frames[0][0] == "a=T,f=100,q=2,c=30,m=1"
    assert [keys for keys, _ in frames[1:]] == ["m=1"] * (len(frames) - 2) + ["m=0"]
    assert all(len(data) == 4096 for data, _ in pairwise([data for _, data in frames]))


def test_iterm_gets_its_images_in_one_frame() -> None:
    content = jpeg(2000, 500)
    drawing = drawn(content, "iterm", columns=40)
    data = base64.b64encode(content).decode()
    how = f"inline=1;size={len(content)};width=40;preserveAspectRatio=1"
    assert drawing == f"\x1b]1337;File={how}:{data}\x07"


@pytest.mark.parametrize(
    ("pixels", "columns"), [((10, 20), 1), ((1, 1), 1), ((5000, 500), 60), ((200, 4000), 2), ((400, 400), 40)]
)
def test_a_large_image_is_drawn_small_and_a_small_one_as_it_is(pixels: tuple[int, int], columns: int) -> None:
    drawing = drawn(png(*pixels), "kitty")
    assert drawing is not None
    assert f",c={columns}," in drawing


@pytest.mark.parametrize(
    "content",
    [
        png(60_000, 60_000),  # a few bytes that would have the terminal paint 3.6 billion pixels
        png(0, 100),
        png(10, 10, bytes(MAX_DRAWN_BYTES)),
        b"\x1b]0;no image at all\x07",
        b"",
    ],
)
@pytest.mark.parametrize("graphics", ["kitty", "iterm"])
def test_what_is_no_image_or_too_much_of_one_is_not_drawn(content: bytes, graphics: Graphics) -> None:
    assert drawn(content, graphics) is None


def test_what_a_terminal_does_not_take_is_not_drawn() -> None:
    assert drawn(jpeg(10, 10), "kitty") is None
    assert drawn(EXTENDED, "iterm") is None
    assert drawn(png(10, 10), None) is None

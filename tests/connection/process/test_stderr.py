import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.catalog.sanitize import gate
from fairlead.config.secrets.masking import SECRETS
from fairlead.connection.process.stderr import OutputTail, StderrLog


@pytest.mark.requirement("HARD-20")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", "plain"),
        (b"\x1b[31;1mred\x1b[0m", "red"),
        (b"\x1b]0;a new title\x07after", "after"),
        (b"\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        (b"\x1bP1;2|payload\x1b\\after", "after"),
        (b"\x1b]never ended", "never ended"),
        (b"\x1b(B\x1b=\x1bcreset", "reset"),
        (b"\r\x08\x08over\x7f\x00", "\nover"),
        ("\x9b31mC1\x9d0;title\x9c done".encode(), "31mC10;title done"),
        ("\u202egnp.exe\u200b\u2066\ufeff\U000e0041".encode(), "gnp.exe"),
        ("café".encode(), "café"),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_text_for_people_has_nothing_hidden_in_it(data: bytes, expected: str) -> None:
    assert gate.log_text(data) == expected


@given(st.binary())
def test_no_bytes_leave_a_control_character(data: bytes) -> None:
    assert not {*gate.log_text(data)} & {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {"\t", "\n"}


def test_an_escape_that_never_ends_hides_nothing() -> None:
    assert gate.log_text(b"before\x1b]hidden\nnext line") == "beforehidden\nnext line"


@pytest.mark.requirement("HARD-20")
def test_the_last_lines_are_kept_and_cut() -> None:
    tail = OutputTail()

    tail.add(b"\n".join(b"line %d" % number for number in range(1_000)))
    tail.add(b"x" * 10_000)
    tail.add(b"\r\n\n")

    assert len(tail.lines) == 100
    assert tail.lines[0] == "line 901"
    assert tail.lines[-1] == "x" * 500


@given(st.lists(st.integers(1, 20)))
def test_stderr_is_the_same_lines_however_it_is_cut(sizes: list[int]) -> None:
    log = StderrLog()
    data = b"one\ntwo\r\n\x1b[31mthree\x1b[0m\nfour"

    position = 0
    for size in sizes:
        log.feed(data[position : position + size])
        position += size
    log.feed(data[position:])
    log.close()

    assert log.tail.lines == ("one", "two", "three", "four")


@pytest.mark.requirement("HARD-20")
def test_a_line_without_end_takes_no_memory() -> None:
    log = StderrLog()

    for _ in range(1_000):
        log.feed(b"x" * 65_536)
    log.feed(b"\nnext\n")

    assert log.tail.lines == ("x" * 500, "next")


@pytest.mark.requirement("HARD-20")
def test_the_log_file_is_bounded_plain_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "server.log"
    log = StderrLog(path, max_bytes=10_000)

    for number in range(5_000):
        log.feed(b"\x1b[31mline %d\x1b[0m\n" % number)
    log.close()

    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["server.log", "server.log.1"]
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert path.read_text().endswith("line 4998\nline 4999\n")
    assert "\x1b" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_goes_on_where_the_last_run_stopped(tmp_path: Path) -> None:
    path = tmp_path / "server.log"

    for line in (b"first run\n", b"second run, no newline"):
        log = StderrLog(path)
        log.feed(line)
        log.close()

    assert path.read_text() == "first run\nsecond run, no newline\n"


def test_a_log_that_cannot_be_written_costs_nothing_but_the_log(tmp_path: Path) -> None:
    log = StderrLog(tmp_path)

    log.feed(b"still here\n")
    log.feed(b"and here\n")
    log.close()

    assert log.tail.lines == ("still here", "and here")


def test_no_half_of_a_secret_is_left_where_a_line_is_cut() -> None:
    secret = "tail-secret-Q7x"
    SECRETS.learn(secret)
    for before in range(1_980, 2_001):
        stderr = StderrLog()
        stderr.feed(b"x" * before + secret.encode()[:9])
        stderr.feed(secret.encode()[9:] + b"y" * 5_000)
        stderr.feed(b"\nnext\n")
        assert not any(secret[:6] in line for line in stderr.tail.lines)
        assert stderr.tail.lines[-1] == "next"

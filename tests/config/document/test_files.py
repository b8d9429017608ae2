import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.errors import ConfigUnreadable, ConfigUnwritable

NOBODY = 65534

KILLED_WRITERS = """
import itertools, json, os, random, signal, sys, time
from pathlib import Path
from typing import Any
from fairlead.config.document.files import hold_lock, write_atomic

path, kills = Path(sys.argv[1]), int(sys.argv[2])
texts = [json.dumps({"writer": name, "filling": name * 300_000}) for name in "ab"]
seen, left = set(), []
for round in range(kills):
    started, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        for turn in itertools.count(round):
            with hold_lock(path, timeout=60):
                write_atomic(path, texts[turn % 2])
            os.write(writing, b"x")
    os.read(started, 1)
    time.sleep(random.uniform(0, 0.015))  # the moment of death, not a wait for anything
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    os.close(started)
    os.close(writing)
    seen.add(json.loads(path.read_bytes())["writer"])
    left.append(len(os.listdir(path.parent)) - 1)
with hold_lock(path, timeout=60):
    print(json.dumps({"seen": sorted(seen), "left": left, "names": os.listdir(path.parent)}))
"""

# A limit on the size of files stands in for a full disk: the write fails half-way in the same manner.
FULL_DISK = """
import resource, sys
from pathlib import Path
from typing import Any
from fairlead.config.document.files import write_atomic

limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
try:
    write_atomic(Path(sys.argv[1]), "x" * 100_000)
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
"""


@pytest.fixture
def public_folder() -> Generator[Path]:
    """A folder that other users may enter, which pytest's own are not."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def ordinary_user() -> Generator[None]:
    """Nobody may be root in here, who may do anything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def unreadable(path: Path, **options: Any) -> ConfigUnreadable:
    with pytest.raises(ConfigUnreadable) as caught:
        read_text(path, **options)
    assert str(path) in str(caught.value)
    return caught.value


def unwritable(path: Path, text: str = "{}") -> ConfigUnwritable:
    with pytest.raises(ConfigUnwritable) as caught:
        write_atomic(path, text)
    assert str(path).replace("\0", "") in str(caught.value).replace("\0", "")
    return caught.value


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_read_as_it_is_line_ends_included(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_bytes('{"größe":\r\n1}\n'.encode())

    assert read_text(path) == '{"größe":\r\n1}\n'


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert "does not exist" in str(unreadable(tmp_path / "fairlead.json"))
    (tmp_path / "file").touch()
    error = unreadable(tmp_path / "file" / "fairlead.json")
    assert "does not exist" in str(error)
    assert error.hint == "what should be a folder on its path is a file"


def test_a_folder_is_told(tmp_path: Path) -> None:
    error = unreadable(tmp_path)

    assert "it is a folder" in str(error)
    assert error.hint == "name a file in it"


def test_a_file_one_may_not_read_is_told(public_folder: Path) -> None:
    path = public_folder / "fairlead.json"
    path.write_text("{}")
    path.chmod(0)

    with ordinary_user():
        error = unreadable(path)

    assert "you may not read it" in str(error)
    assert "permissions" in (error.hint or "")


def test_symbolic_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    loop, dangling = tmp_path / "loop", tmp_path / "dangling"
    loop.symlink_to(loop)
    dangling.symlink_to(tmp_path / "nothing")

    assert "leads back to itself" in str(unreadable(loop))
    assert "symbolic link to a file that does not exist" in str(unreadable(dangling))


def test_a_pipe_a_device_or_a_socket_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe, address = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        for path in (pipe, address, Path("/dev/zero"), Path("/dev/null")):
            assert "a pipe, a socket or a device" in str(unreadable(path))


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_text("x" * 10_001)

    assert "larger than 10,000 bytes" in str(unreadable(path, limit=10_000))
    assert len(read_text(path, limit=10_001)) == 10_001


def test_a_name_that_no_file_can_have_is_told(tmp_path: Path) -> None:
    assert "null character" in str(unreadable(tmp_path / "a\0b"))
    assert "null character" in str(unwritable(tmp_path / "a\0b"))
    assert "too long" in str(unreadable(tmp_path / ("a" * 300)))
    assert "too long" in str(unwritable(tmp_path / ("a" * 300)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}".encode("utf-8-sig"), "UTF-8 byte order mark"),
        ("{}".encode("utf-16"), "UTF-16 byte order mark"),
        (b"\xfe\xff\0{\0}", "UTF-16 byte order mark"),
        ("{}".encode("utf-16-le"), "not a text file"),
        (b"\x7fELF\0\0", "not a text file"),
        (b'{\n"a": "\xff"}', "line 2 is not UTF-8"),
        ('{\n\n"a": "ü"}'.encode("latin-1"), "line 3 is not UTF-8"),
    ],
)
def test_what_is_not_plain_utf8_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "fairlead.json"
    path.write_bytes(content)

    error = unreadable(path)

    assert message in str(error)
    assert error.hint == "save it as UTF-8 without a byte order mark"


def test_a_new_file_is_written_with_its_folders_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "fairlead.json"
    umask = os.umask(0o027)
    try:
        write_atomic(path, '{"ü": 1}\r\n')
    finally:
        os.umask(umask)

    assert path.read_bytes() == '{"ü": 1}\r\n'.encode()
    assert permissions(path) == 0o640
    assert names_in(path.parent) == ["fairlead.json"]


def test_a_file_keeps_its_permissions_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_text("old")
    path.chmod(0o664)

    write_atomic(path, "new")
    assert (path.read_text(), permissions(path)) == ("new", 0o664)

    write_atomic(path, "private", mode=0o600)
    assert (path.read_text(), permissions(path)) == ("private", 0o600)

    write_atomic(tmp_path / "secret", "private", mode=0o600)
    assert permissions(tmp_path / "secret") == 0o600


def test_a_file_keeps_its_owner(public_folder: Path) -> None:
    path = public_folder / "fairlead.json"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    owner = path.stat().st_uid

    write_atomic(path, "new")

    assert (path.read_text(), path.stat().st_uid) == ("new", owner)


def test_a_symbolic_link_stays_one_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles" / "fairlead.json", tmp_path / "fairlead.json"
    link.symlink_to(Path("dotfiles") / "fairlead.json")

    for text in ("created", "changed"):
        with hold_lock(link):
            write_atomic(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert names_in(target.parent) == ["fairlead.json"]


def test_what_is_not_a_regular_file_is_never_replaced(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    (tmp_path / "file").touch()

    assert "it is a folder" in str(unwritable(tmp_path))
    assert "a pipe, a socket or a device" in str(unwritable(pipe))
    assert "leads back to itself" in str(unwritable(loop))
    assert "should be a folder" in str(unwritable(tmp_path / "file" / "fairlead.json"))
    assert names_in(tmp_path) == ["file", "loop", "pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_or_file_one_may_not_change_is_left_alone(public_folder: Path) -> None:
    path = public_folder / "fairlead.json"
    path.write_text("old")

    path.chmod(0o444)
    public_folder.chmod(0o777)
    with ordinary_user():
        assert "you may not change it" in str(unwritable(path))

    path.chmod(0o666)
    public_folder.chmod(0o555)
    with ordinary_user():
        error = unwritable(path)
    public_folder.chmod(0o755)

    assert "you may not change it" in str(error)
    assert "permissions" in (error.hint or "")
    assert path.read_text() == "old"
    assert names_in(public_folder) == ["fairlead.json"]


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    path.write_text("old")
    failed = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, timeout=60
    )

    assert f"ConfigUnwritable: cannot change `{path}`: File too large" in failed.stderr
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["fairlead.json"]


def test_text_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"

    assert "half of a character" in str(unwritable(path, '"\ud800"'))
    assert names_in(tmp_path) == []


def test_whoever_comes_second_waits_and_then_is_told(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"

    with (
        hold_lock(path),
        pytest.raises(ConfigUnwritable, match="another process"),
        hold_lock(tmp_path / "." / "fairlead.json", timeout=0.05),
    ):
        pytest.fail("two held the lock at once")
    with hold_lock(path, timeout=0):
        assert names_in(tmp_path) == []


def test_the_lock_is_handed_on_when_its_holder_is_done(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with hold_lock(path, timeout=60):
            order.append("second")

    thread = threading.Thread(target=second)
    with hold_lock(path):
        thread.start()
        assert waiting.wait(60)
        order.append("first")
    thread.join(60)

    assert order == ["first", "second"]


def test_the_lock_makes_the_folder_and_says_why_it_cannot(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "new" / "fairlead.json"):
        assert names_in(tmp_path / "new") == []
    (tmp_path / "file").touch()

    with (
        pytest.raises(ConfigUnwritable, match="should be a folder"),
        hold_lock(tmp_path / "file" / "fairlead.json"),
    ):
        pytest.fail("there is nothing to lock")


def test_an_error_while_the_lock_is_held_passes_through_and_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"

    with pytest.raises(FileNotFoundError), hold_lock(path):
        path.read_text()
    with hold_lock(path, timeout=0):
        assert not path.exists()


def test_only_what_killed_writers_of_this_file_left_is_removed(tmp_path: Path) -> None:
    others = [".fairlead.json.swp", ".other.json.1a2b3c4d.fairlead-tmp", "fairlead.json"]
    for name in [*others, ".fairlead.json.1a2b3c4d.fairlead-tmp", ".fairlead.json.ffffffff.fairlead-tmp"]:
        (tmp_path / name).write_text("{}")

    with hold_lock(tmp_path / "fairlead.json"):
        assert names_in(tmp_path) == others


@pytest.mark.requirement("HARD-8")
def test_a_writer_killed_at_any_moment_leaves_a_whole_file_and_no_growing_litter(tmp_path: Path) -> None:
    path = tmp_path / "fairlead.json"

    finished = subprocess.run(
        [sys.executable, "-c", KILLED_WRITERS, path, "60"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    outcome = json.loads(finished.stdout)
    assert outcome["seen"] == ["a", "b"]
    # Some died in the middle of writing, or this would prove nothing; the next one cleaned up after each.
    assert max(outcome["left"]) == 1
    assert outcome["names"] == ["fairlead.json"]

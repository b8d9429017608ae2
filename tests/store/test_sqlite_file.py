"""The file of a store: private, shared by processes, and clear about what is wrong with it."""

import contextlib
import os
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store import children

from fairlead.errors import StoreError
from fairlead.store.async_store import AsyncStore
from fairlead.store.sqlite import SqliteDatabase
from fairlead.store.sqlite_file import MIGRATIONS


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@contextlib.contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.mark.requirement("HARD-10")
def test_only_the_user_can_read_the_folder_and_its_files(path: Path) -> None:
    with SqliteDatabase.open(path) as database:
        database.put("tokens", "github", b"secret", expect=None)
        assert mode_of(path.parent) == 0o700
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
        assert {mode_of(file) for file in files} == {0o600}


@pytest.mark.requirement("HARD-10")
def test_files_that_others_could_read_are_made_private(path: Path) -> None:
    with SqliteDatabase.open(path):
        for file in path.parent.iterdir():
            file.chmod(0o644)
        with SqliteDatabase.open(path):
            assert {mode_of(file) for file in path.parent.iterdir()} == {0o600}


@pytest.mark.requirement("HARD-10")
@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.db-shm"])
@pytest.mark.parametrize("target_exists", [True, False])
def test_a_link_in_place_of_a_file_is_refused(
    path: Path, tmp_path: Path, name: str, target_exists: bool
) -> None:
    target = tmp_path / "elsewhere"
    if target_exists:
        target.write_bytes(b"precious")
    path.parent.mkdir(mode=0o700)
    (path.parent / name).symlink_to(target)
    with pytest.raises(StoreError, match="link") as caught, SqliteDatabase.open(path):
        pass
    assert caught.value.hint
    assert target.exists() == target_exists


def test_a_folder_that_others_can_write_to_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(StoreError, match="other users") as caught, SqliteDatabase.open(path):
        pass
    assert caught.value.hint == f"run `chmod 700 {path.parent}`"
    assert list(path.parent.iterdir()) == []


@pytest.mark.requirement("HARD-83")
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o733, 0o773])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_folder_below_one_that_others_can_write_to_is_refused(
    tmp_path: Path, mode: int, depth: int
) -> None:
    path = tmp_path / "a b" / "c" / "d" / "store.db"
    path.parent.mkdir(parents=True, mode=0o700)
    above = path.parents[depth]
    above.chmod(mode)
    with (
        pytest.raises(StoreError, match="write to the folder") as caught,
        SqliteDatabase.open(path),
    ):
        pass
    assert not path.exists()
    hint = caught.value.hint or ""
    subprocess.run(shlex.split(hint.split("`")[1]), check=True)
    with SqliteDatabase.open(path):
        above.chmod(mode)
    with pytest.raises(StoreError, match="other users"), SqliteDatabase.open(path):
        pass


@pytest.mark.requirement("HARD-83")
def test_a_folder_that_others_can_write_to_but_not_rename_in_is_fine(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    with SqliteDatabase.open(tmp_path / "shared" / "mine" / "store.db"):
        pass


@pytest.mark.requirement("HARD-83")
def test_a_link_that_lies_in_or_leads_below_an_open_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open" / "inner").mkdir(parents=True)
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "there").symlink_to(tmp_path / "open" / "inner")
    (tmp_path / "open" / "away").symlink_to(tmp_path / "closed")
    for folder in (tmp_path / "there", tmp_path / "open" / "away"):
        path = folder / "deep" / "store.db"
        with pytest.raises(StoreError, match="other users"), SqliteDatabase.open(path):
            pass
        assert not path.exists()


@pytest.mark.requirement("HARD-83")
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a folder away")
def test_folders_of_other_users_and_foreign_groups_above_a_store_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "above" / "mine" / "store.db"
    path.parent.mkdir(parents=True, mode=0o700)
    above = path.parents[1]
    os.chown(above, 12345, -1)
    with pytest.raises(StoreError, match="belongs to another user"), SqliteDatabase.open(path):
        pass
    os.chown(above, 0, 12345)
    above.chmod(0o775)
    with pytest.raises(StoreError, match="other users can write"), SqliteDatabase.open(path):
        pass
    above.chmod(0o755)
    with SqliteDatabase.open(path):
        pass


@pytest.fixture
def no_database(path: Path) -> Path:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"this is not a database " * 100)
    return path


def test_a_file_that_is_no_database_is_left_alone_and_explained(no_database: Path) -> None:
    path, before = no_database, no_database.read_bytes()
    with pytest.raises(StoreError, match="damaged") as caught, SqliteDatabase.open(path):
        pass
    assert caught.value.hint is not None
    assert f"move `{path}`" in caught.value.hint
    assert path.read_bytes() == before


def test_damage_found_later_is_explained_too(path: Path) -> None:
    with SqliteDatabase.open(path) as database:
        for number in range(200):
            database.put("catalogs", str(number), bytes(1000), expect=None)
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"), SqliteDatabase.open(path) as database:
        database.scan("catalogs")


async def test_an_asynchronous_store_explains_the_same_way(no_database: Path) -> None:
    with pytest.raises(StoreError, match="damaged"):
        async with AsyncStore.open(no_database):
            pass


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")
    with (
        pytest.raises(StoreError, match="state") as caught,
        SqliteDatabase.open(tmp_path / "state" / "store.db"),
    ):
        pass
    assert caught.value.hint


def test_the_errors_of_a_caller_stay_its_own(path: Path) -> None:
    with pytest.raises(FileNotFoundError), SqliteDatabase.open(path):
        (path.parent / "missing").read_bytes()


@pytest.mark.requirement("HARD-83")
@pytest.mark.parametrize("version", [0, 1, len(MIGRATIONS), 77])
@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_the_database_of_another_program_is_refused_and_left_as_it_was(
    path: Path, version: int, journal: str
) -> None:
    path.parent.mkdir(mode=0o700)
    with raw(path) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("CREATE TABLE bookmarks (url TEXT)")
        other.execute("CREATE TABLE entry (title TEXT)")
        other.execute(f"PRAGMA user_version = {version}")
        files = {path.with_name(path.name + suffix) for suffix in ("", "-wal")}
        kept = {file.name: file.read_bytes() for file in files if file.exists()}
    for name, content in kept.items():  # as after a crash: closing moved the journal into the file
        (path.parent / name).write_bytes(content)
    path.chmod(0o644)
    for opening in (SqliteDatabase.open, SqliteDatabase.open_for_reading):
        with pytest.raises(StoreError, match="another program") as caught, opening(path):
            pass
        assert caught.value.hint is not None
        assert {name: (path.parent / name).read_bytes() for name in kept} == kept
        assert mode_of(path) == 0o644


def test_a_store_of_a_newer_version_is_refused(path: Path) -> None:
    with SqliteDatabase.open(path):
        pass
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match="newer") as caught, SqliteDatabase.open(path):
        pass
    assert caught.value.hint == "update Fairlead"


def test_a_store_of_an_older_version_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteDatabase.open(path) as database:
        database.put("pins", "github", b"one", expect=None)
    step = "ALTER TABLE entry ADD COLUMN note TEXT; UPDATE entry SET note = 'moved'"
    monkeypatch.setattr("fairlead.store.sqlite_file.MIGRATIONS", (*MIGRATIONS, step))
    for _ in range(2):
        with SqliteDatabase.open(path) as database:
            assert [stored.value for stored in database.scan("pins")] == [b"one"]
    with raw(path) as connection:
        rows = connection.execute("SELECT note FROM entry WHERE namespace = 'pins'").fetchall()
        assert rows == [("moved",)]


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteDatabase.open(path) as database:
        database.put("pins", "github", b"one", expect=None)
    broken = (*MIGRATIONS, "DROP TABLE entry; NO SUCH STATEMENT")
    with monkeypatch.context() as patch:
        patch.setattr("fairlead.store.sqlite_file.MIGRATIONS", broken)
        with pytest.raises(StoreError), SqliteDatabase.open(path):
            pass
    with SqliteDatabase.open(path) as database:
        assert [stored.value for stored in database.scan("pins")] == [b"one"]


def test_a_file_locked_by_another_program_is_explained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.05)
    with SqliteDatabase.open(path) as database, raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            database.put("pins", "github", b"one", expect=None)
        assert database.get("pins", "github") is None  # readers go on
        other.execute("COMMIT")
        database.put("pins", "github", b"one", expect=None)


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_opening_waits_for_its_turn(path: Path, how: str) -> None:
    path.parent.mkdir(mode=0o700)
    with raw(path) as other, ThreadPoolExecutor(1) as thread:
        other.execute(f"BEGIN {how}")
        opening = thread.submit(children.put, path, "one")
        with pytest.raises(TimeoutError):
            opening.result(timeout=0.1)
        other.execute("COMMIT")
        opening.result(timeout=60)


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_opening_does_not_wait_for_ever(path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.05)
    path.parent.mkdir(mode=0o700)
    with raw(path) as other:
        other.execute("CREATE TABLE other (value)")
        other.execute("DROP TABLE other")
        other.execute(f"BEGIN {how}")
        with pytest.raises(StoreError, match="locked"), SqliteDatabase.open(path):
            pass


def test_ten_processes_can_make_the_same_store_at_once(path: Path) -> None:
    makers = [
        subprocess.Popen(
            children.command("put_when_told", path, str(number)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(10)
    ]
    with contextlib.ExitStack() as stack:
        for maker in makers:
            stack.enter_context(maker)
            assert maker.stdout is not None
            assert maker.stdout.readline() == b"ready\n"
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.close()
        assert [maker.wait(timeout=60) for maker in makers] == [0] * 10
    with SqliteDatabase.open(path) as database:
        assert len(database.scan("children")) == 10


def in_small_filesystem(folder: Path, script: str, *arguments: str) -> str:
    """Run a shell script in a file system of its own at `$1`, with 512 kB of space."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("needs user namespaces")
    mount = 'mount -t tmpfs -o size=512k,mode=0700 tmpfs "$1" && '
    command = ["unshare", "-rm", "sh", "-ec", mount + script, "sh", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_explained_and_what_was_stored_stays(tmp_path: Path) -> None:
    output = in_small_filesystem(tmp_path, '"$2" "$3" fill "$1/store.db"', sys.executable, children.__file__)
    assert "disk is full" in output
    assert "all there" in output


def test_a_read_only_home_is_explained(tmp_path: Path) -> None:
    remount = 'mount -o remount,ro "$1"; '
    child = [sys.executable, children.__file__]
    fresh = in_small_filesystem(tmp_path, remount + '"$2" "$3" explain "$1/state/store.db"', *child)
    assert "Read-only" in fresh
    assert "hint: make" in fresh
    existing = in_small_filesystem(
        tmp_path, '"$2" "$3" put "$1/store.db" one; ' + remount + '"$2" "$3" explain "$1/store.db"', *child
    )
    assert "hint: make" in existing


def test_opening_a_store_twice_in_one_process_loses_nothing(path: Path) -> None:
    # Closing any descriptor of the file would drop the first one's locks. The other process would then take
    # itself for the last, and remove the write-ahead log that the first one goes on writing to.
    with SqliteDatabase.open(path) as first:
        with SqliteDatabase.open(path):
            pass
        subprocess.run(children.command("put", path, "one"), timeout=60, check=True)
        first.put("children", "two", b"", expect=None)
        output = subprocess.run(
            children.command("keys", path), capture_output=True, text=True, timeout=60, check=True
        ).stdout
    assert output.split() == ["one", "two"]

"""Artifacts: files named by their content, and whose each of them is."""

import hashlib
import os
import sys
import time
from pathlib import Path

import pytest

from fairlead.errors import StoreError
from fairlead.store.artifact_contents import ArtifactFolder
from fairlead.store.artifacts import ABANDONED_SECONDS, NAMESPACE, Artifact, ArtifactFiles, RetentionLimits
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import ANY

DAY = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "artifacts"


@pytest.fixture
def files(store: AsyncStore, folder: Path) -> ArtifactFiles:
    return limited(store, folder, 1000)


def limited(store: AsyncStore, folder: Path, max_bytes: int) -> ArtifactFiles:
    return ArtifactFiles(
        store, ArtifactFolder(folder), RetentionLimits(max_bytes=max_bytes, max_age_seconds=7 * DAY)
    )


def artifact(content: bytes, principal: str = "local", age: float = 0.0) -> Artifact:
    return Artifact(
        sha256=hashlib.sha256(content).hexdigest(),
        principal=principal,
        media_type="text/plain",
        size=len(content),
        server_id="s",
        tool="t",
        untrusted=True,
        created=time.time() - age,
    )


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def keep(files: ArtifactFiles, content: bytes, principal: str = "local", age: float = 0.0) -> Artifact:
    made = artifact(content, principal, age)
    await files.keep(made, content)
    return made


async def test_what_is_kept_is_found_again_by_later_runs(
    store: AsyncStore, files: ArtifactFiles, folder: Path
) -> None:
    made = await keep(files, b"whole")
    later = limited(store, folder, 1000)
    assert await later.find("local", made.sha256) == made
    assert await later.content(made) == b"whole"


@pytest.mark.requirement("NEED-31")
async def test_only_whose_it_is_can_find_it(files: ArtifactFiles) -> None:
    made = await keep(files, b"mine", "ada")
    for other in ("bob", "ad", "", "ada/x", made.sha256):
        assert await files.find(other, made.sha256) is None
        assert await files.of(other) == []
    await keep(files, b"mine", "ada/x")
    assert [one.principal for one in await files.of("ada")] == ["ada"]


@pytest.mark.parametrize("handle", ["", "..", "../state.db", "0" * 64, "x" * 5000, "a\0b", "\ud800"])
async def test_a_handle_of_nothing_finds_nothing(files: ArtifactFiles, handle: str) -> None:
    try:
        assert await files.find("local", handle) is None
    except StoreError:
        assert handle == "\ud800"


@pytest.mark.skipif(sys.platform == "win32", reason="rights are other things there")
async def test_nobody_else_on_the_machine_can_read_the_files(files: ArtifactFiles, folder: Path) -> None:
    made = await keep(files, b"private")
    assert rights(folder) == 0o700
    assert rights(folder / made.sha256) == 0o600
    assert names(folder) == {made.sha256}


async def test_a_flood_of_one_principals_artifacts_removes_no_others(
    files: ArtifactFiles, folder: Path
) -> None:
    older = [await keep(files, bytes([number]) * 200, "ada", age=100.0 - number) for number in range(2)]
    flood = [await keep(files, bytes([90 + number]) * 300, "bob", age=10.0 - number) for number in range(8)]
    await files.tidy()
    assert await files.of("ada") == older[::-1]
    assert await files.of("bob") == flood[:-3:-1]


async def test_the_oldest_go_first_where_there_is_too_much(files: ArtifactFiles, folder: Path) -> None:
    first, second = await keep(files, b"1" * 400, age=2), await keep(files, b"2" * 400, age=1)
    third = await keep(files, b"3" * 400)
    assert [one.sha256 for one in await files.of("local")] == [third.sha256, second.sha256]
    assert names(folder) == {third.sha256, second.sha256}
    assert await files.content(first) is None


async def test_the_same_content_is_one_file_and_counts_once(files: ArtifactFiles, folder: Path) -> None:
    made = await keep(files, b"x" * 900, "ada")
    await keep(files, b"x" * 900, "bob")
    assert len(names(folder)) == 1
    assert await files.tidy() == 0
    await keep(files, b"y" * 900, "bob")
    assert await files.find("ada", made.sha256) is None
    assert await files.content(made) is None


async def test_what_is_too_old_is_gone_even_before_anybody_tidies(files: ArtifactFiles) -> None:
    await keep(files, b"young")
    old = await keep(files, b"old", age=8 * DAY)
    assert await files.find("local", old.sha256) is None
    assert len(await files.of("local")) == 1
    assert await files.tidy() == 1
    assert await files.content(old) is None


async def test_kept_again_is_as_new(files: ArtifactFiles) -> None:
    await keep(files, b"again", age=8 * DAY)
    made = await keep(files, b"again")
    assert await files.tidy() == 0
    assert await files.find("local", made.sha256) == made


async def test_more_than_there_may_be_in_all_is_refused(files: ArtifactFiles) -> None:
    await keep(files, b"small")
    with pytest.raises(StoreError, match="over the limit"):
        await keep(files, b"x" * 1001)
    assert len(await files.of("local")) == 1


async def test_files_that_belong_to_nobody_go_after_a_while(files: ArtifactFiles, folder: Path) -> None:
    await keep(files, b"x")
    abandoned, fresh = folder / "abandoned", folder / ".fresh"
    for file in (abandoned, fresh):
        file.write_bytes(b"")
    then = time.time() - ABANDONED_SECONDS - 60
    os.utime(abandoned, (then, then))
    await files.tidy()
    assert not abandoned.exists()
    assert fresh.exists()


async def test_all_can_be_removed(files: ArtifactFiles, folder: Path) -> None:
    await keep(files, b"1", "ada")
    await keep(files, b"2", "bob")
    assert await files.clear() == 2
    assert names(folder) == set()
    assert await files.clear() == 0


async def test_a_file_that_is_not_what_it_was_is_not_there(files: ArtifactFiles, folder: Path) -> None:
    made = await keep(files, b"whole")
    (folder / made.sha256).write_bytes(b"who")
    assert await files.content(made) is None


async def test_a_folder_that_cannot_be_written_is_said(store: AsyncStore, tmp_path: Path) -> None:
    files = limited(store, tmp_path / "state" / "store.db", 1000)
    with pytest.raises(StoreError, match="artifacts in"):
        await keep(files, b"x")
    assert await files.of("local") == []


@pytest.mark.requirement("NEED-29")
async def test_no_way_of_asking_leads_to_what_is_somebody_elses(files: ArtifactFiles) -> None:
    theirs = await keep(files, b"private", principal="oauth:team/ada")
    assert await files.find("oauth:team/ada", theirs.sha256) == theirs
    assert await files.find("oauth:team", f"ada/{theirs.sha256}") is None


async def test_what_another_version_wrote_is_nobodys(store: AsyncStore, files: ArtifactFiles) -> None:
    await store.put(NAMESPACE, f"local/{'0' * 64}", b'{"shape": "unknown"}', expect=ANY)
    assert await files.find("local", "0" * 64) is None
    assert await files.of("local") == []
    assert await files.tidy() == 1

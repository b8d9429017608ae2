"""`fairlead artifacts`."""

import hashlib
import json
import os
import time
from collections.abc import Callable

import anyio
import pytest

from fairlead.config.paths import state_folder, store_file
from fairlead.store.artifact_contents import ArtifactFolder
from fairlead.store.artifacts import Artifact, ArtifactFiles, RetentionLimits
from fairlead.store.async_store import AsyncStore
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

pytestmark = pytest.mark.requirement("NEED-31")


def kept(content: bytes, principal: str = "local", media_type: str = "text/plain", age: float = 0.0) -> str:
    """Keep something, as a call would have."""
    artifact = Artifact(
        sha256=hashlib.sha256(content).hexdigest(),
        principal=principal,
        media_type=media_type,
        size=len(content),
        server_id="files",
        tool="read",
        untrusted=True,
        created=time.time() - age,
    )

    async def keep() -> None:
        async with AsyncStore.open(store_file(os.environ)) as store:
            limits = RetentionLimits(max_bytes=1 << 20, max_age_seconds=1e9)
            await ArtifactFiles(store, ArtifactFolder(state_folder(os.environ) / "artifacts"), limits).keep(
                artifact, content
            )

    anyio.run(keep)
    return artifact.handle


def test_where_nothing_was_kept_nothing_is_shown(fairlead: Fairlead) -> None:
    outcome = fairlead("artifacts")
    assert (outcome.status, outcome.out) == (0, "")
    assert "nothing is kept" in outcome.err
    assert json.loads(fairlead("artifacts", "--json").out) == {"artifacts": []}
    assert fairlead("artifacts", "clean").err == "removed 0\n"


def test_what_is_kept_is_listed_newest_first_and_nobody_elses(fairlead: Fairlead) -> None:
    old, new = kept(b"old", age=7200), kept(b"newer", media_type="image/png")
    kept(b"not mine", "ada")
    header, first, second = fairlead("artifacts").out.splitlines()
    assert header.split() == ["HANDLE", "TYPE", "BYTES", "FROM", "AGE"]
    assert first.split()[:4] == [f"{new[:23]}…", "image/png", "5", "files.read"]
    assert second.split()[:1] + second.split()[4:] == [f"{old[:23]}…", "2", "h"]
    listed = json.loads(fairlead("artifacts", "list", "--json").out)["artifacts"]
    assert [(one["handle"], one["bytes"], one["untrusted"]) for one in listed] == [
        (new, 5, True),
        (old, 3, True),
    ]


def test_one_is_shown_by_its_handle_or_the_start_of_it(fairlead: Fairlead, machine: Machine) -> None:
    handle = kept(b"line\n\x1b[31m")
    for name in (handle, handle.removeprefix("artifact://"), f"{handle[:20]}…"):
        assert fairlead("artifacts", "show", name).out == "line\n\x1b[31m"  # a pipe gets every byte
    file = machine.project / "out.bin"
    assert fairlead("artifacts", "show", handle, "--output", str(file)).status == 0
    assert file.read_bytes() == b"line\n\x1b[31m"
    assert fairlead("artifacts", "show", handle, "-o", "/nowhere/at/all").status == 2


@pytest.mark.parametrize("name", ["artifact://0000", "nonsense", "artifact://", "../../etc/passwd"])
def test_what_is_not_there_is_said(fairlead: Fairlead, name: str) -> None:
    kept(b"something")
    outcome = fairlead("artifacts", "show", name)
    assert outcome.status == 1
    assert "there is no artifact" in outcome.err


def test_what_belongs_to_somebody_else_is_not_there(fairlead: Fairlead) -> None:
    assert fairlead("artifacts", "show", kept(b"not mine", "ada")).status == 1


def test_what_is_too_old_goes_or_all_of_it(fairlead: Fairlead) -> None:
    kept(b"old", age=30 * 86_400)
    kept(b"new")
    assert json.loads(fairlead("artifacts", "clean", "--json").out) == {"removed": 1}
    assert fairlead("artifacts", "clean", "--all").err == "removed 1\n"
    assert "nothing is kept" in fairlead("artifacts").err

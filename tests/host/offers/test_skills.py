"""Skills are handed out only as what their server said they would be."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import CallFailed
from fairlead.host.host import Host
from fairlead.host.offers.skills import EXTENSION, Skills
from fairlead.host.server_peer import CustomCapabilities
from tests.conftest import Machine
from tests.host.asking import AskingServer
from tests.host.support import SECONDS, unasked

HEAD = {"name": "sums", "since": "2026-03-31", "tags": ["a", 1, True]}
TEXT = "---\nname: sums\nsince: 2026-03-31\ntags: [a, 1, true]\n---\nAdd them up.\n"
EXTRA = "one, two\n"
OFFERS: dict[str, Any] = {"tools": {}, "resources": {}, "extensions": {EXTENSION: {}}}


def listed(uri: str, text: str) -> dict[str, Any]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"uri": uri, "digest": f"sha256:{digest}", "size": len(text.encode())}


def server_with(record: Path, text: str, *, promised: str | None = None, head: Any = HEAD) -> AskingServer:
    """A server of one skill, which may have promised another text."""
    files = [listed("skill://sums", promised or text), listed("skill://sums/extra", EXTRA)]
    skill = {"uri": "skill://sums", "frontmatter": head, "resources": files}
    texts = {"skill://sums": text, "skill://sums/extra": EXTRA}
    return AskingServer(record, capabilities=OFFERS, skills=[skill], texts=texts)


@asynccontextmanager
async def skills_of(machine: Machine, server: AskingServer) -> AsyncGenerator[Skills]:
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=unasked({"x": server.entry()}),
            env=machine.env,
            cwd=machine.project,
            capabilities=CustomCapabilities(extensions={EXTENSION: {}}),
        ) as host:
            yield host.skills("x")


async def test_a_skill_is_listed_without_being_read_and_loaded_when_wanted(
    machine: Machine, tmp_path: Path
) -> None:
    server = server_with(tmp_path / "record", TEXT)
    async with skills_of(machine, server) as skills:
        (skill,) = await skills.list()
        assert not server.heard("resources/read")
        assert await skills.load(skill) == TEXT
        assert await skills.read(skill, "skill://sums/extra") == EXTRA.encode()
        with pytest.raises(CallFailed, match="is not a file of the skill") as failed:
            await skills.read(skill, "file:///etc/passwd")
    assert failed.value.delivery == "not_sent"
    assert all(EXTENSION in said["extensions"] for said in server.declared())


@pytest.mark.parametrize(
    ("text", "promised", "head", "reason"),
    [
        (TEXT.replace("Add", "Sub"), TEXT, HEAD, "its digest differs"),
        (TEXT + "more", TEXT, HEAD, "and should have"),
        (TEXT, None, HEAD | {"name": "other"}, "is not what was listed"),
        (TEXT, None, {"name": "sums"}, "is not what was listed"),
        ("no head at all", None, HEAD, "cannot be parsed"),
        ("---\nname: [sums\n---\n", None, HEAD, "it is not YAML"),
        ("---\na: &a [1]\nb: *a\n---\n", None, {"a": [1], "b": [1]}, "refers to itself"),
        (f"---\n{'x' * 70_000}: 1\n---\n", None, HEAD, "too long"),
    ],
)
async def test_a_skill_that_is_not_what_was_listed_is_not_handed_out(
    machine: Machine, tmp_path: Path, text: str, promised: str | None, head: Any, reason: str
) -> None:
    server = server_with(tmp_path / "record", text, promised=promised, head=head)
    async with skills_of(machine, server) as skills:
        (skill,) = await skills.list()
        with pytest.raises(CallFailed, match=reason):
            await skills.load(skill)


async def test_a_server_that_knows_nothing_of_skills_is_not_asked(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record")
    async with skills_of(machine, server) as skills:
        with pytest.raises(CallFailed, match="does not declare") as failed:
            await skills.list()
    assert failed.value.delivery == "not_sent"
    assert not server.heard("skills/list")


async def test_a_list_of_skills_that_is_none_is_an_error(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", capabilities=OFFERS, skills=[{"uri": 1}])
    async with skills_of(machine, server) as skills:
        with pytest.raises(CallFailed, match="cannot be parsed"):
            await skills.list()

"""State that an earlier release left behind is read, extended once, and never half read."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.auth.test_vault import FULL
from tests.conftest import Machine, Outcome

from fairlead.auth.vault import Vault
from fairlead.config.paths import store_file
from fairlead.errors import ApprovalRequired, StoreError
from fairlead.gateway.tokens import TokenFile, Tokens
from fairlead.host.host import Host
from fairlead.host.operator import UNATTENDED
from fairlead.store.file import connect

RELEASE = Path(__file__).parents[1] / "data" / "release-0.1"
NAMED_TOKEN = "fl_xyF1rBlCcxbQa6hNB7YrM0cQrMnQhqb9dAT0FOaIC5g"
OWN_TOKEN = "v-62IOjAT2olVtOmEhRvMFOjV_qRbk7xLqTi-7-f-kk"
SECONDS = 60.0


@pytest.fixture
def upgraded(machine: Machine) -> Machine:
    """A machine that the earlier release was used on."""
    shutil.copytree(RELEASE / "config", machine.user_file.parent)
    state = store_file(machine.env).parent
    shutil.copytree(RELEASE / "state", state, dirs_exist_ok=True)
    for path in (state, *state.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return machine


@pytest.mark.requirement("HARD-90")
async def test_what_was_reviewed_and_approved_before_still_is(upgraded: Machine) -> None:
    for _ in range(2):  # the second time with what the first one migrated
        with anyio.fail_after(SECONDS):
            async with Host.open(env=upgraded.env, cwd=upgraded.project, operator=UNATTENDED) as host:
                tools = await host.tools_of("s")
                assert [tool.key.tool for tool in tools] == ["echo", "write"]
                assert (await host.call("s", "echo", {"text": "hi"})).text == "echo"
                with pytest.raises(ApprovalRequired):
                    await host.call("s", "write", {})
                assert len(await host.tools.list()) == 2, "nothing is held back by the upgrade"


@pytest.mark.requirement("HARD-90")
async def test_a_tool_that_changed_across_the_upgrade_is_held_back_as_before(upgraded: Machine) -> None:
    store = store_file(upgraded.env)
    with sqlite3.connect(store) as database:
        # As if the pins had been made when the tool said something else.
        (pins,) = database.execute("SELECT value FROM entry WHERE namespace = 'pins'").fetchone()
        changed = bytes(pins).replace(b"887d79d4af78", b"000000000000").replace(b"again", b"twice")
        assert changed != pins
        database.execute("UPDATE entry SET value = ? WHERE namespace = 'pins'", (changed,))
    with anyio.fail_after(SECONDS):
        async with Host.open(env=upgraded.env, cwd=upgraded.project, operator=UNATTENDED) as host:
            await host.connect("s")
            assert [tool.key.tool for tool in await host.tools.list()] == ["write"]


@pytest.mark.requirement("HARD-90")
def test_tokens_logins_and_the_lock_file_are_read(
    upgraded: Machine, fairlead: Callable[..., Outcome]
) -> None:
    folder = store_file(upgraded.env).parent / "gateway"
    tokens = Tokens(OWN_TOKEN, TokenFile(folder / "tokens.json"))
    named, own = tokens.owner(NAMED_TOKEN), tokens.owner(OWN_TOKEN)
    assert named is not None
    assert own is not None
    assert own.principal == "local"

    async def kept() -> None:
        login = await Vault.of(upgraded.env).get(replace(FULL, principal="local", account="").key)
        assert login is not None
        assert login.token == FULL.token

    anyio.run(kept)
    checked = fairlead("lock", "--check")
    assert checked.status == 0, checked.err


@pytest.mark.requirement("HARD-90")
def test_a_newer_store_is_refused_and_left_as_it_is(upgraded: Machine) -> None:
    store = store_file(upgraded.env)
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA user_version = 999")
    before = store.read_bytes()
    with pytest.raises(StoreError, match="newer"):
        connect(store)
    assert store.read_bytes() == before

"""State that an earlier release left behind is read, extended once, and never half read."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace
from tests.auth.test_vault import FULL
from tests.conftest import Machine, Outcome

from fairlead.auth.vault import Vault
from fairlead.catalog.tools import Listing
from fairlead.config.paths import store_file
from fairlead.errors import ApprovalRequired, FairleadError, StoreError
from fairlead.gateway.access.tokens import TokenFile, Tokens
from fairlead.gateway.gateway import GatewayOptions, open_gateway
from fairlead.host.host import Host
from fairlead.host.operator import UNATTENDED
from fairlead.policy.pins import Pins, check, extend
from fairlead.store.sqlite_file import connect, text_digest
from fairlead.testing import ScriptedServer

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


READS = {
    "name": "echo",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


def trusting(machine: Machine, tmp_path: Path) -> ScriptedServer:
    """A configuration of the earlier release with a trusted server, whose tool only reads."""
    server = ScriptedServer(tmp_path / "record", tools=[READS])
    text = machine.user_file.read_text() if machine.user_file.exists() else '{"servers": {}}'
    document: dict[str, Any] = json.loads(text)
    document["servers"]["t"] = server.entry()
    machine.write_user(json.dumps(document))
    return server


async def test_an_upgrade_asks_about_the_tools_of_a_trusted_server_as_before(
    upgraded: Machine, tmp_path: Path
) -> None:
    trusting(upgraded, tmp_path)
    with anyio.fail_after(SECONDS):
        async with Host.open(env=upgraded.env, cwd=upgraded.project) as host:
            with pytest.raises(ApprovalRequired) as caught:
                await host.call("t", "echo")
            assert "`fairlead review t --allow echo`" in (caught.value.hint or "")
            (status,) = [status for status in host.status() if status.server_id == "t"]
            assert any("as before the upgrade" in note for note in status.notes)


async def test_a_store_that_this_release_made_goes_by_annotations(machine: Machine, tmp_path: Path) -> None:
    trusting(machine, tmp_path)
    with anyio.fail_after(SECONDS):
        for _ in range(2):
            async with Host.open(env=machine.env, cwd=machine.project) as host:
                await host.call("t", "echo")


def test_after_an_upgrade_a_review_or_a_new_entry_settles_it(
    upgraded: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    server = trusting(upgraded, tmp_path)
    assert fairlead("call", "t", "echo").status == 3
    assert "as before the upgrade" in fairlead("status").err
    assert json.loads(fairlead("explain", "t", "--json").out)["tools"][0]["verdict"] == "ask"
    assert fairlead("review", "t", "--yes").status == 0
    assert fairlead("call", "t", "echo").status == 0
    added = fairlead("add", "new", "--scope", "user", "--trust", "trusted", "--", *server.argv)
    assert added.status == 0, added.err
    assert fairlead("call", "new", "echo").status == 0


async def test_an_upgrade_asks_about_reviewed_tools_over_the_gateway_and_says_so(upgraded: Machine) -> None:
    options = GatewayOptions(approval_seconds=0.05)
    with anyio.fail_after(SECONDS):
        async with open_gateway(upgraded.load(), options, env=upgraded.env) as gateway:
            tools = await gateway.host.tools.list()
            assert len(tools) == 2, "nothing is held back by the upgrade"
            with pytest.raises(ApprovalRequired):
                await gateway.host.call("s", "write", {})
            notes = [note for status in gateway.host.status() for note in status.notes]
            assert any("`fairlead review s`" in note for note in notes)


# Texts that an earlier release stored as they came.

RAW = "sk-LEAK/TEST+abc123XYZ789qq"


def put_raw(machine: Machine, **pin: Any) -> None:
    """Have the store hold what an earlier release kept of a server that writes a secret into its texts."""
    path = store_file(machine.env)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        ((key, value),) = database.execute("SELECT key, value FROM entry WHERE namespace = 'pins'").fetchall()
        pins: dict[str, Any] = json.loads(value)
        for kept in pins["tools"].values():
            kept["definition"]["description"] = f"takes {RAW}"
            kept.update(pin)
        replaced = "INSERT OR REPLACE INTO entry (namespace, key, value) VALUES (?, ?, ?)"
        database.execute(replaced, ("pins", key, json.dumps(pins).encode()))
        for namespace, name in (("catalog", "other"), ("catalog", "damaged"), ("trouble", "other")):
            text = json.dumps({"message": RAW, "tools": [{"name": RAW}]})
            database.execute(replaced, (namespace, name, text.encode()[: -3 if name == "damaged" else None]))
        database.execute(replaced, ("catalog", "new", json.dumps({"format": 2, "kept": 1}).encode()))
        database.execute(replaced, ("pins", "damaged", b'{"tools": {"a": 1}}'))


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


@pytest.mark.requirement("HARD-62")
@pytest.mark.requirement("HARD-90")
async def test_an_upgrade_leaves_no_byte_of_texts_that_were_stored_as_they_came(upgraded: Machine) -> None:
    path = store_file(upgraded.env)
    put_raw(upgraded)
    assert RAW.encode() in bytes_of(path)
    connect(path).close()
    assert RAW.encode() not in bytes_of(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        kept = {
            (namespace, key): bytes(value)
            for namespace, key, value in database.execute("SELECT namespace, key, value FROM entry")
        }
    assert ("catalog", "new") in kept
    assert kept["pins", "damaged"] == b'{"tools": {"a": 1}}', "it is for its reader to refuse"
    assert {key for namespace, key in kept if namespace == "catalog"} == {"new"}
    with anyio.fail_after(SECONDS):
        async with Host.open(env=upgraded.env, cwd=upgraded.project, operator=UNATTENDED) as host:
            await host.connect("s")
            assert len(await host.tools.list()) == 2, "the digests tell that the tools are the same"
            assert (await host.call("s", "echo", {"text": "hi"})).text == "echo"
    with contextlib.closing(sqlite3.connect(path)) as database:
        (value,) = database.execute(
            "SELECT value FROM entry WHERE namespace = 'pins' AND key != 'damaged'"
        ).fetchone()
    pins: dict[str, Any] = json.loads(value)
    assert all(pin["definition"]["name"] == name for name, pin in pins["tools"].items()), "they are filled in"


@pytest.mark.requirement("HARD-90")
async def test_a_tool_that_changed_since_its_text_was_dropped_is_held_back(upgraded: Machine) -> None:
    put_raw(upgraded, strict="0" * 64, loose="0" * 64)
    with anyio.fail_after(SECONDS):
        async with Host.open(env=upgraded.env, cwd=upgraded.project, operator=UNATTENDED) as host:
            await host.connect("s")
            assert not await host.tools.list()


@pytest.mark.requirement("HARD-90")
def test_instructions_are_known_by_their_digest_and_filled_in() -> None:
    same = Listing(instructions="Be kind.")
    pins = Pins(instructions=text_digest("Be kind."))
    assert not check(pins, same).instructions_changed
    assert check(pins, Listing(instructions="Be cruel.")).instructions_changed
    filled = extend(pins, same)
    assert filled is not None
    assert filled.instructions == "Be kind."
    assert extend(pins, Listing(instructions="Be cruel.")) is None


_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def verdict_before(fields: dict[str, Any], tool: dict[str, Any]) -> str:
    """What the library of the earlier release decided: by lists and modes, and else it asked."""
    listed = fields.get("allow_tools")
    if listed is not None and tool["name"] not in listed:
        return "deny"
    if listed is None and fields["trust"] == "untrusted":
        return "deny"
    mode = fields.get("approval")
    if mode == "auto":
        is_harmless = fields["trust"] == "trusted" and tool["annotations"].get("readOnlyHint") is True
        return "allow" if is_harmless else "ask"
    return mode or "ask"


def test_no_entry_of_an_earlier_release_allows_more_than_it_did(
    upgraded: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    tools: list[dict[str, Any]] = [
        {"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}
        for name, annotations in (
            ("reads", {"readOnlyHint": True}),
            ("destroys", {"destructiveHint": True}),
            ("plain", {}),
        )
    ]
    document: dict[str, Any] = json.loads(upgraded.user_file.read_text())
    cases: dict[str, dict[str, Any]] = {}
    server = ScriptedServer(tmp_path / "record", tools=tools)
    for trust in ("trusted", "untrusted"):
        for listed in (None, ["reads", "plain"]):
            for mode in (None, "allow", "ask", "auto", "deny"):
                fields = {"trust": trust, "allow_tools": listed, "approval": mode}
                cases[f"c{len(cases)}"] = {name: value for name, value in fields.items() if value is not None}
    for name, fields in cases.items():
        document["servers"][name] = server.entry(**fields)
    upgraded.write_user(json.dumps(document))
    assert fairlead("tools", "c0", "--refresh").status == 0
    fairlead("tools", "--refresh")
    for name, fields in cases.items():
        explained = json.loads(fairlead("explain", name, "--json").out)["tools"]
        now = {tool["tool"]: (tool["verdict"], tool["gateway_verdict"]) for tool in explained}
        for tool in tools:
            before = verdict_before(fields, tool)
            for verdict in now[tool["name"]]:
                assert _STRICTNESS[verdict] >= _STRICTNESS[before], (fields, tool["name"], before, verdict)
    shown = fairlead("status").err
    for name, fields in cases.items():
        is_told = fields["trust"] == "trusted" and "approval" not in fields
        notices = shown.count(f"`fairlead review {name}`")
        assert notices <= 1, "one notice for each server"
        assert not is_told or notices == 1, (name, fields, shown)


def write_store_version(machine: Machine) -> Path:
    store = store_file(machine.env)
    with closing(sqlite3.connect(store)) as database:
        database.execute("PRAGMA user_version = 999")
    return store


def write_pins(machine: Machine) -> Path:
    store = store_file(machine.env)
    with closing(sqlite3.connect(store)) as database, database:
        rows = database.execute("SELECT version, value FROM entry WHERE namespace = 'pins'").fetchall()
        for version, value in rows:
            pins: dict[str, Any] = json.loads(value)
            for pin in pins["tools"].values():
                pin["format"] = 99
            newer = json.dumps(pins).encode()
            database.execute("UPDATE entry SET value = ? WHERE version = ?", (newer, version))
    return store


def write_document(path: Path) -> Path:
    document: Any = json.loads(path.read_text())
    known: dict[str, Any] = {"tokens": document} if isinstance(document, list) else document
    path.write_text(json.dumps({**known, "version": 99}))
    return path


NEWER: dict[str, Callable[[Machine], Path]] = {
    "store": write_store_version,
    "pins": write_pins,
    "tokens": lambda machine: write_document(store_file(machine.env).parent / "gateway" / "tokens.json"),
    "logins": lambda machine: write_document(store_file(machine.env).parent / "mcp-auth.json"),
    "lock": lambda machine: write_document(machine.user_file.parent / "fairlead.lock"),
}
"""Each makes one part of the state look as if a newer release had written it, and returns its file."""


def content_of(part: str, file: Path) -> object:
    """What must stay as it is: of the store, the pins alone, since calls are recorded beside them."""
    if part != "pins":
        return file.read_bytes()
    with closing(sqlite3.connect(file)) as database:
        return database.execute("SELECT version, value FROM entry WHERE namespace = 'pins'").fetchall()


REFUSED: dict[str, tuple[str, ...]] = {
    "store": ("status", "tools s", "audit", "approvals", "artifacts", "review s"),
    "pins": ("review s --allow all", "call s echo", "explain tool s.echo"),
    "tokens": ("gateway token list",),
    "logins": ("auth list",),
    "lock": ("lock --check", "lock"),
}
EVERY = (
    *("list", "status", "tools", "tools s", "call s echo", "explain tool s.echo", "explain server s"),
    *("audit", "approvals", "artifacts", "lint s", "lock --check", "auth list", "gateway token list"),
)


@pytest.mark.requirement("HARD-90")
@pytest.mark.parametrize("part", NEWER)
def test_state_of_a_newer_release_is_refused_by_every_command_and_left_as_it_is(
    upgraded: Machine, fairlead: Callable[..., Outcome], part: str
) -> None:
    file = NEWER[part](upgraded)
    before = content_of(part, file)
    for line in (*EVERY, *REFUSED[part]):
        outcome = fairlead(*line.split())
        said = outcome.out + outcome.err
        assert "bug in Fairlead" not in said, (line, said)
        assert "Traceback" not in said, (line, said)
        if line in REFUSED[part]:
            assert "newer" in said, (line, said)
    assert content_of(part, file) == before


@pytest.mark.requirement("HARD-90")
@pytest.mark.parametrize("part", NEWER)
async def test_state_of_a_newer_release_widens_nothing_in_the_library(upgraded: Machine, part: str) -> None:
    file = NEWER[part](upgraded)
    before = file.read_bytes() if file.suffix != ".db" else b""
    with anyio.fail_after(SECONDS):
        async with Host.open(env=upgraded.env, cwd=upgraded.project, operator=UNATTENDED) as host:
            with pytest.raises(FairleadError):
                await host.call("s", "write", {})
            if part in ("store", "pins", "lock"):
                assert not await host.tools.list()
                with pytest.raises(FairleadError, match="newer"):
                    await host.call("s", "echo", {"text": "hi"})
            else:
                assert (await host.call("s", "echo", {"text": "hi"})).text == "echo"
    assert not before or file.read_bytes() == before


@pytest.mark.requirement("HARD-90")
async def test_approvals_snapshots_and_artifacts_of_the_earlier_release_are_shown(
    upgraded: Machine, fairlead: Callable[..., Outcome]
) -> None:
    def run() -> None:
        assert "echo" in fairlead("approvals").out
        assert "echo" in fairlead("tools", "s").out
        assert fairlead("audit").status == 0
        assert fairlead("artifacts").status == 0
        assert "ci" in fairlead("gateway", "token", "list").out
        assert "mcp.example" in fairlead("auth", "list").out + fairlead("auth").out

    await anyio.to_thread.run_sync(run)

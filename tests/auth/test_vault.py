"""Logins are kept where only their owner can read them, and survive what happens to files."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import keyring
import keyring.backend
import keyring.errors
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec.structs import replace
from rich.pretty import pretty_repr

from fairlead.auth import vault as keyring_parts
from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.auth.vault import FILE_NAME, VAULT_VARIABLE, Vault
from fairlead.errors import ConfigError, ConfigUnreadable, ConfigUnwritable, FairleadError, SecretUnavailable
from tests.auth import refreshing_process
from tests.auth.disks import full_disk
from tests.auth.refreshing_process import make_login

PATIENCE = 60.0

FULL = Login(
    principal="ada",
    account="work",
    issuer="https://as.example",
    resource="https://mcp.example/mcp",
    token_endpoint="https://as.example/token",
    client=OAuthClient(
        client_id="ours",
        client_secret="SECRET-client",
        auth="client_secret_basic",
        origin="registered",
        secret_expires_at=1_900_000_000_000,
    ),
    token=Token(
        access_token="SECRET-access",
        refresh_token="SECRET-refresh",
        expires_at=1_760_000_000_000,
        issued_at=1_759_999_000_000,
        scope="files:read",
    ),
    dpop_key="SECRET-key",
)


class SomeKeyring(keyring.backend.KeyringBackend):
    """A keyring for a machine that has none; it can be locked."""

    priority = 10  # pyright: ignore[reportAssignmentType] - the base class makes this a class property

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self._require_open()
        assert service == "fairlead"
        return self.kept.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self._require_open()
        self.kept[username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._require_open()
        if username not in self.kept:
            raise keyring.errors.PasswordDeleteError(username)
        del self.kept[username]

    def _require_open(self) -> None:
        if self.is_locked:
            raise keyring.errors.KeyringLocked


@pytest.fixture
def ring() -> Iterator[SomeKeyring]:
    before, ring = keyring.get_keyring(), SomeKeyring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(before)


@pytest.fixture
def no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.config.secrets.keyring.put", refuse)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / FILE_NAME


@pytest.fixture
def warnings() -> list[FairleadError]:
    return []


@pytest.fixture
def vault(path: Path, warnings: list[FairleadError]) -> Vault:
    return Vault(path, place="file", warn=warnings.append)


def document(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def only_entry(path: Path) -> dict[str, Any]:
    (entry,) = document(path)["servers"].values()
    return entry


def modes(path: Path) -> tuple[int, int]:
    return stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)


def loosen(path: Path) -> None:
    path.chmod(0o644)
    path.parent.chmod(0o755)


def bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def refuse(service: str, user: str, password: str) -> bool:
    """What a machine without a keyring does."""
    return False


async def test_a_login_comes_back_whole_in_another_process(vault: Vault, path: Path) -> None:
    await vault.put(FULL)
    other = Vault(path, place="file")
    assert await other.get(FULL.key) == FULL
    assert await other.find("ada", "work", FULL.resource) == FULL
    assert await other.logins() == await other.logins("ada") == [FULL]
    assert await other.logins("grace") == []
    assert await other.find("ada", "", FULL.resource) is None
    await other.delete(FULL.key)
    assert await vault.get(FULL.key) is None
    await vault.delete(FULL.key)


async def test_the_file_has_the_fields_that_other_hosts_know(vault: Vault, path: Path) -> None:
    await vault.put(FULL)
    assert document(path)["version"] == 1
    assert only_entry(path) == {
        "access_token": "SECRET-access",
        "refresh_token": "SECRET-refresh",
        "expires_at": 1_760_000_000_000,
        "issued_at": 1_759_999_000_000,
        "token_type": "Bearer",
        "scope": "files:read",
        "client_id": "ours",
        "client_secret": "SECRET-client",
        "client_auth": "client_secret_basic",
        "client_origin": "registered",
        "client_secret_expires_at": 1_900_000_000_000,
        "principal": "ada",
        "account": "work",
        "issuer": "https://as.example",
        "resource": "https://mcp.example/mcp",
        "token_endpoint": "https://as.example/token",
        "dpop_key": "SECRET-key",
    }


async def test_the_newest_login_that_is_not_over_is_found_first(vault: Vault) -> None:
    old, new, over = (make_login(issuer=f"https://{name}.example") for name in ("old", "new", "over"))
    over = replace(over, token=Token(access_token=""))
    assert await vault.find("local", "", old.resource) is None
    await vault.put(over)
    assert await vault.find("local", "", old.resource) == over
    for login in (new, old, new, over):
        await vault.put(login)
    assert await vault.find("local", "", old.resource) == new


@pytest.mark.requirement("HARD-10")
async def test_only_the_owner_can_read_the_file_and_its_folder(vault: Vault, path: Path) -> None:
    await vault.put(FULL)
    assert modes(path) == (0o600, 0o700)
    loosen(path)
    assert await Vault(path).get(FULL.key) == FULL
    assert modes(path) == (0o600, 0o700)


@pytest.mark.requirement("HARD-10")
@pytest.mark.parametrize("linked", ["file", "folder"])
async def test_a_symbolic_link_is_neither_read_nor_written(tmp_path: Path, path: Path, linked: str) -> None:
    await Vault(path, place="file").put(FULL)
    before = bytes_of(path)
    trap = tmp_path / "trap" / FILE_NAME
    if linked == "file":
        trap.parent.mkdir()
        trap.symlink_to(path)
    else:
        trap.parent.symlink_to(path.parent)
    warnings: list[FairleadError] = []
    vault = Vault(trap, place="file", warn=warnings.append)
    with pytest.raises(ConfigUnreadable, match="symbolic link") as caught:
        await vault.get(FULL.key)
    assert caught.value.hint is not None
    await vault.put(make_login())
    assert "symbolic link" in str(warnings[0])
    assert await vault.get(make_login().key) == make_login()
    assert bytes_of(path) == before


@pytest.mark.requirement("HARD-10")
async def test_the_file_of_another_user_is_refused(
    vault: Vault, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put(FULL)
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(ConfigUnreadable, match="belongs to another user"):
        await vault.get(FULL.key)


async def test_what_is_no_plain_file_is_refused(vault: Vault, path: Path) -> None:
    write(path / "file", b"")
    with pytest.raises(ConfigUnreadable, match="no plain file"):
        await vault.get(FULL.key)


async def test_entries_and_fields_that_nobody_knows_are_kept(vault: Vault, path: Path) -> None:
    await vault.put(FULL)
    changed = document(path)
    (name,) = changed["servers"]
    changed["servers"][name]["note"] = "mine"
    foreign = {"access_token": "of another host", "client_id": "theirs"}
    changed |= {"comment": "hands off", "servers": {"their-server": foreign, **changed["servers"], "odd": 7}}
    write(path, json.dumps(changed).encode())
    assert await vault.logins() == [FULL]
    renewed = replace(FULL, token=Token(access_token="new"))
    await vault.put(renewed)
    kept = document(path)
    assert kept["comment"] == "hands off"
    assert (kept["servers"]["their-server"], kept["servers"]["odd"]) == (foreign, 7)
    assert kept["servers"][name]["note"] == "mine"
    assert "refresh_token" not in kept["servers"][name]
    assert await vault.logins() == [renewed]
    await vault.delete(FULL.key)
    assert document(path)["servers"].keys() == {"their-server", "odd"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 500,
        b'{"version": 1, "servers": {"a": {"access_tok',
        b"[]",
        b'{"servers": []}',
        b'{"version": "one"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"servers":' * 5_000,
    ],
)
@pytest.mark.parametrize("first", ["get", "put"])
async def test_a_damaged_file_is_set_aside_and_the_user_told(
    vault: Vault, path: Path, warnings: list[FairleadError], content: bytes, first: str
) -> None:
    write(path, content)
    if first == "get":
        assert await vault.get(FULL.key) is None
    await vault.put(FULL)
    assert await vault.get(FULL.key) == FULL
    (aside,) = path.parent.glob(f"{FILE_NAME}.damaged-*")
    assert aside.read_bytes() == content
    assert [str(warning) for warning in warnings] == [f"`{path}` was damaged, and is set aside"]
    assert str(aside) in (warnings[0].hint or "")


async def test_the_file_of_a_newer_version_is_left_alone(
    vault: Vault, path: Path, warnings: list[FairleadError]
) -> None:
    write(path, b'{"version": 2, "servers": {}}')
    with pytest.raises(ConfigUnreadable, match="newer Fairlead"):
        await vault.get(FULL.key)
    await vault.put(FULL)
    assert await vault.get(FULL.key) == FULL
    assert "newer Fairlead" in str(warnings[0])
    assert document(path) == {"version": 2, "servers": {}}
    with pytest.raises(ConfigError):
        await vault.delete(FULL.key)


async def test_a_file_beyond_all_reason_is_left_alone(vault: Vault, path: Path) -> None:
    write(path, b" " * 5_000_000)
    with pytest.raises(ConfigUnreadable, match="larger than"):
        await vault.get(FULL.key)


@pytest.mark.requirement("HARD-9")
async def test_on_a_full_disk_a_login_is_kept_in_memory_and_written_when_it_can_be(
    vault: Vault, path: Path, warnings: list[FairleadError]
) -> None:
    await vault.put(FULL)
    renewed = replace(FULL, token=Token(access_token="new"))
    with full_disk():
        await vault.put(renewed)
        await vault.put(make_login())
    assert [type(warning) for warning in warnings] == [ConfigUnwritable, ConfigUnwritable]
    assert FULL.resource in str(warnings[0])
    assert await vault.get(FULL.key) == renewed
    assert await vault.logins() == [renewed, make_login()]
    assert await Vault(path).logins() == [FULL]
    await vault.put(make_login("https://third.example"))
    assert await Vault(path).get(FULL.key) == renewed
    assert len(await Vault(path).logins()) == 3


async def test_what_another_process_wrote_since_counts_more_than_what_could_not_be_written(
    vault: Vault, path: Path
) -> None:
    await vault.put(FULL)
    with full_disk():
        await vault.put(replace(FULL, token=Token(access_token="mine")))
    theirs = replace(FULL, token=Token(access_token="theirs"))
    await Vault(path, place="file").put(theirs)
    assert await vault.get(FULL.key) == theirs


@pytest.mark.requirement("HARD-8")
async def test_a_kill_while_logins_are_written_leaves_the_old_or_the_new_one(path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        for _ in range(3):
            command = refreshing_process.command("put_forever", path.parent)
            async with await anyio.open_process(command, stderr=None) as process:
                assert process.stdout is not None
                lines = BufferedByteReceiveStream(process.stdout)
                number = b""
                for _ in range(15):
                    number = await lines.receive_until(b"\n", 100)
                process.kill()
            warnings: list[FairleadError] = []
            login = await Vault(path, place="file", warn=warnings.append).get(make_login().key)
            assert login is not None
            assert int(login.token.access_token) >= int(number)
            assert not warnings


async def test_logins_that_processes_keep_at_the_same_time_are_all_kept(path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(
                    anyio.run_process, refreshing_process.command("put_many", path.parent, name, "10")
                )
    assert len(await Vault(path).logins()) == 30


async def test_in_a_keyring_secrets_are_there_and_not_in_the_file(path: Path, ring: SomeKeyring) -> None:
    vault = Vault(path)
    await vault.put(FULL)
    assert b"SECRET" not in bytes_of(path)
    assert b"files:read" in bytes_of(path)
    assert "SECRET-refresh" in str(ring.kept)
    assert await Vault(path).get(FULL.key) == FULL
    assert await Vault(path).find("ada", "work", FULL.resource) == FULL
    await vault.delete(FULL.key)
    assert not ring.kept
    assert await Vault(path).logins() == []


async def test_a_login_too_long_for_one_entry_of_the_keyring_is_kept_in_parts(
    path: Path, ring: SomeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring_parts, "PART_CHARACTERS", 1200)
    login = replace(FULL, token=Token(access_token="é" * 5000))
    await Vault(path).put(login)
    assert len(ring.kept) > 4
    assert max(map(len, ring.kept.values())) <= 1200
    assert await Vault(path).get(login.key) == login
    await Vault(path).put(FULL)
    assert len(ring.kept) == 1
    assert await Vault(path).get(login.key) == FULL


@pytest.mark.requirement("HARD-8")
async def test_until_the_file_names_new_secrets_the_old_ones_are_in_the_keyring(
    path: Path, ring: SomeKeyring
) -> None:
    vault = Vault(path, warn=lambda _: None)
    await vault.put(FULL)
    before = bytes_of(path)
    with full_disk():
        await vault.put(replace(FULL, token=Token(access_token="new")))
    assert bytes_of(path) == before
    assert await Vault(path).get(FULL.key) == FULL


async def test_a_login_stays_where_it_is_whatever_this_process_can_use(
    path: Path, ring: SomeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("fairlead.config.secrets.keyring.put", refuse)
        await Vault(path).put(FULL)
    renewed = replace(FULL, token=Token(access_token="new"))
    await Vault(path).put(renewed)
    assert not ring.kept
    assert only_entry(path)["access_token"] == "new"


@pytest.mark.usefixtures("no_ring")
async def test_without_a_keyring_logins_are_in_the_file(path: Path) -> None:
    await Vault(path).put(FULL)
    assert only_entry(path)["access_token"] == "SECRET-access"


async def test_the_variable_decides_where_logins_are(tmp_path: Path, ring: SomeKeyring) -> None:
    env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    path = tmp_path / "fairlead" / FILE_NAME
    await Vault.of({**env, VAULT_VARIABLE: "file"}).put(FULL)
    assert only_entry(path)["access_token"] == "SECRET-access"
    await Vault.of({**env, VAULT_VARIABLE: "keyring"}).put(FULL)
    assert "access_token" not in only_entry(path)
    assert await Vault.of(env).get(FULL.key) == FULL
    assert await Vault.of({**env, VAULT_VARIABLE: "file"}).get(FULL.key) is None
    with pytest.raises(ConfigError, match="FAIRLEAD_VAULT"):
        Vault.of({**env, VAULT_VARIABLE: "drawer"})


@pytest.mark.usefixtures("no_ring")
async def test_who_insists_on_a_keyring_gets_no_file_in_its_place(
    path: Path, warnings: list[FairleadError]
) -> None:
    vault = Vault(path, place="keyring", warn=warnings.append)
    await vault.put(FULL)
    assert await vault.get(FULL.key) == FULL
    assert not bytes_of(path)
    assert "keyring cannot be used" in str(warnings[0])


async def test_a_locked_keyring_is_no_reason_to_forget_a_login(path: Path, ring: SomeKeyring) -> None:
    await Vault(path).put(FULL)
    await Vault(path, place="file").put(make_login())
    ring.is_locked = True
    vault = Vault(path)
    with pytest.raises(SecretUnavailable) as caught:
        await vault.get(FULL.key)
    assert "FAIRLEAD_VAULT=file" in (caught.value.hint or "")
    assert await vault.find("local", "", make_login().resource) == make_login()
    await vault.delete(FULL.key)
    ring.is_locked = False
    assert await vault.get(FULL.key) is None


async def test_secrets_that_somebody_removed_from_the_keyring_are_no_login(
    path: Path, ring: SomeKeyring
) -> None:
    await Vault(path).put(FULL)
    ring.kept.clear()
    assert await Vault(path).get(FULL.key) is None
    await Vault(path).put(FULL)
    assert await Vault(path).get(FULL.key) == FULL


@pytest.mark.requirement("HARD-10")
async def test_secrets_show_nowhere(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await vault.put(FULL)
    with full_disk():
        await Vault(Path("/proc/nowhere") / FILE_NAME).put(FULL)
    assert "login vault error" in caplog.text
    assert not [record for record in caplog.records if "SECRET" in str(record.__dict__)]
    shown = f"{FULL} {FULL!r} {[FULL.token]} {FULL.client} {pretty_repr([FULL])}"
    assert "SECRET" not in shown
    assert "https://mcp.example/mcp" in shown

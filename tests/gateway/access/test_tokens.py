"""The gateway's own tokens on disk."""

import json
import stat
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from fairlead.errors import ConfigError, ConfigUnreadable
from fairlead.gateway.access.tokens import TokenFile, TokenOwner, Tokens, digest_of, local_token
from fairlead.gateway.registry import gateway_folder
from tests.conftest import Machine


@pytest.mark.requirement("HARD-50")
def test_the_first_start_makes_a_token_that_only_its_user_can_read(machine: Machine) -> None:
    token = local_token(machine.env)
    path = gateway_folder(machine.env) / "token"
    assert len(token) >= 43
    assert path.read_text().strip() == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert local_token(machine.env) == token


def test_rights_that_are_too_wide_are_narrowed(machine: Machine) -> None:
    local_token(machine.env)
    folder = gateway_folder(machine.env)
    folder.chmod(0o755)
    (folder / "token").chmod(0o644)
    local_token(machine.env)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600


def test_a_token_file_that_somebody_linked_elsewhere_is_refused(machine: Machine, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.write_text("known-to-others\n")
    (gateway_folder(machine.env) / "token").symlink_to(planted)
    with pytest.raises(ConfigUnreadable, match="symbolic link"):
        local_token(machine.env)


class OtherReplicas:
    """Named tokens that all replicas accept: one."""

    version = 1

    def __init__(self) -> None:
        digest = digest_of("of all")
        self.owners = {digest: TokenOwner(principal="token:ada", credential=digest)}

    async def look_once_more(self) -> None:
        pass


def test_tokens_that_no_other_replica_knows_are_marked(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    agent = named.add("agent-x", principal="local")
    alone = Tokens("agents", named, decide="person")
    shared = Tokens("agents", named, decide="person", shared=OtherReplicas())
    owners = [tokens.owner(token) for tokens in (alone, shared) for token in (agent, "agents", "person")]
    assert [owner and owner.is_of_machine for owner in owners] == [False] * 3 + [True] * 3
    owner = shared.owner("of all")
    assert owner is not None
    assert not owner.is_of_machine


def test_of_a_named_token_only_a_digest_is_kept(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    token = named.add("ci", bundles=("work",))
    assert token not in named.path.read_text()
    assert token.removeprefix("fl_") not in named.path.read_text()
    assert stat.S_IMODE(named.path.stat().st_mode) == 0o600
    owner = Tokens(None, named).owner(token)
    assert owner is not None
    assert (owner.principal, owner.bundles, owner.scopes) == (
        "token:ci",
        frozenset({"work"}),
        frozenset({"mcp"}),
    )


def test_names_are_taken_once_and_free_again_when_removed(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    first = named.add("ci")
    with pytest.raises(ConfigError, match="already"):
        named.add("ci")
    assert named.remove("ci")
    assert not named.remove("ci")
    assert Tokens(None, named).owner(first) is None
    assert named.add("ci") != first


@pytest.mark.parametrize(
    ("name", "bundles", "scopes", "reason"),
    [
        ("", (), ("mcp",), "name"),
        ("a b", (), ("mcp",), "name"),
        ("a", (), ("everything",), "no scope"),
        ("a", ("work",), ("mcp", "admin"), "some bundles"),
    ],
)
def test_what_makes_no_sense_makes_no_token(
    tmp_path: Path, name: str, bundles: tuple[str, ...], scopes: tuple[str, ...], reason: str
) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    with pytest.raises(ConfigError, match=reason):
        named.add(name, bundles=bundles, scopes=scopes)
    assert named.read() == []


def test_a_running_gateway_learns_of_tokens_that_come_and_go(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    tokens = Tokens("local", named)
    assert tokens.owner("local") is not None
    token = named.add("late")
    assert tokens.owner(token) is not None
    named.remove("late")
    assert tokens.owner(token) is None


async def test_a_token_is_refused_by_the_first_turn_of_the_event_loop_after_its_removal(
    tmp_path: Path,
) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    tokens = Tokens("local", named)
    token = named.add("late")
    for _ in range(3):
        assert tokens.owner(token) is not None
        assert tokens.owner(token) is not None  # the same turn: what is asked now was read before
        named.remove("late")
        await anyio.lowlevel.checkpoint()
        assert tokens.owner(token) is None
        token = named.add("late")
        await anyio.lowlevel.checkpoint()


def test_a_damaged_file_lets_nobody_in_but_the_local_user(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    token = named.add("ci")
    named.path.write_text("[{")
    tokens = Tokens("local", named)
    assert tokens.owner(token) is None
    assert tokens.owner("local") is not None
    with pytest.raises(ConfigUnreadable, match="damaged"):
        named.read()


KEPT = '{"name": "ci", "digest": "00", "created_at": 1.0}'
EXTENDED = KEPT.replace("1.0", '1.0, "expires_at": 5')


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 2, "tokens": []}',
        '{"version": 99}',
        '{"version": 2, "tokens": {"ci": {}}}',
        '{"version": 1, "tokens": [], "revoked": []}',
        f'{{"version": 1, "tokens": [{EXTENDED}]}}',
        f"[{EXTENDED}]",
    ],
)
def test_a_token_file_of_a_newer_release_is_refused_and_not_changed(tmp_path: Path, text: str) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    named.path.write_text(text)
    for use in (named.read, lambda: named.add("x"), lambda: named.remove("ci")):
        with pytest.raises(ConfigUnreadable, match="was written by a newer Fairlead") as caught:
            use()
        assert caught.value.hint == "update Fairlead"
    assert named.path.read_text() == text
    assert Tokens("local", named).owner("local") is not None


def test_a_list_of_tokens_as_the_first_releases_wrote_it_is_read_and_gets_a_version(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    named.path.write_text(f"[{KEPT}]")
    assert [token.name for token in named.read()] == ["ci"]
    named.add("other")
    assert [token.name for token in named.read()] == ["ci", "other"]
    assert json.loads(named.path.read_text())["version"] == 1


@pytest.mark.parametrize("text", ["", "3", "{}", '{"version": 1}', '{"version": "1", "tokens": []}', "[3]"])
def test_what_is_no_token_file_is_damaged(tmp_path: Path, text: str) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    named.path.write_text(text)
    with pytest.raises(ConfigUnreadable, match="damaged"):
        named.add("x")
    assert named.path.read_text() == text

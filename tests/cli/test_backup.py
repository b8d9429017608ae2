"""`fairlead backup` and `restore`: all comes back, no secret leaves unasked, no hostile file gets in."""

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.actions.backup_archive import MOST_BYTES, pack, read_archive
from fairlead.config.paths import state_folder, store_file
from fairlead.config.secrets.documents import plain_secrets
from fairlead.errors import ConfigInvalid, ConfigUnreadable
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import gateway
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


@pytest.fixture
def used(machine: Machine, fairlead: Fairlead) -> Machine:
    """A machine with a server that was reviewed and called, a project's that was approved, and a token."""
    server = ScriptedServer(machine.home / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"s": {**server.entry(), "trust": "trusted"}}}))
    machine.write_project(json.dumps({"servers": {"p": server.entry()}}))
    assert fairlead("approve", "p", "--yes").status == 0
    assert fairlead("review", "s", "--allow", "echo").status == 0
    assert fairlead("call", "s.echo", "--yes").status == 0
    assert fairlead("gateway", "token", "add", "laptop").status == 0
    return machine


def contents(machine: Machine) -> tuple[Any, ...]:
    """All that a restore has to bring back."""
    with open_database(store_file(machine.env)) as database:
        values, records = database.read_all()
    tokens = state_folder(machine.env) / "gateway" / "tokens.json"
    kept = [value for value in values if value[0] != "artifacts" and value[1] not in ("rotated", "limits")]
    return kept, records, machine.user_file.read_bytes(), tokens.read_bytes()


def lose_everything(machine: Machine) -> None:
    machine.write_user("{}")
    (state_folder(machine.env) / "gateway" / "tokens.json").unlink()
    with (
        open_database(store_file(machine.env)) as database,
        database.replacing_all([], [], keep=[("audit", "key")]),
    ):
        pass


def test_what_was_backed_up_comes_back(fairlead: Fairlead, used: Machine) -> None:
    before = contents(used)
    made = fairlead("backup", "b.zip", "--json")
    assert made.status == 0
    report = json.loads(made.out)
    assert report["contents"]["pins"] == report["contents"]["servers"] == 1
    assert report["contents"]["consents"] >= 1
    file = used.project / "b.zip"
    assert report["file"] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lose_everything(used)
    assert fairlead("restore", "b.zip", "--dry-run").status == 0
    assert used.user_file.read_text() == "{}"
    assert fairlead("restore", "b.zip").status == 3, "without a terminal it is not done unasked"
    assert used.user_file.read_text() == "{}"
    restored = json.loads(fairlead("restore", "b.zip", "--yes", "--json").out)
    after = contents(used)
    assert after[0] == before[0]
    assert after[1][: len(before[1])] == before[1]
    assert after[2:] == before[2:]
    kept = read_archive(Path(restored["previous"]))
    assert kept.parts["config/fairlead.json"] == b"{}"
    assert stat.S_IMODE(Path(restored["previous"]).stat().st_mode) == 0o600
    assert "restore" in fairlead("audit").out
    assert fairlead("call", "s.echo", "--yes").status == 0


def test_a_projects_files_are_written_only_if_asked(fairlead: Fairlead, used: Machine) -> None:
    text = used.project_file.read_bytes()
    fairlead("backup", "b.zip")
    used.project_file.unlink()
    assert "--project" in fairlead("restore", "b.zip", "--yes").err
    assert not used.project_file.exists()
    assert fairlead("restore", "b.zip", "--yes", "--project").status == 0
    assert used.project_file.read_bytes() == text


def everything_in(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


def keep_secrets(machine: Machine) -> list[bytes]:
    """Put secrets into every place that has some."""
    state = state_folder(machine.env)
    logins = {"version": 1, "servers": {"x": {"access_token": "login-secret-1234567890"}}}
    (state / "mcp-auth.json").write_text(json.dumps(logins))
    (state / "mcp-auth.json").chmod(0o600)
    (state / "consent.key").write_bytes(b"K" * 32)
    (state / "gateway" / "token").write_text("fl_gateway-secret-1234567890")
    stored = machine.user_file.parent / "secrets"
    stored.mkdir(mode=0o700)
    (stored / "s.KEY").write_text("stored-secret-1234567890")
    with open_database(store_file(machine.env)) as database:
        database.put("audit", "key", b"audit-secret-1234567890-123456789", expect=ANY)
    return [
        b"login-secret-1234567890",
        b"S0tLS0tL",
        b"fl_gateway-secret",
        b"stored-secret-1234567890",
        b"YXVkaXQtc2VjcmV0",
    ]


def test_no_secret_is_in_a_backup_unless_asked(fairlead: Fairlead, used: Machine) -> None:
    secrets = keep_secrets(used)
    assert fairlead("backup", "b.zip").status == 0
    assert [secret for secret in secrets if secret in everything_in(used.project / "b.zip")] == []
    made = fairlead("backup", "with.zip", "--with-secrets", "--no-passphrase")
    assert made.status == 0
    assert "secrets in plain text" in made.err
    assert [secret for secret in secrets if secret not in everything_in(used.project / "with.zip")] == []


def test_a_configuration_with_secrets_in_plain_text_is_not_backed_up_unasked(
    fairlead: Fairlead, machine: Machine
) -> None:
    entry = {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer abcdef1234567890abcdef"}}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    refused = fairlead("backup", "b.zip", "--json")
    assert refused.status == 1
    assert "servers.x.headers.Authorization" in json.loads(refused.out)["error"]["message"]
    assert "abcdef1234567890" not in refused.out + refused.err
    assert not (machine.project / "b.zip").exists()


KEY = "abcdef1234567890abcdef"
HEADERS = {"url": "https://example.com/mcp", "headers": {"Authorization": f"Bearer {KEY}"}}
BUCKET = {"endpoint": "https://s3.example", "bucket": "some-bucket", "access_key": "a", "secret_key": "${S}"}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"servers": {"x": HEADERS}}, "servers.x.headers.Authorization"),
        ({"servers": {"x": {"command": "c", "env": {"API_KEY": KEY}}}}, "servers.x.env.API_KEY"),
        (
            {"servers": {"x": {"command": "c", "env": {"DATABASE_URL": f"postgres://me:{KEY}@db/x"}}}},
            "servers.x.env.DATABASE_URL",
        ),
        (
            {"servers": {"x": {"command": "c", "env": {"DSN_": f"Server=db;Password={KEY}"}}}},
            "servers.x.env.DSN_",
        ),
        ({"servers": {"x": {"command": "c", "args": [f"--api-key={KEY}"]}}}, "servers.x.args.0"),
        ({"servers": {"x": {"command": f"c --api-key={KEY}"}}}, "servers.x.command"),
        (
            {"servers": {"x": {"command": "c", "environment": {"API_KEY": KEY}}}},
            "servers.x.environment.API_KEY",
        ),
        ({"servers": {"x": {"transport": {"type": "http", **HEADERS}}}}, "transport.headers.Authorization"),
        ({"mcpServers": {"x": HEADERS}}, "mcpServers.x.headers.Authorization"),
        ({"model": {"provider": "openai", "name": "m", "api_key": KEY}}, "model.api_key"),
        ({"search": {"embeddings": {"url": "http://e", "model": "m", "api_key": KEY}}}, "embeddings.api_key"),
        ({"store": f"redis://:{KEY}@redis/0"}, "store"),
        ({"store": {"url": f"rediss://me:{KEY}@redis/0"}}, "store.url"),
        ({"store": {"url": "redis://redis/0", "key": KEY}}, "store.key"),
        ({"artifacts": {"s3": {**BUCKET, "secret_key": KEY}}}, "artifacts.s3.secret_key"),
        ({"artifacts": {"s3": {**BUCKET, "session_token": KEY}}}, "artifacts.s3.session_token"),
    ],
)
def test_no_plain_secret_is_backed_up_unasked_wherever_it_stands(
    fairlead: Fairlead, machine: Machine, document: dict[str, Any], place: str
) -> None:
    machine.write_user(json.dumps(document))
    refused = fairlead("backup", "b.zip")
    assert refused.status == 1
    assert "in plain text" in refused.err
    assert place in refused.err
    assert KEY not in refused.out + refused.err
    assert not (machine.project / "b.zip").exists()
    if "store" not in document:  # else there is no such Redis
        assert fairlead("backup", "b.zip", "--with-secrets", "--no-passphrase").status == 0


def test_the_secret_of_an_entry_that_another_replaces_is_found_and_the_hint_moves_it(
    fairlead: Fairlead, machine: Machine
) -> None:
    machine.write_user(json.dumps({"servers": {"x": HEADERS}}))
    machine.write_project(json.dumps({"servers": {"x": {"command": "true"}}}))
    refused = fairlead("backup", "b.zip", "--json")
    error = json.loads(refused.out)["error"]
    assert "servers.x.headers.Authorization" in error["message"]
    words = error["hint"].partition("`")[2].partition("`")[0].split()
    assert words[0] == "fairlead"
    assert fairlead(*words[1:]).status == 0
    made = fairlead("backup", "b.zip")
    assert made.status == 0, made.err
    assert KEY.encode() not in everything_in(machine.project / "b.zip")


@pytest.mark.parametrize("first", [True, False])
def test_the_secrets_of_both_entries_with_one_id_are_found(
    fairlead: Fairlead, machine: Machine, first: bool
) -> None:
    entries = [json.dumps(HEADERS), json.dumps({"command": "true"})]
    one, other = entries if first else entries[::-1]
    machine.write_user(f'{{"servers": {{"x": {one}, "x": {other}}}}}')
    refused = fairlead("backup", "b.zip")
    assert refused.status == 1
    assert not (machine.project / "b.zip").exists()
    assert KEY not in refused.out + refused.err


@pytest.mark.parametrize(
    "comment",
    [
        f'// "Authorization": "Bearer {KEY}"',
        f'/* "url": "https://me:{KEY}@example.com" */',
        f'// "api_key":"{KEY}"',
    ],
)
def test_the_secret_of_an_entry_that_was_commented_out_is_found(
    fairlead: Fairlead, machine: Machine, comment: str
) -> None:
    machine.write_user(f'{{\n"servers": {{}}\n{comment}\n}}')
    refused = fairlead("backup", "b.zip")
    assert refused.status == 1
    assert "a comment in line 3" in refused.err
    assert KEY not in refused.out + refused.err


def test_a_file_that_does_not_parse_is_not_backed_up_unasked(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user(f'{{"servers": {{"x": {json.dumps(HEADERS)}')
    refused = fairlead("backup", "b.zip")
    assert refused.status == 1
    assert KEY not in refused.out + refused.err
    assert not (machine.project / "b.zip").exists()
    with pytest.raises(ConfigInvalid):
        plain_secrets(machine.user_file.read_text(), "f")


def test_names_that_look_like_those_of_secrets_are_not_refused(fairlead: Fairlead, machine: Machine) -> None:
    oauth = {
        "client_id": "abcdef1234567890abcdef1234567890ab",
        "client_secret": "${SECRET}",
        "auth_method": "client_secret_post",
        "token_url": "https://id.example/token",
    }
    entry = {
        "url": "https://example.com/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
        "oauth": oauth,
    }
    bundles = {"b": {"token_budget": 10, "always_direct": ["mcp_github_create_issue_1a2b3c4d5e6f"]}}
    rule = {"tool": "mcp_github_create_issue_1a2b3c4d5e6f", "server": "x", "allow": True}
    command = {"command": "uvx", "args": ["--db", "postgres://me:${PASSWORD}@db/x", "mcp-server-git@1.2.3"]}
    document = {
        "servers": {"x": entry, "y": command},
        "bundles": bundles,
        "artifacts": {"s3": BUCKET},
        "store": "redis://:${PASSWORD}@redis/0",
        "policy": {"rules": [rule]},
    }
    assert plain_secrets(json.dumps(document), "f") == []


def test_secrets_are_encrypted_with_a_passphrase(
    fairlead: Fairlead, used: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = keep_secrets(used)
    assert fairlead("backup", "b.zip", "--with-secrets").status == 2, (
        "there is no one to ask for a passphrase"
    )
    monkeypatch.setenv("FAIRLEAD_BACKUP_PASSPHRASE", "correct horse")
    assert fairlead("backup", "b.zip", "--with-secrets").status == 0
    content = (used.project / "b.zip").read_bytes()
    assert not any(secret in content for secret in secrets)
    state = state_folder(used.env)
    (state / "mcp-auth.json").unlink()
    (used.user_file.parent / "secrets" / "s.KEY").unlink()
    monkeypatch.setenv("FAIRLEAD_BACKUP_PASSPHRASE", "wrong horse")
    refused = fairlead("restore", "b.zip", "--yes", "--json")
    assert json.loads(refused.out)["error"]["code"] == "passphrase_needed"
    monkeypatch.delenv("FAIRLEAD_BACKUP_PASSPHRASE")
    assert "FAIRLEAD_BACKUP_PASSPHRASE" in fairlead("restore", "b.zip", "--yes").err
    monkeypatch.setenv("FAIRLEAD_BACKUP_PASSPHRASE", "correct horse")
    assert fairlead("restore", "b.zip", "--yes").status == 0
    assert "login-secret" in (state / "mcp-auth.json").read_text()
    stored = used.user_file.parent / "secrets" / "s.KEY"
    assert stored.read_text() == "stored-secret-1234567890"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600


def packed(**parts: bytes) -> dict[str, bytes]:
    """A sound archive with these parts, as its files."""
    named: Any = {
        name.replace("__", "/").replace("_json", ".json"): content for name, content in parts.items()
    }
    content = pack(named, made_by="test", made_at=0.0, has_secrets=False, passphrase=None)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "name", ["../../.bashrc", "/etc/passwd", "config/../x", "C:\\x", "state.db", "config/"]
)
def test_no_name_in_an_archive_is_a_path(tmp_path: Path, name: str) -> None:
    files = {**packed(config__fairlead_json=b"{}"), name: b"evil"}
    with pytest.raises(ConfigUnreadable, match="not restored"):
        read_archive(written(tmp_path / "b.zip", files))


def test_a_name_in_the_manifest_is_no_path_either(tmp_path: Path) -> None:
    files = packed(config__fairlead_json=b"{}")
    manifest = json.loads(files["manifest.json"])
    manifest["parts"]["../x"] = manifest["parts"].pop("config/fairlead.json")
    files["../x"] = files.pop("config/fairlead.json")
    files["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(ConfigUnreadable, match="a part that no backup has"):
        read_archive(written(tmp_path / "b.zip", files))


def test_links_duplicates_and_other_kinds_are_refused(tmp_path: Path) -> None:
    files = packed(config__fairlead_json=b"{}")
    link = zipfile.ZipInfo("config/fairlead.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = tmp_path / "link.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", files["manifest.json"])
        archive.writestr(link, b"{}")
    with pytest.raises(ConfigUnreadable, match="no plain file"):
        read_archive(path)
    twice = tmp_path / "twice.zip"
    with zipfile.ZipFile(twice, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("config/fairlead.json", b"[]")
    with pytest.raises(ConfigUnreadable, match="twice"):
        read_archive(twice)


def test_a_part_that_was_changed_or_left_out_is_noticed(tmp_path: Path) -> None:
    files = packed(config__fairlead_json=b"{}")
    with pytest.raises(ConfigUnreadable, match="changed or is damaged"):
        read_archive(written(tmp_path / "a.zip", files | {"config/fairlead.json": b"[]"}))
    with pytest.raises(ConfigUnreadable, match="not those in its manifest"):
        read_archive(written(tmp_path / "b.zip", {"manifest.json": files["manifest.json"]}))
    with pytest.raises(ConfigUnreadable, match="no manifest"):
        read_archive(written(tmp_path / "c.zip", {"config/fairlead.json": b"{}"}))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    files = packed(config__fairlead_json=b"{}")
    bomb = b" " * (MOST_BYTES["config/fairlead.json"] + 1)
    with pytest.raises(ConfigUnreadable):
        read_archive(written(tmp_path / "a.zip", files | {"config/fairlead.json": bomb}))
    with pytest.raises(ConfigUnreadable):
        read_archive(written(tmp_path / "b.zip", files | {"manifest.json": bomb}))
    manifest = json.loads(files["manifest.json"])
    manifest["parts"]["config/fairlead.json"]["size"] = len(bomb)
    files["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(ConfigUnreadable, match="too large"):
        read_archive(written(tmp_path / "c.zip", files | {"config/fairlead.json": bomb}))


def test_an_archive_of_a_newer_release_says_so(tmp_path: Path) -> None:
    files = packed(config__fairlead_json=b"{}")
    manifest = {**json.loads(files["manifest.json"]), "format": 2, "more": True}
    with pytest.raises(ConfigUnreadable, match="newer Fairlead"):
        read_archive(written(tmp_path / "a.zip", files | {"manifest.json": json.dumps(manifest).encode()}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config/fairlead.json", b"{ nonsense"),
        ("config/fairlead.json", b"\xff\xfe"),
        ("state.jsonl", b"nonsense\n"),
        ("state.jsonl", b'{"value":["a","b","AA=="]}\n{"value":["a","b","AA=="]}\n'),
        ("state.jsonl", b"{}\n"),
        ("secrets.json", b'{"stored": {"../x": "evil"}}'),
        ("secrets.json", b'{"gateway_tokens": {"tokens.json": "evil"}}'),
        ("secrets.json", b'{"more": 1}'),
    ],
)
def test_parts_that_make_no_sense_change_nothing(
    fairlead: Fairlead, used: Machine, name: str, content: bytes
) -> None:
    before = contents(used)
    parts: Any = {name: content}
    archive = pack(parts, made_by="test", made_at=0.0, has_secrets=True, passphrase=None)
    (used.project / "b.zip").write_bytes(archive)
    refused = fairlead("restore", "b.zip", "--yes")
    assert refused.status == 1
    assert "bug" not in refused.err
    assert contents(used) == before


def test_a_file_that_cannot_be_written_leaves_everything_as_it_was(fairlead: Fairlead, used: Machine) -> None:
    fairlead("backup", "b.zip")
    lose_everything(used)
    before = store_file(used.env).read_bytes() and used.user_file.read_bytes()
    tokens = state_folder(used.env) / "gateway" / "tokens.json"
    tokens.mkdir()  # which no file can replace
    refused = fairlead("restore", "b.zip", "--yes")
    assert refused.status == 1, refused.err
    assert used.user_file.read_bytes() == before
    with open_database(store_file(used.env)) as database:
        values, _ = database.read_all()
    assert [value for value in values if value[0] == "pins"] == []


def test_nothing_is_restored_while_a_gateway_runs(fairlead: Fairlead, used: Machine) -> None:
    fairlead("backup", "b.zip")
    with gateway(used):
        refused = fairlead("restore", "b.zip", "--yes")
    assert refused.status == 1
    assert "a gateway runs" in refused.err


def test_a_backup_overwrites_no_file_and_follows_no_link(fairlead: Fairlead, used: Machine) -> None:
    (used.project / "b.zip").write_text("mine")
    assert fairlead("backup", "b.zip").status == 1
    assert (used.project / "b.zip").read_text() == "mine"
    os.symlink(used.home / "elsewhere", used.project / "link.zip")
    assert fairlead("backup", "link.zip").status == 1
    assert not (used.home / "elsewhere").exists()

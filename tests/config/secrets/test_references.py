"""References, and what people may see of secrets."""

import json
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.secrets.redaction import literal_secrets, looks_secret, redact_entry, redact_url
from fairlead.config.secrets.references import SecretReference, resolve, resolve_all, split
from fairlead.config.secrets.storage import ForgottenSecrets, forget_secrets, stash_secrets
from fairlead.errors import ConfigUnwritable, SecretUnavailable
from tests.conftest import Machine, write


class MemoryKeyring(keyring.backend.KeyringBackend):
    """A keyring that works, for a machine that has none."""

    priority = 10  # pyright: ignore[reportAssignmentType] - the base class makes this a class property

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def working_keyring(machine: Machine) -> Any:
    before, working = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(working)
    yield working
    keyring.set_keyring(before)


@pytest.mark.requirement("NEED-22")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${A}", "1"),
        ("x${A}y${B}z", "x1y2z"),
        ("${MISSING:-d}", "d"),
        ("${MISSING:-}", ""),
        ("${A:-d}", "1"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A $ {A} }{", "$A $ {A} }{"),
        ("${file:secret}", "from file"),
        ("Bearer ${file:./secret}", "Bearer from file"),
        ("${MISSING:-a:-b/c d}", "a:-b/c d"),
    ],
)
def test_references_stand_for_values(tmp_path: Path, text: str, value: str) -> None:
    write(tmp_path / "secret", "from file\r\n")
    assert resolve(text, env={"A": "1", "B": "2"}, base=tmp_path) == value


@pytest.mark.parametrize(
    "text", ["${", "${}", "${A", "${A B}", "${env:A}", "${1A}", "${file:}", "${keyring:x}", "${A:b}"]
)
def test_a_malformed_reference_says_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"\$"):
        split(text)
    with pytest.raises(SecretUnavailable):
        resolve(text, env={}, base=tmp_path)


def test_a_missing_secret_names_the_field_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        SecretUnavailable, match=r"headers\.Authorization: the environment variable `TOKEN`"
    ) as caught:
        resolve_all({"headers": {"Authorization": "Bearer ${TOKEN}"}}, env={}, base=tmp_path)
    assert caught.value.hint == "run `export TOKEN=…`"
    with pytest.raises(SecretUnavailable, match=r"args\[1\].*nothing-here"):
        resolve_all({"args": ["a", "${file:nothing-here}"]}, env={}, base=tmp_path)


def test_the_keyring_is_asked_by_service_and_user(working_keyring: MemoryKeyring, tmp_path: Path) -> None:
    working_keyring.kept["my/service", "me"] = "from keyring"
    assert resolve("${keyring:my/service/me}", env={}, base=tmp_path) == "from keyring"
    with pytest.raises(SecretUnavailable, match="no such entry"):
        resolve("${keyring:my/service/you}", env={}, base=tmp_path)


def test_a_machine_without_a_keyring_says_so(machine: Machine, tmp_path: Path) -> None:
    from keyring.backends.fail import Keyring

    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())
    try:
        with pytest.raises(SecretUnavailable, match="the keyring cannot be used"):
            resolve("${keyring:a/b}", env={}, base=tmp_path)
    finally:
        keyring.set_keyring(before)


@given(st.text())
def test_escaped_text_comes_out_as_it_went_in(text: str) -> None:
    assert resolve(text.replace("${", "$${"), env={}, base=Path()) == text


@given(st.text())
def test_splitting_any_text_gives_pieces_or_one_kind_of_error(text: str) -> None:
    try:
        pieces = split(text)
    except ValueError:
        return
    rejoined = "".join(str(p) if isinstance(p, SecretReference) else p.replace("${", "$${") for p in pieces)
    assert rejoined == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer abcdefghij"),
        ("GITHUB_TOKEN", "anything"),
        ("X-Api-Key", "12345"),
        ("DB_PASSWORD", "hunter2"),
        ("HARMLESS", "ghp_abcdefghijklmnop"),
        ("HARMLESS", "sk-proj-abcdefghijklmnop"),
        ("HARMLESS", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"),
        ("HARMLESS", "AKIAABCDEFGHIJKLMNOP"),
        ("DATABASE_URL", "postgres://me:hunter2@db.example/x"),
        ("HARMLESS", "a8f5f167f44f4964e6c998dee827110c"),
        ("TOKEN", "prefix-${X}"),
    ],
)
def test_secrets_are_recognised(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer ${TOKEN}"),
        ("TOKEN", "${TOKEN}"),
        ("NODE_ENV", "production"),
        ("X-Workspace", "codelia"),
        ("KEYBOARD", "qwerty"),
        ("HOME", "/home/someone/with/a/rather/long/path/name"),
        ("USE_AUTH", "true"),
        ("MONKEY", "george"),
    ],
)
def test_harmless_values_stay_readable(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_a_shown_entry_has_no_secret_and_keeps_its_references() -> None:
    secret = "ghp_abcdefghijklmnop1234"
    entry: dict[str, Any] = {
        "url": f"https://me:{secret}@example.com/mcp?token={secret}&page=2",
        "headers": {"Authorization": f"Bearer {secret}", "X-Api-Key": "${KEY}", "X-Mode": "fast"},
        "oauth": {"client_id": "me", "client_secret": secret},
        "headers_helper": ["helper", f"--token={secret}"],
    }
    local = {
        "command": "run",
        "args": [
            "--token",
            secret,
            f"--api-key={secret}",
            "--header",
            f"Authorization: Bearer {secret}",
            "file.txt",
        ],
        "env": {"TOKEN": secret, "OTHER": f"${{OTHER:-{secret}}}", "LEVEL": "debug"},
    }
    shown = json.dumps([redact_entry(entry), redact_entry(local)])
    assert secret not in shown
    assert '"${KEY}"' in shown
    assert "page=2" in shown
    assert '"debug"' in shown
    assert '"file.txt"' in shown
    assert ("env", "TOKEN") in set(literal_secrets(local))
    assert ("url",) in set(literal_secrets(entry))


def test_a_url_without_secrets_is_shown_as_it_is() -> None:
    for url in ("https://example.com/mcp?page=2#x", "http://[::1]:80/", "not a url", "http://[bad"):
        assert redact_url(url) == url


def test_secrets_given_on_the_command_line_are_put_away_in_the_keyring(
    working_keyring: MemoryKeyring, tmp_path: Path
) -> None:
    entry: dict[str, Any] = {
        "url": "https://x",
        "headers": {"Authorization": "Bearer abcdefgh", "X-Mode": "fast"},
    }
    written, moved = stash_secrets("x", entry, {}, file=tmp_path / "fairlead.json")
    assert written["headers"] == {"Authorization": f"Bearer {moved[0].reference}", "X-Mode": "fast"}
    [(service, name)] = working_keyring.kept
    assert service == "fairlead"
    assert name.startswith("x.Authorization.")
    assert working_keyring.kept == {("fairlead", name): "abcdefgh"}
    assert moved[0].reference == f"${{keyring:fairlead/{name}}}"
    assert [secret.field for secret in moved] == ["headers.Authorization"]
    assert entry["headers"]["Authorization"] == "Bearer abcdefgh"  # the caller's own is untouched


def test_keyring_entries_of_two_files_are_apart_and_deleted_with_their_own_file(
    working_keyring: MemoryKeyring, tmp_path: Path
) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    entry = {"command": "run", "env": {"API_KEY": "sk-AAAAAAAAAAAAAAAAAAAA"}}
    first, _ = stash_secrets("k", entry, {}, file=one)
    second, _ = stash_secrets("k", {**entry, "env": {"API_KEY": "sk-BBBBBBBBBBBBBBBBBBBB"}}, {}, file=other)
    assert len(working_keyring.kept) == 2
    kept = forget_secrets(other, (), first, {})
    assert kept == ForgottenSecrets(deleted=[], kept=[first["env"]["API_KEY"]])
    assert len(working_keyring.kept) == 2
    assert forget_secrets(other, (), second, {}).deleted == [second["env"]["API_KEY"]]
    assert list(working_keyring.kept.values()) == ["sk-AAAAAAAAAAAAAAAAAAAA"]


def test_a_secret_is_never_overwritten_even_by_one_of_the_same_file_and_field(machine: Machine) -> None:
    file = machine.project / "fairlead.json"
    texts = [f"sk-{number:020d}" for number in range(5)]
    made = [
        stash_secrets("k", {"command": "run", "env": {"API_KEY": text}}, machine.env, file=file)[0]
        for text in texts
    ]
    found = [resolve(entry["env"]["API_KEY"], env=machine.env, base=machine.project) for entry in made]
    assert found == texts


def test_a_secret_is_known_by_the_real_path_of_its_file(machine: Machine) -> None:
    file, link = machine.project / "real.json", machine.project / "link.json"
    file.write_text("{}")
    link.symlink_to(file)
    entry, _ = stash_secrets("k", {"command": "run", "env": {"API_KEY": "s3cret"}}, machine.env, file=link)
    assert forget_secrets(file, (), entry, machine.env).deleted == [entry["env"]["API_KEY"]]


@pytest.mark.parametrize(
    "name",
    [
        "k.API_KEY",
        "k.API_KEY.0123456789ab",
        "k.API_KEY.0123456789ab-0123456789abcdef",
        "k.API_KEY.-0123456789abcdef",
        "k.args.1.0",
    ],
)
def test_a_secret_of_an_earlier_release_or_another_file_is_kept(machine: Machine, name: str) -> None:
    kept = machine.home / ".config/fairlead/secrets" / name
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("s3cret")
    reference = f"${{file:~/.config/fairlead/secrets/{name}}}"
    entry = {"command": "run", "env": {"API_KEY": reference}}
    forgotten = forget_secrets(machine.project / "fairlead.json", (), entry, machine.env)
    assert forgotten == ForgottenSecrets(deleted=[], kept=[reference])
    assert resolve(reference, env=machine.env, base=machine.project) == "s3cret"


def test_without_a_keyring_they_go_into_a_file_only_the_user_can_read(machine: Machine) -> None:
    before = keyring.get_keyring()
    from keyring.backends.fail import Keyring

    keyring.set_keyring(Keyring())
    try:
        entry = {"command": "run", "env": {"API_KEY": "s3cret"}}
        written, _ = stash_secrets("x", entry, machine.env, file=machine.project / "fairlead.json")
    finally:
        keyring.set_keyring(before)
    reference = written["env"]["API_KEY"]
    [file] = (machine.home / ".config/fairlead/secrets").iterdir()
    assert file.name.startswith("x.API_KEY.")
    assert reference == f"${{file:~/.config/fairlead/secrets/{file.name}}}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert resolve(reference, env=machine.env, base=machine.project) == "s3cret"


def test_of_an_entry_whose_secrets_cannot_all_be_stored_none_is_left_behind(machine: Machine) -> None:
    entry = {
        "command": "run",
        "env": {"API_KEY": "sk-AAAAAAAAAAAAAAAA", "API_KEY" + "_X" * 150: "sk-BBBBBBBBBBBB"},
    }
    with pytest.raises(ConfigUnwritable, match="too long"):
        stash_secrets("k", entry, machine.env, file=machine.project / "fairlead.json")
    assert [*(machine.user_file.parent / "secrets").iterdir()] == []

"""Nothing but the gate cleans or masks what servers say; and which values are registered as secrets."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairlead
from fairlead.catalog.sanitize.definitions import clean_offers, clean_tool
from fairlead.catalog.tools import PromptOffer, ToolEntry, ToolKey
from fairlead.config.secrets.masking import MASK, SECRETS, Masker
from fairlead.config.secrets.redaction import is_ordinary, proxy_secrets, secret_values

SOURCE = Path(fairlead.__file__).parent

CLEANING = {"clean", "may_hide", "has_hiding_escape"}
MASKING = {"mask", "mask_known", "may_hold"}
ALLOWED = {
    "catalog/sanitize/gate.py",
    "catalog/sanitize/cleaner.py",  # part of the gate
    "catalog/sanitize/text.py",  # which defines it
    "config/secrets/masking.py",
    "config/secrets/redaction.py",  # values of the user's own configuration, in a `repr`
    "config/secrets/log_filter.py",  # our own log records
    "policy/argument_values.py",  # what a caller sends, read as rules read it
    "policy/path_spellings.py",
    "policy/argument_shapes.py",  # what a caller sends, for the audit
    "console/prompt.py",  # what the user types: a line with a secret is not kept
}


def _uses(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "fairlead.catalog.sanitize.text":
            yield from (name.name for name in node.names if name.name in CLEANING)
        if isinstance(node, ast.Attribute) and node.attr in MASKING:
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id == "SECRETS":
                yield f"SECRETS.{node.attr}"


@pytest.mark.requirement("HARD-61")
def test_no_module_but_the_gate_cleans_or_masks() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): sorted(_uses(ast.parse(path.read_text())))
        for path in SOURCE.rglob("*.py")
    }
    assert {name: uses for name, uses in found.items() if uses and name not in ALLOWED} == {}


SECRET = "sk-live-Zx81-definition-secret"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(Masker()).items():
        monkeypatch.setattr(SECRETS, name, value)
    SECRETS.learn(SECRET)


@pytest.mark.requirement("HARD-62")
@pytest.mark.usefixtures("known")
def test_a_secret_in_a_definition_is_masked() -> None:
    definition = b'{"name":"echo","description":"uses %b","inputSchema":{"type":"object"}}' % SECRET.encode()
    entry = ToolEntry(
        key=ToolKey(server_id="s", tool="echo"),
        definition=definition,
        title=None,
        description=f"uses {SECRET}",
    )
    cleaned = clean_tool(entry).entry
    assert SECRET.encode() not in cleaned.definition
    assert cleaned.description == f"uses {MASK}"


@pytest.mark.requirement("HARD-62")
@pytest.mark.usefixtures("known")
def test_a_secret_in_a_prompt_is_masked() -> None:
    (prompt,) = clean_offers("s", PromptOffer, [b'{"name":"p","description":"with %b"}' % SECRET.encode()])
    assert prompt.description == f"with {MASK}"


@pytest.mark.requirement("HARD-62")
@pytest.mark.usefixtures("known")
def test_a_definition_that_was_seen_before_a_secret_was_known_is_masked_from_then_on() -> None:
    later = "another-Secret-4471"
    definition = b'{"name":"e","description":"\\u200b %b","inputSchema":{"type":"object"}}' % later.encode()
    entry = ToolEntry(
        key=ToolKey(server_id="s", tool="e"), definition=definition, title=None, description=None
    )
    assert later.encode() in clean_tool(entry).entry.definition
    SECRETS.learn(later)
    assert later.encode() not in clean_tool(entry).entry.definition


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    ("entry", "resolved", "secret"),
    [
        ({"env": {"PLAIN": "${VAR}"}}, {"env": {"PLAIN": "value-of-A-17"}}, "value-of-A-17"),
        ({"env": {"DB": "pre-${VAR}-post"}}, {"env": {"DB": "pre-s3cretValue-post"}}, "s3cretValue"),
        ({"args": ["--x", "${VAR}"]}, {"args": ["--x", "opaqueValue99"]}, "opaqueValue99"),
        ({"args": ["${keyring:app/key}"]}, {"args": ["from-The-ring"]}, "from-The-ring"),
        ({"env": {"A": "${file:f}"}}, {"env": {"A": "fileContent77"}}, "fileContent77"),
        ({"url": "https://x/${VAR}/mcp"}, {"url": "https://x/tenantKey4711/mcp"}, "tenantKey4711"),
        (
            {"headers": {"X-Tenant": "acme-Tenant-0815"}},
            {"headers": {"X-Tenant": "acme-Tenant-0815"}},
            "acme-Tenant-0815",
        ),
        ({"headers": {"X-A": "Bearer ${V}"}}, {"headers": {"X-A": "Bearer opaque-17-tok"}}, "opaque-17-tok"),
        ({"env": {"API_TOKEN": "${V}"}}, {"env": {"API_TOKEN": "plainwords"}}, "plainwords"),
        ({"env": {"U": "${V}"}}, {"env": {"U": "postgres://me:hunter2222@db/x"}}, "hunter2222"),
    ],
)
def test_what_a_reference_or_a_header_holds_is_a_secret(
    entry: dict[str, object], resolved: dict[str, object], secret: str
) -> None:
    assert secret in set(secret_values(entry, resolved))


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    "ordinary",
    [
        *("/home/me/projects", "~/notes", "./data", "C:\\Users\\me", "localhost", "localhost:8080"),
        *("https://example.com/mcp", "production", "en-us", "12345678", "2026-11-15", "api.example.com"),
        *("127.0.0.1:5432", "application/json", "application/json, text/event-stream"),
    ],
)
def test_what_is_ordinary_is_not_masked(ordinary: str) -> None:
    assert is_ordinary(ordinary)
    entry, resolved = {"args": ["${VAR}"]}, {"args": [ordinary]}
    assert ordinary not in set(secret_values(entry, resolved))


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    "secret",
    [
        *("hunter22", "correct-horse-battery", "sk-live-1234567890abcd", "https://me:pass1234@example.com/"),
        *("Zm9vYmFyMTIzNDU2Nzg5MDEyMzQ1", "/AbCdEf0123456789AbCdEf0123456789", "p4ssw0rd"),
    ],
)
def test_what_may_be_a_secret_is_not_ordinary(secret: str) -> None:
    assert not is_ordinary(secret)


@pytest.mark.requirement("HARD-62")
def test_a_proxys_password_is_a_secret() -> None:
    env = {
        "HTTPS_PROXY": "http://me:proxyPass1@proxy:3128",
        "http_proxy": "you:otherPass2@proxy:3128",
        "X": "a@b",
    }
    assert {"proxyPass1", "otherPass2"} <= set(proxy_secrets(env))

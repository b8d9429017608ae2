"""What the tests of formats share: a place that is nobody's, entries of every kind, a way to compare them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fairlead.config.dialects.dialect import ConfigDialect, ConversionNote, Entry, ImportedDocument
from fairlead.config.dialects.references import NotExpressible, Piece, in_our_words
from fairlead.config.dialects.registry import ALL
from fairlead.config.dialects.syntax import dump, load
from fairlead.config.paths import MachinePaths
from fairlead.config.secrets.references import SecretReference
from fairlead.config.untyped import is_object

# A busy machine makes hypothesis slow, not wrong.
quick = settings(
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

WRITERS = [dialect for dialect in ALL if dialect.write]
HOME, CWD = Path("/home/ada"), Path("/home/ada/work/app")


def place(platform: str = "linux", **env: str) -> MachinePaths:
    return MachinePaths(home=HOME, cwd=CWD, env=env, platform=platform)


def read(dialect: ConfigDialect, data: dict[str, Any], **env: str) -> ImportedDocument:
    return dialect.read(data, place(**env))


def rewritten(
    dialect: ConfigDialect, entries: dict[str, Entry]
) -> tuple[ImportedDocument, list[ConversionNote]]:
    """What is read from a file that was written from these entries, and what the writing noted."""
    assert dialect.write is not None
    exported = dialect.write(entries)
    text = dump(exported.document, dialect.syntax)
    return dialect.read(load(text, dialect.syntax), place()), exported.notes


def notes_about(notes: list[ConversionNote], server_id: str | None) -> dict[str, str]:
    return {note.field: note.message for note in notes if note.server_id == server_id}


def flat(entry: Entry) -> dict[str, Any]:
    """An entry as one level of dotted fields, so that the loss of any one shows."""
    if isinstance(mode := entry.get("approval"), str):
        entry = entry | {"approval": {"default": mode}}
    return dict(_flat(entry))


def _flat(entry: Entry, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in entry.items():
        if is_object(value) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
server_ids = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
milliseconds = st.integers(1, 600_000)
tool_names = st.lists(
    st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True), min_size=1, max_size=3, unique=True
)
harmless_text = st.text(st.sampled_from("abz059 /._-:=@'\"\\ü"), min_size=1, max_size=10)
tricky_text = st.text(st.sampled_from("a5_ ${}:-%env/'\""), min_size=1, max_size=12)

variables = names.map(lambda name: SecretReference(kind="env", name=name))
defaults = st.tuples(names, st.text(st.sampled_from("ab/. 1"), max_size=5)).map(
    lambda pair: SecretReference(kind="env", name=pair[0], default=pair[1])
)
files = st.from_regex(r"(~/)?[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True).map(
    lambda path: SecretReference(kind="file", name=path)
)
own_secrets = names.map(lambda name: SecretReference(kind="keyring", name=f"fairlead/{name}"))
secrets = st.tuples(names, names).map(lambda pair: SecretReference(kind="keyring", name="/".join(pair)))
tokens = st.sampled_from(
    ["$A", "${A}", "${A:-b}", "${env:A}", "${input:a}", "${userHome}", "${file:a}", "{env:A}", "{file:a}"]
)
"""Literal text that one format or another would take for a reference."""
anything = st.one_of(tricky_text, tokens, variables, defaults, files, secrets, own_secrets)


def texts_of(pieces: st.SearchStrategy[Piece]) -> st.SearchStrategy[str]:
    """Strings of ours made of these pieces."""
    return st.lists(pieces, min_size=1, max_size=3).map(_said_or_none).filter(bool).map(str)


def _said_or_none(pieces: list[Piece]) -> str | None:
    try:
        return in_our_words(pieces)
    except NotExpressible:
        return None


def some(fields: dict[str, st.SearchStrategy[Any]], *wanted: str) -> st.SearchStrategy[Entry]:
    """Entries with any of these fields, and with the wanted ones always."""
    required = {name: strategy for name, strategy in fields.items() if name in wanted}
    optional = {name: strategy for name, strategy in fields.items() if name not in wanted}
    return st.fixed_dictionaries(required, optional=optional)


def table(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(keys, values, min_size=1, max_size=3)


headers = st.from_regex(r"X-[A-Z][a-z]{0,6}", fullmatch=True)
urls = st.from_regex(r"https://[a-z]{1,8}\.example/[a-z]{0,5}", fullmatch=True)


def any_entries() -> st.SearchStrategy[Entry]:
    """Entries with every field there is, saying whatever can be said."""
    words = texts_of(anything)
    modes = st.sampled_from(["allow", "ask", "auto", "deny"])
    patterns = st.lists(
        st.sampled_from(["read", "write", "get_*", "x?"]), min_size=1, max_size=3, unique=True
    )
    common: dict[str, st.SearchStrategy[Any]] = {
        "enabled": st.booleans(),
        "required": st.booleans(),
        "trust": st.sampled_from(["trusted", "untrusted"]),
        "allow_tools": patterns,
        "deny_tools": patterns,
        "approval": st.one_of(
            modes,
            some(
                {"default": modes, "tools": st.dictionaries(st.sampled_from(["a", "b*"]), modes, min_size=1)},
                "tools",
            ),
        ),
        "sharing": st.sampled_from(["auto", "shared", "session"]),
        "lazy": st.booleans(),
        **{
            f"{limit}_ms": milliseconds
            for limit in ("startup_timeout", "request_timeout", "idle_stop", "tools_ttl")
        },
        "max_request_ms": milliseconds,
        "max_result_bytes": st.integers(1024, 10_000),
        "max_message_bytes": st.integers(1024, 10_000),
        "description": words,
    }
    oauth_words = ("authorization_url", "token_url", "registration_url", "client_id", "client_secret")
    oauth: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(oauth_words, words) | {
        "scope": st.sampled_from(["read", "read write"]),
        "callback_port": st.integers(1, 65535),
        "client_metadata_url": urls,
        "grant": st.just("client_credentials"),
    }
    local = common | {
        "transport": st.just("stdio"),
        "command": words,
        "args": st.lists(words, min_size=1, max_size=3),
        "cwd": words,
        "env": table(names, words),
        "sandbox": st.just({"kind": "bwrap", "network": True}),
    }
    remote = common | {
        "transport": st.sampled_from(["http", "sse"]),
        "url": words,
        "headers": table(headers, words),
        "headers_helper": st.lists(words, min_size=1, max_size=3),
        "oauth": st.one_of(st.just(False), st.fixed_dictionaries({}, optional=oauth).filter(bool)),
        "auth_provider_id": words,
        "account": words,
    }
    return st.one_of(some(local, "command"), some(remote, "url"))

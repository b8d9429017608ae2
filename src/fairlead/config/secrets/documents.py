"""Secrets in plain text anywhere in a configuration file as it is written, whether in effect or not.

`literal_secrets` judges one server entry. A file also has settings, entries that another file's entry
replaces, entries whose id is there twice, keys that are misspelled or of another agent's format, and
comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fairlead.config.document import jsonc
from fairlead.config.secrets.masking import has_token
from fairlead.config.secrets.redaction import (
    has_inner_secret,
    literal_part,
    literal_secrets,
    looks_secret,
    redact_url,
)
from fairlead.config.secrets.references import FieldPath, has_references
from fairlead.config.untyped import is_list, is_object, value_at
from fairlead.errors import ConfigError

_PUBLIC: Final = frozenset(
    {
        "access_key",
        "auth_method",
        "auth_provider_id",
        "authProviderId",
        "authorization_url",
        "key_algorithm",
        "token_url",
    }
)
"""Settings whose names look as those of secrets do, and which are none."""
_NAMED_BY_USER: Final = frozenset({"env", "environment", "headers", "http_headers", "httpHeaders"})
_WORDS: Final = frozenset({"args", "arguments", "command", "cmd", "headers_helper", "env", "environment"})
"""Keys of command lines, and of variables that are written as `NAME=value`."""
_STRING_OR_COMMENT: Final = re.compile(rf'"(?:[^"\\]++|\\.)*+"|({jsonc.COMMENT})', re.DOTALL)
_MEMBER: Final = re.compile(r'"([^"\\\n]{1,100})"\s{0,8}:\s{0,8}"([^"\\\n]*)"')
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}+://[^\s\"'<>]++")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainSecret:
    """A secret in plain text in a configuration file."""

    place: str
    """Its path in the document, or the line of the comment that it is in."""
    server_id: str | None = None
    """The server whose `fairlead stash` moves it, if a command can."""


def plain_secrets(text: str, file: str) -> list[PlainSecret]:
    """Find every secret in plain text in a configuration file.

    Args:
        text: The file's text.
        file: Its name in errors.

    Raises:
        ConfigError: The text is no JSON, or repeats so many keys that it cannot be searched.
    """
    if not text.strip():
        return []
    document = jsonc.parse(text, file=file, collects=True)
    if len(document.replaced) > jsonc.MAX_READINGS:
        raise ConfigError(f"`{file}` repeats too many keys to be searched for secrets")
    found = {path: _movable(document.data, path) for path in _in_value(document.data)}
    for _, reading in document.readings(file):
        for path in _in_value(reading.data):
            found.setdefault(path, None)  # a command sees the entry that counts, and not this one
    places = [PlainSecret(place=".".join(map(str, path)), server_id=of) for path, of in found.items()]
    return [*places, *(PlainSecret(place=f"a comment in line {line}") for line in _in_comments(text))]


def _movable(document: jsonc.Json, path: FieldPath) -> str | None:
    """The server whose entry a secret can be moved out of by command."""
    if len(path) < 3 or path[0] != "servers" or not is_object(document):
        return None
    servers = document["servers"]
    entry = servers.get(str(path[1])) if is_object(servers) else None
    movable = is_object(entry) and path[2:] in set(literal_secrets(entry))
    return str(path[1]) if movable and not has_references(value_at(entry, path[2:])) else None


def _in_value(value: object) -> Iterator[FieldPath]:
    waiting: list[tuple[FieldPath, object]] = [((), value)]
    seen: set[FieldPath] = set()
    while waiting:
        path, value = waiting.pop()
        for found in _directly_in(path, value):
            if found not in seen:
                seen.add(found)
                yield found
        if is_object(value):
            waiting += [((*path, name), value[name]) for name in reversed(value)]
        elif is_list(value):
            waiting += [((*path, index), value[index]) for index in range(len(value) - 1, -1, -1)]


def _directly_in(path: FieldPath, value: object) -> Iterator[FieldPath]:
    """Secrets in a value, but not in the objects and lists inside it: those are looked at in their turn."""
    names = [step for step in path if isinstance(step, str)]
    if is_object(value):
        yield from ((*path, *field) for field in literal_secrets(value))
    elif is_list(value) and names and names[-1] in _WORDS:
        yield from ((*path, *field[1:]) for field in literal_secrets({"args": value}))
    elif isinstance(value, str) and names and _is_secret(names, value):
        yield path


def _is_secret(names: list[str], text: str) -> bool:
    name = names[-1]
    if redact_url(text) != text or has_token(literal_part(text)):
        return True
    is_named_by_user = len(names) > 1 and names[-2] in _NAMED_BY_USER
    if is_named_by_user or name in _WORDS:
        words = [*literal_secrets({"args": text.split()})] if name in _WORDS else []
        named = is_named_by_user and looks_secret(name, text)
        return named or bool(words) or (not has_references(text) and has_inner_secret(text))
    # By its name alone: names of tools and of clients have the shape of random text, too.
    return name not in _PUBLIC and looks_secret(name, "x") and looks_secret(name, text)


def _in_comments(text: str) -> Iterator[int]:
    """Lines of comments with a secret: an entry that was commented out, say."""
    for found in _STRING_OR_COMMENT.finditer(text):
        comment = found[1]
        if comment and (
            has_token(comment)
            or any(
                name not in _PUBLIC and looks_secret(name, value) for name, value in _MEMBER.findall(comment)
            )
            or any(redact_url(url) != url for url in _URL.findall(comment))
        ):
            yield text.count("\n", 0, found.start()) + 1

"""What a person may see of an entry: references as they are, literal secrets as `•••`."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from fairlead.config.secrets import FieldPath, Reference, split
from fairlead.config.shapes import as_list, as_object

MASK = "•••"

_SENSITIVE_NAME = re.compile(
    r"(?i)(^|[-_. ])(api[-_]?key|apikey|key|token|pat|secret|password|passwd|pwd|auth|authorization|"
    r"credentials?|cookie|private|dsn|bearer|jwt|session|signature|sig)s?($|[-_. ])"
    r"|(token|secret|password|apikey|authkey)$"
)
_TOKEN_SHAPE = re.compile(
    r"(?i)\b(bearer|basic)\s+\S{6,}"
    r"|\b(sk|pk|rk)[-_][a-z0-9_-]{12,}"
    r"|\b(gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|ya29\.|npm_|pypi-|hf_|lin_api_|ntn_|secret_)[A-Za-z0-9_-]{8,}"
    r"|\b(AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"
    r"|://[^/\s:@]+:[^/\s@]+@"
)
_RANDOM_SHAPE = re.compile(r"(?=[A-Za-z0-9+/_=-]*[0-9])(?=[A-Za-z0-9+/_=-]*[A-Za-z])[A-Za-z0-9+_=-]{28,}")
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)


def looks_secret(name: str, value: str) -> bool:
    """Judge by the field's name and the value's shape. References alone are no secret."""
    literal = literal_part(value)
    if not literal.strip() or literal.strip().lower() in ("bearer", "basic", "token"):
        return False
    if _TOKEN_SHAPE.search(literal) or _RANDOM_SHAPE.fullmatch(literal.strip()):
        return True
    return bool(_SENSITIVE_NAME.search(name)) and literal.lower() not in ("true", "false", "none", "0", "1")


def literal_part(text: str) -> str:
    """What a text says itself: all but its references, and what stands in when they point at nothing."""
    return "".join(piece if isinstance(piece, str) else piece.default or "" for piece in _pieces(text))


def literal_secrets(entry: dict[str, Any]) -> Iterator[FieldPath]:
    """The fields of a server entry that hold a secret in plain text."""
    for group in ("env", "headers"):
        for name, value in _texts(entry.get(group)).items():
            if looks_secret(name, value):
                yield group, name
    oauth = _texts(entry.get("oauth"))
    if literal_part(oauth.get("client_secret", "")):
        yield "oauth", "client_secret"
    for field in ("args", "headers_helper"):
        words = as_list(entry.get(field))
        for index, shown in enumerate(_shown_arguments(words)):
            if shown != words[index]:
                yield field, index
    url = entry.get("url")
    if isinstance(url, str) and redact_url(url) != url:
        yield ("url",)


def redact_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """A copy of a server entry that is safe to print."""
    shown: dict[str, Any] = {}
    for field, value in entry.items():
        if field in ("env", "headers") and as_object(value):
            shown[field] = {name: redact_value(name, text) for name, text in as_object(value).items()}
        elif field == "oauth" and as_object(value):
            shown[field] = {
                name: mask(text) if name == "client_secret" and isinstance(text, str) else text
                for name, text in as_object(value).items()
            }
        elif field in ("args", "headers_helper") and as_list(value):
            shown[field] = _shown_arguments(as_list(value))
        elif field == "url" and isinstance(value, str):
            shown[field] = redact_url(value)
        else:
            shown[field] = value
    return shown


def redact_value(name: str, value: object) -> object:
    """Mask a value if it is a secret in plain text."""
    return mask(value) if isinstance(value, str) and looks_secret(name, value) else value


def redact_url(url: str) -> str:
    """Mask the password and the secret query values of a URL."""
    try:
        parts = urlsplit(url)
        if not parts.scheme or not parts.netloc:
            return url
        userinfo, at, _ = parts.netloc.rpartition("@")
        if at and literal_part(userinfo):
            url = url.replace(f"{userinfo}@", f"{MASK}@", 1)
        for name, value in parse_qsl(parts.query):
            if looks_secret(name, value):
                for spelling in (value, quote(value), quote(value, safe="")):
                    url = url.replace(f"={spelling}", f"={MASK}")
    except ValueError:
        return url
    return url


def mask(text: str) -> str:
    """Replace the literal parts of a text, keep its references and a leading auth scheme."""
    scheme = re.match(r"(?i)(bearer|basic|token)\s+", text)
    prefix = scheme[0] if scheme else ""
    shown = prefix
    for piece in _pieces(text[len(prefix) :]):
        if isinstance(piece, Reference):
            hidden = piece.default
            shown += str(piece) if not hidden else f"${{{piece.name}:-{MASK}}}"
        elif piece.strip() and not shown.endswith(MASK):
            shown += MASK
    return shown


def _shown_arguments(arguments: list[object]) -> list[object]:
    shown: list[object] = []
    flag = ""
    for argument in arguments:
        text = argument if isinstance(argument, str) else ""
        match = _FLAG.fullmatch(text)
        if match and match[2] is not None:
            hidden = looks_secret(match[1], match[2])
            shown.append(f"{text[: match.start(2)]}{mask(match[2])}" if hidden else argument)
        else:
            name, colon, value = text.partition(":")
            if colon and not value.startswith("//") and looks_secret(name, value):
                shown.append(f"{name}: {mask(value.strip())}")  # `--header "Authorization: Bearer …"`
            elif "://" in text:
                shown.append(redact_url(text))
            else:
                shown.append(mask(text) if text and not match and looks_secret(flag, text) else argument)
        flag = match[1] if match and match[2] is None else ""
    return shown


def _pieces(text: str) -> list[str | Reference]:
    try:
        return split(text)
    except ValueError:
        return [text]


def _texts(value: object) -> dict[str, str]:
    return {name: text for name, text in as_object(value).items() if isinstance(text, str)}

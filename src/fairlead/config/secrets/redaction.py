"""Entries as they may be shown: references as written, literal secrets as `•••`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fairlead.config.secrets.inner_secrets import cookie_values, inner_secrets
from fairlead.config.secrets.masking import MASK, SECRETS, has_token
from fairlead.config.secrets.references import FieldPath, SecretReference, references, split, strings
from fairlead.config.untyped import as_list, as_object, value_at

_SENSITIVE_NAME = re.compile(
    r"(?i)(^|[-_. ])(api[-_]?key|apikey|key|token|pat|secret|password|passwd|pwd|auth|authorization|"
    r"credentials?|cookie|private|dsn|bearer|jwt|session|signature|sig)s?($|[-_. ])"
    r"|(token|secret|password|apikey|authkey)$"
)
_RANDOM_SHAPE = re.compile(r"(?=[A-Za-z0-9+/_=-]*[0-9])(?=[A-Za-z0-9+/_=-]*[A-Za-z])[A-Za-z0-9+_=-]{28,}")
_SCHEME = re.compile(r"(?i)^(?:[a-z-]+:\s*)?(?:(?:bearer|basic|token)\s+)?")
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_VARIABLE = re.compile(r"(?:--?[a-z][a-z-]*=)?([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
"""A variable that is set in an argument, as in `docker run -e NAME=VALUE` and `--env=NAME=VALUE`."""


_OAUTH_SECRETS = ("client_secret", "private_key", "assertion")


def looks_secret(name: str, value: str) -> bool:
    """Whether a value is a secret, by its field's name and its shape. References alone are no secret."""
    literal = literal_part(value)
    if not literal.strip() or literal.strip().lower() in ("bearer", "basic", "token"):
        return False
    if has_token(literal) or _RANDOM_SHAPE.fullmatch(literal.strip()):
        return True
    if "://" in literal and literal != value:
        return False  # a URL whose secret part is a reference
    return bool(_SENSITIVE_NAME.search(name)) and literal.lower() not in ("true", "false", "none", "0", "1")


def literal_part(text: str) -> str:
    """Literal part of a text: all but its references, with their defaults."""
    return "".join(piece if isinstance(piece, str) else piece.default or "" for piece in _pieces(text))


BESIDE_REFERENCE = (
    "put the whole value into a variable or file, and write one reference to it, such as `${NAME}`"
)
"""Hint for a secret next to a reference, or in the default of one: no command moves it."""


def literal_secrets(entry: dict[str, Any]) -> Iterator[FieldPath]:
    """Fields of a server entry that hold a secret in plain text."""
    for group in ("env", "headers"):
        for name, value in _texts(entry.get(group)).items():
            if looks_secret(name, value):
                yield group, name
    yield from _login_secrets(as_object(entry.get("oauth")))
    for field in ("args", "headers_helper"):
        words = as_list(entry.get(field))
        for index, shown in enumerate(_redact_arguments(words)):
            if shown != words[index]:
                yield field, index
    url = entry.get("url")
    if isinstance(url, str) and redact_url(url) != url:
        yield ("url",)


def secret_parts(entry: dict[str, Any], path: FieldPath) -> list[str]:
    """Secret parts of a field, as they occur in its text: of `Bearer x` and `--key=x` only `x`."""
    text: str = value_at(entry, path)
    if path[0] in ("args", "headers_helper"):
        if given := _read_assignment(text):
            text = given[2]
        elif "://" not in text and ":" in text:
            text = text.partition(":")[2].strip()
    if "://" in text:
        return [part for part in _url_parts(text) if part]
    return [_SCHEME.sub("", text)]


def _url_parts(url: str) -> Iterator[str]:
    """Password of a URL, or a lone user name, and its secret query values, as written."""
    parts = urlsplit(url)
    userinfo, at, _ = parts.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    if at:
        yield password if colon else user
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if looks_secret(unquote(name), unquote(value)):
            yield value


def _login_secrets(oauth: dict[str, Any]) -> Iterator[FieldPath]:
    for name, text in _texts(oauth).items():
        if name in _OAUTH_SECRETS and literal_part(text):
            yield "oauth", name
    if literal_part(_texts(oauth.get("identity")).get("token", "")):
        yield "oauth", "identity", "token"


def secret_values(entry: dict[str, Any], resolved: dict[str, Any], *, refers: bool = True) -> Iterator[str]:
    """Secrets of a server entry whose references were resolved, for a `Masker` to learn.

    They are what looks like a secret, the content of files, the keyring and variables, and all values of
    headers, unless that is ordinary (`is_ordinary`): masking `localhost` or a folder wherever a server
    mentions it would garble unrelated text. So are the secrets inside those and all other values.

    Args:
        entry: The entry as written.
        resolved: The same with every reference replaced.
        refers: Whether there may be references in the entry.
    """
    referring: list[tuple[FieldPath, str]] = []
    if refers:
        referring = [(path, text) for path, text in strings(entry) if "${" in text]
        yield from _values_of_references(referring, resolved)
    yield from header_secrets(_texts(resolved.get("headers")))
    wanted = {path[:2] for path in literal_secrets(resolved)}
    wanted |= {path[:2] for path, text in referring if any(r.kind != "env" for r in references(text))}
    for path, text in strings(resolved):
        if path[0] == "url" or path[:2] not in wanted:
            if path[0] in _SENT_FIELDS:
                yield from inner_secrets(text, _is_inner_secret)
            continue
        if path[0] in ("args", "headers_helper") and (given := _read_assignment(text)):
            text = given[2]
        elif path[0] in ("args", "headers_helper") and _FLAG.fullmatch(text):
            text = ""
        yield from _whole_secret(text)


_SENT_FIELDS = frozenset({"args", "env", "headers", "headers_helper", "url"})
"""Fields whose values are given to a server or to the program that makes its headers."""


def _whole_secret(text: str) -> Iterator[str]:
    """A secret and the secrets in it: of `Authorization: Bearer …` also what follows."""
    yield text
    bare = _SCHEME.sub("", text)
    yield bare
    yield from inner_secrets(text, _is_inner_secret, is_whole=True)
    if bare != text:
        yield from inner_secrets(bare, _is_inner_secret, is_whole=True)


def _is_inner_secret(name: str, value: str) -> bool:
    """Whether a value inside another is a secret, by its name and shape."""
    if not looks_secret(name, value) or _DIGEST_NAME.fullmatch(name):
        return False
    return not is_ordinary(value) or (value.isalpha() and bool(_PASSWORD_NAME.search(name)))


def has_inner_secret(text: str) -> bool:
    """Whether a text without references has a secret inside it, such as the password of a URL."""
    return any(True for _ in inner_secrets(text, _is_inner_secret))


_PASSWORD_NAME = re.compile(r"(?i)(?:password|passwd|pwd|secret|token)$")
_DIGEST_NAME = re.compile(r"(?i)(?:sha|md|blake)[- ]?[0-9a-z]{1,4}")
"""What is before a digest, as in `image@sha256:…`: it looks random, and results have to say it."""


def header_secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """Values of headers to be masked: all that are not ordinary."""
    for name, text in headers.items():
        if name.lower() == "cookie":
            yield from (value for value in cookie_values(text) if not is_ordinary(value))
        if name.lower() not in _PUBLIC_HEADERS and not is_ordinary(text):
            yield from _whole_secret(text)


def proxy_secrets(env: Mapping[str, str]) -> Iterator[str]:
    """Credentials in the variables that name proxies."""
    for name, value in env.items():
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy") and "@" in value:
            yield from inner_secrets(value if "://" in value else f"http://{value}", _is_inner_secret)


def is_ordinary(value: str) -> bool:
    """Whether a value cannot be a secret: a path, a number, an address, a URL without a user, a word."""
    text = value.strip()
    if has_token(text) or any(_RANDOM_SHAPE.fullmatch(part) for part in re.split(r"[/\\?&=:.]", text)):
        return False
    if "://" in text:
        return "@" not in text and "?" not in text
    return (len(text) < 12 and bool(_WORDS.fullmatch(text))) or bool(_ORDINARY.fullmatch(text))


SHORTEST_ASSIGNED = 16
"""A shorter value that an authorization server chose is not masked."""


def is_distinctive(value: str) -> bool:
    """Whether a value that an authorization server chose may be masked in what all others say.

    It could issue the name of another server's tool as its token, or a common word, and garble or hide those.
    A random value changes between small and capital letters and digits all the time; words do not.
    """
    if len(value) < SHORTEST_ASSIGNED:
        return False
    kinds = ["d" if sign.isdigit() else "u" if sign.isupper() else "l" for sign in value if sign.isalnum()]
    changes = sum(one != other for one, other in pairwise(kinds))
    share = 5 if not {"u", "l"} <= {*kinds} else 4 if kinds.count("d") > 1 else 3
    return has_token(value) or ("d" in kinds and changes * share >= len(kinds))


_WORDS = re.compile(r"[A-Za-z]+(?:[-_. ][A-Za-z]+)*")
_ORDINARY = re.compile(
    r"[\d.,:+\- ]+"  # a number, a date, an address
    r"|(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w .@+\-]*)+"  # a path
    r"|(?:localhost|(?:[a-z0-9-]+\.)+[a-z]{2,})(?::\d+)?"  # a host
    r"|[a-z]+/[a-z0-9.+*-]+(?:[,;] ?[a-z0-9=.+*/-]+)*",  # a media type
    re.IGNORECASE,
)
_PUBLIC_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent", "origin", "referer"})


def _values_of_references(
    referring: Iterable[tuple[FieldPath, str]], resolved: dict[str, Any]
) -> Iterator[str]:
    """Values of the references in texts, unless ordinary, or in a secret field."""
    texts = dict(strings(resolved))
    for path, text in referring:
        if path[0] not in ("env", "headers", "args", "url", "headers_helper") or path not in texts:
            continue
        pieces = _pieces(text)
        if all(isinstance(piece, str) for piece in pieces):
            continue
        shape = "".join(re.escape(piece) if isinstance(piece, str) else "(.*)" for piece in pieces)
        found = re.fullmatch(shape, texts[path], re.DOTALL)
        is_named = bool(_SENSITIVE_NAME.search(str(path[-1])))
        for value in found.groups() if found else ():
            if is_named or not is_ordinary(value):
                yield from _whole_secret(value)


def redact_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """A copy of a server entry that is safe to print."""
    shown: dict[str, Any] = {}
    for field, value in entry.items():
        if field in ("env", "headers") and as_object(value):
            shown[field] = {name: redact_value(name, text) for name, text in as_object(value).items()}
        elif field == "oauth" and as_object(value):
            shown[field] = _redact_oauth(as_object(value))
        elif field in ("args", "headers_helper") and as_list(value):
            shown[field] = _redact_arguments(as_list(value))
        elif field == "url" and isinstance(value, str):
            shown[field] = redact_url(value)
        else:
            shown[field] = value
    return shown


def _redact_oauth(oauth: dict[str, Any]) -> dict[str, Any]:
    shown = {
        name: mask(text) if name in _OAUTH_SECRETS and isinstance(text, str) else text
        for name, text in oauth.items()
    }
    token = _texts(shown.get("identity")).get("token")
    if token is not None:
        shown["identity"] = {**as_object(shown["identity"]), "token": mask(token)}
    return shown


_MAX_TEXT = 80
_MAX_ITEMS = 10
_MAX_DEPTH = 4


def glimpse(value: Any, name: str = "", depth: int = 0) -> Any:  # noqa: ANN401 - any value of a configuration
    """Bounded copy of a value for a `repr`: secrets masked, long texts cut, long lists shortened."""
    if isinstance(value, str):
        shown = str(redact_value(name, SECRETS.mask(value[: 2 * _MAX_TEXT + SECRETS.reach])))
        return shown if len(value) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"
    is_mapping = isinstance(value, dict)
    if not is_mapping and not isinstance(value, list | tuple):
        return value
    if depth == _MAX_DEPTH:
        return "…"
    if is_mapping:
        items = list(cast("dict[Any, Any]", value).items())
        shown = {str(key)[:_MAX_TEXT]: glimpse(item, str(key), depth + 1) for key, item in items[:_MAX_ITEMS]}
        return shown if len(items) <= _MAX_ITEMS else shown | {"…": f"{len(items)} in all"}
    values = cast("Sequence[Any]", value)
    listed = [glimpse(item, name, depth + 1) for item in values[:_MAX_ITEMS]]
    return listed if len(values) <= _MAX_ITEMS else [*listed, f"… {len(values)} in all"]


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
        _, colon, password = userinfo.partition(":")
        if at and literal_part(password if colon else userinfo):
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
        if isinstance(piece, SecretReference):
            hidden = piece.default
            shown += str(piece) if not hidden else f"${{{piece.name}:-{MASK}}}"
        elif piece.strip() and not shown.endswith(MASK):
            shown += MASK
    return shown


def _read_assignment(text: str) -> re.Match[str] | None:
    """Name and value, as groups 1 and 2, of `--name=value`, or of a secret variable (`_VARIABLE`)."""
    variable = _VARIABLE.fullmatch(text)
    if variable and _is_secret_variable(variable[1], variable[2]):
        return variable
    flag = _FLAG.fullmatch(text)
    return flag if flag and flag[2] is not None else None


def _is_secret_variable(name: str, value: str) -> bool:
    return redact_url(value) != value if "://" in value else looks_secret(name, value)


def _redact_arguments(arguments: list[object]) -> list[object]:
    shown: list[object] = []
    flag = ""
    for argument in arguments:
        text = argument if isinstance(argument, str) else ""
        match = _FLAG.fullmatch(text)
        if given := _read_assignment(text):
            hidden = given.re is _VARIABLE or looks_secret(given[1], given[2])
            shown.append(f"{text[: given.start(2)]}{mask(given[2])}" if hidden else argument)
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


def _pieces(text: str) -> list[str | SecretReference]:
    try:
        return split(text)
    except ValueError:
        return [text]


def _texts(value: object) -> dict[str, str]:
    return {name: text for name, text in as_object(value).items() if isinstance(text, str)}

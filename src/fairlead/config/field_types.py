"""Types of the fields of configuration models, with the checks that come before those of a whole section."""

import re
from collections.abc import Iterable
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
)

from fairlead.config.faults import BAD_ID, SERVER_ID

Text = Annotated[str, StringConstraints(min_length=1)]
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
Bytes = Annotated[int, Field(ge=1024, le=1 << 31)]
Texts = Annotated[tuple[Text, ...], Strict(strict=False)]
Arguments = Annotated[tuple[str, ...], Strict(strict=False)]


def _check_variable_name(name: str) -> str:
    if "=" in name or "\0" in name:
        raise ValueError("a variable's name cannot contain `=` or NUL")
    return name


def _check_header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("a header's name is letters, digits and `-`")
    return name


def _check_header_value(value: str) -> str:
    if any(character in value for character in "\r\n\0"):
        raise ValueError("a header's value cannot contain line breaks")
    return value


_PREFIX = re.compile(r"(group|token|oauth)s?\s*:\s*", re.IGNORECASE)


def _check_principal_name(name: str) -> str:
    # A rule that can mean no one lapses in silence: a misspelled denial denies nothing.
    if name != name.strip() or not name.isprintable():
        raise ValueError("has spaces around it, or characters that do not show: no principal is called so")
    if (prefix := _PREFIX.match(name)) is None:
        return name
    right, rest = f"{prefix[1].lower()}:", name[prefix.end() :]
    if not rest:
        raise ValueError(f"names no one: write the name after `{right}`")
    if prefix[0] != right:
        raise ValueError(f"means no one as it is spelled: write `{right}{rest}`")
    return name


_GLOB = re.compile(r"\[!?\]?[^\]]*\]|[*?]")


def _check_server_pattern(pattern: str) -> str:
    # A rule about a server that cannot exist lapses in silence, too.
    literal = _GLOB.sub("", pattern)
    if literal and not SERVER_ID.fullmatch(literal):
        raise ValueError(f"matches no server: {BAD_ID}, or `*`; a tool is named in `tool`")
    return pattern


def _check_tool_pattern(pattern: str) -> str:
    if pattern != pattern.strip() or not pattern.isprintable():
        raise ValueError(
            "has spaces around it, or characters that do not show: write `?` where a tool's name has one"
        )
    return pattern


# Validated one by one, so that every bad name and value is reported.
VariableName = Annotated[Text, AfterValidator(_check_variable_name)]
PrincipalName = Annotated[Text, AfterValidator(_check_principal_name)]
ServerPattern = Annotated[Text, AfterValidator(_check_server_pattern)]
ToolPattern = Annotated[Text, AfterValidator(_check_tool_pattern)]
HeaderName = Annotated[Text, AfterValidator(_check_header_name)]
HeaderValue = Annotated[str, AfterValidator(_check_header_value)]


def _not_empty(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("must not be empty: leave it out, or name at least one tool")
    return names


AllowTools = Annotated[Texts, AfterValidator(_not_empty)]
Command = Annotated[Texts, Field(min_length=1)]


def _server_id(value: str) -> str:
    if not SERVER_ID.fullmatch(value):
        raise ValueError(BAD_ID)
    return value


ServerId = Annotated[str, AfterValidator(_server_id)]


def _is_port_valid(host: SplitResult) -> bool:
    try:
        return host.port != 0
    except ValueError:
        return False


def _url_of(schemes: tuple[str, ...], wanted: str) -> AfterValidator:
    """A check that a text is a URL of one of these schemes with a host."""

    def check(value: str) -> str:
        if "${" in value:
            return value  # validated again once its references are resolved
        if any(character <= " " for character in value):
            raise ValueError("must not contain spaces or control characters")
        try:
            parts = urlsplit(value)
            # Sentinels are several, with commas between them.
            hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
            usable = parts.scheme in schemes and all(host.hostname for host in hosts)
            usable = usable and (len(hosts) == 1 or parts.scheme.endswith("+sentinel"))
        except ValueError:
            usable, hosts = False, []
        if not usable:
            raise ValueError(f"must be {wanted} URL with a host")
        if not all(map(_is_port_valid, hosts)):
            raise ValueError("must have a port from 1 to 65535")
        return value

    return AfterValidator(check)


WebUrl = Annotated[str, _url_of(("http", "https"), "an http:// or https://")]
REDIS_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
"""What the address of a store begins with: of a Redis, or of the Sentinels that name it."""
RedisUrl = Annotated[str, _url_of(REDIS_SCHEMES, "a redis://, rediss:// or redis+sentinel://")]


def _text_of(pattern: str, wanted: str) -> AfterValidator:
    """A check that a text without references is made of certain characters."""

    def check(value: str) -> str:
        if "${" not in value and not re.fullmatch(pattern, value):
            raise ValueError(wanted)
        return value

    return AfterValidator(check)


BucketName = Annotated[
    str, _text_of(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", "must be letters, digits, `.`, `_` and `-`")
]
ObjectPrefix = Annotated[
    str,
    _text_of(
        r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*",
        "must be folders of letters, digits, `.`, `_` and `-`, each with a `/`",
    ),
]


class StrictModel(BaseModel):
    """Frozen, no coercion, no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """What a `repr` shows: the fields that were set, bounded, with literal secrets masked."""
        # Not at the top: only a `repr` needs it.
        from fairlead.config.secrets.redaction import glimpse, redact_entry

        given = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        return ((name, glimpse(value, name)) for name, value in redact_entry(given).items())

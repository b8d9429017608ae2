"""What a server says it wants, read from `WWW-Authenticate` (RFC 9110, 6750, 9728)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_HEADER = 16 * 1024

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the grammar's word for a word
_PARAMETER = re.compile(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCHEME = re.compile(rf"({_TOKEN})(?=[\s,]|$)")
_GAP = re.compile(r"[\s,]+")
_ESCAPED = re.compile(r"\\(.)")
_OURS = ("bearer", "dpop")


@dataclass(frozen=True, kw_only=True, slots=True)
class Challenge:
    """One way in that a server offers. All of it is the server's word, and shown to nobody unescaped."""

    scheme: str
    """In lower case."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """By name in lower case; of a name that comes twice the first counts."""

    @property
    def resource_metadata(self) -> str | None:
        """Where the server describes itself."""
        return self.parameters.get("resource_metadata") or None

    @property
    def scope(self) -> str | None:
        """What a token must allow."""
        return " ".join(self.parameters.get("scope", "").split()) or None

    @property
    def error(self) -> str | None:
        """What is wrong with the token that was sent, if one was."""
        return self.parameters.get("error") or None

    @property
    def error_description(self) -> str | None:
        """The same in words."""
        return self.parameters.get("error_description") or None

    @property
    def realm(self) -> str | None:
        """What is protected."""
        return self.parameters.get("realm") or None

    @property
    def wants_more_scope(self) -> bool:
        """Whether the token was good, but does not allow enough."""
        return self.error == "insufficient_scope"


def parse_challenges(values: Iterable[str]) -> list[Challenge]:
    """Read the challenges of a response, in order. What makes no sense is passed over."""
    return [challenge for value in values for challenge in _parse(value[:MAX_HEADER])]


def login_challenge(values: Iterable[str]) -> Challenge | None:
    """Return the challenge that OAuth can answer; of several, one that names metadata or a scope."""
    ours = [challenge for challenge in parse_challenges(values) if challenge.scheme in _OURS]
    return max(ours, key=lambda challenge: bool(challenge.resource_metadata or challenge.scope), default=None)


def _parse(text: str) -> list[Challenge]:
    challenges: list[Challenge] = []
    position = 0
    while position < len(text):
        if match := _GAP.match(text, position):
            pass
        elif match := _PARAMETER.match(text, position):
            if challenges:
                name, quoted, plain = match.groups()
                value = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
                challenges[-1].parameters.setdefault(name.lower(), value)
        elif match := _SCHEME.match(text, position):
            challenges.append(Challenge(scheme=match[1].lower()))
        position = match.end() if match else position + 1
    return challenges

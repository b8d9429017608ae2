"""What a server says it wants, read from `WWW-Authenticate` (RFC 9110, 6750, 9728)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_HEADER = 4 * 1024
"""How much is read of all `WWW-Authenticate` headers of a response together."""

# Possessive, and what fits nothing is passed over as a whole: no character is looked at over and over.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]++")
_EQUALS = re.compile(r"\s*+=\s*+")
_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)(")?')
_PLAIN = re.compile(r'[^\s,"]++')
_SCHEME_END = re.compile(r"[\s,]|$")
_NO_TOKEN = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]++")
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
    challenges: list[Challenge] = []
    left = MAX_HEADER
    for value in values:
        challenges += _parse(value[:left])
        left -= len(value)
        if left <= 0:
            break
    return challenges


def login_challenge(values: Iterable[str]) -> Challenge | None:
    """Return the challenge that OAuth can answer; of several, one that names metadata or a scope."""
    ours = [challenge for challenge in parse_challenges(values) if challenge.scheme in _OURS]
    return max(ours, key=lambda challenge: bool(challenge.resource_metadata or challenge.scope), default=None)


def _parse(text: str) -> list[Challenge]:
    challenges: list[Challenge] = []
    position = 0
    while position < len(text):
        if gap := _NO_TOKEN.match(text, position):
            position = gap.end()
        token = _TOKEN.match(text, position)
        if token is None:
            break  # nothing is left
        position = token.end()
        equals = _EQUALS.match(text, position)
        if equals is None:
            if _SCHEME_END.match(text, position):
                challenges.append(Challenge(scheme=token[0].lower()))
            continue
        position = equals.end()
        quoted = _QUOTED.match(text, position)
        if quoted is not None and quoted[2] is None:
            break  # never closed: what it would have ended with is not known
        value = quoted or _PLAIN.match(text, position)
        if value is None:
            continue
        position = value.end()
        if challenges:
            said = value[0] if quoted is None else _ESCAPED.sub(r"\1", quoted[1])
            challenges[-1].parameters.setdefault(token[0].lower(), said)
    return challenges

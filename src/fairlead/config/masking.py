"""Secrets taken out of running text: logs, errors, the audit.

A secret is known by its value, once somebody who handles it said so (`learn`), or by its shape: what stands
in an `Authorization` line, the tokens of well-known services, private keys, passwords in URLs, the parameters
of an OAuth exchange. The time this takes is linear in the text, whoever wrote it.
"""

import json
import re
from functools import cache
from typing import Final
from urllib.parse import quote

MASK = "•••"

SHORTEST_SECRET = 6
"""A shorter value is too common a word: masking it would garble what has nothing to do with it."""

MAX_SECRETS = 2000
"""How many values are known at once. Tokens are renewed every hour or so; the oldest are forgotten."""

# A run of the characters that tokens are made of is only looked at from its start, and what a pattern looked
# at it takes with it: else a hostile text would take a time that grows with the square of its length.
_RUN = r"(?<![A-Za-z0-9_-])"
_HAS_DIGIT = r"(?=[a-z_-]*+[0-9])"
_QUOTE = r"\\?[\"']"
_HEADERS = r"(?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token"
_NAMES = (
    r"(?:access|refresh|id|auth|device|session)_token|client_secret|client_assertion|code_verifier|device_code"
    r"|api_?key|passwd|password|private_key"
)

_SHAPES: dict[tuple[str, ...], str] = {
    ("-----begin ",): (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]*+(?:-(?!----END)[^-]*+)*+"
        r"(?:-----END[A-Z0-9 ]{0,60}-----)?+"
    ),
    ("authorization", "cookie", "x-a"): (
        rf"(?P<kept>\b(?:{_HEADERS})(?:{_QUOTE})?[ \t]{{0,8}}[:=][ \t]{{0,8}}(?:{_QUOTE})?)[^\r\n\"'\\]++"
    ),
    ("bearer",): rf"(?P<kept>{_RUN}bearer[ \t]{{1,8}})[^\s\"',;]{{6,}}+",
    ("basic",): rf"(?P<kept>{_RUN}basic[ \t]{{1,8}})(?-i:(?=[a-zA-Z][a-z+/]*+[A-Z0-9=]))[a-z0-9+/]{{6,}}+=*+",
    ("://",): r"(?P<kept>://)[^/?#\s:@\"'<>]*+:[^/?#\s@\"'<>]*+(?=@)",
    ("_token=", "client_", "code", "key=", "passw", "token=", "sig", "secret="): (
        rf"(?P<kept>(?<![A-Za-z0-9])(?:{_NAMES})=|[?&](?:code|token|key|sig|signature|secret)=)[^&\s\"'<>]++"
    ),
    ("_token", "client_", "code", "key", "passw"): (
        rf"(?P<kept>{_QUOTE}(?:{_NAMES}){_QUOTE}[ \t]{{0,4}}:[ \t]{{0,4}}{_QUOTE})[^\"'\\]++"
    ),
    ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"): rf"{_RUN}[spr]k[-_][a-z0-9_-]{{12,}}+",
    ("gh", "github_pat_", "glpat-", "xox"): (
        rf"{_RUN}(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-)[a-z0-9_-]{{8,}}+"
    ),
    ("ya29.", "npm_", "pypi-", "hf_", "lin_api_", "ntn_", "secret_"): (
        rf"{_RUN}(?:ya29\.|npm_|pypi-|hf_|lin_api_|ntn_|secret_){_HAS_DIGIT}[a-z0-9_-]{{8,}}+"
    ),
    ("akia", "asia"): r"(?-i:\b(?:AKIA|ASIA)[A-Z0-9]{12,}+)",
    ("eyj",): rf"{_RUN}(?-i:eyJ)[a-z0-9_-]{{8,}}+\.[a-z0-9_-]++(?:\.[a-z0-9_-]*+)?",
}
"""What secrets look like: patterns, and the words without one of which, in lower case, none can match.

What a pattern's group `kept` matched stays: it says what was there.
"""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)  # when first needed: a quick start has no time for a dozen


def has_token(text: str) -> bool:
    """Is there anything in the text that has the shape of a secret?"""
    return any(pattern.search(text) for pattern in _patterns_for(text))


class Masker:
    """Knows secrets, and takes them out of texts. Any thread may use it."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}  # in the order they were learnt
        self.generation = 0
        """Grows with what is known: what was safe to show before need not be any more."""

    def learn(self, *values: str) -> None:
        """Mask these values from now on, however they are spelled in URLs and JSON."""
        for value in values:
            if len(value) < SHORTEST_SECRET or value in self._known:
                continue
            spellings = (value, quote(value, safe=""), json.dumps(value)[1:-1])
            # A copy, since another thread may be looking for the secrets known so far.
            known = {**self._known, **dict.fromkeys(spellings)}
            for oldest in list(known)[: max(0, len(known) - MAX_SECRETS)]:
                del known[oldest]
            self._known = known
            self.generation += 1

    def mask(self, text: str) -> str:
        """The text without secrets; most often the very same text."""
        for value in self._known:
            if value in text:
                text = text.replace(value, MASK)
        for pattern in _patterns_for(text):
            text = pattern.sub(_masked, text)
        return text


SECRETS: Final = Masker()
"""What is secret in this process: its hosts share its logs, and so what those may not say."""


def _patterns_for(text: str) -> list[re.Pattern[str]]:
    """The patterns that can match: to look for a few words takes a fraction of the time."""
    lowered = text.lower()
    return [
        _compiled(pattern) for signs, pattern in _SHAPES.items() if any(sign in lowered for sign in signs)
    ]


def _masked(match: re.Match[str]) -> str:
    return f"{match.groupdict().get('kept') or ''}{MASK}"

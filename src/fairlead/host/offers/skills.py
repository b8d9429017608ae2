"""Skills of servers, a protocol extension: listed with digests, and read on demand.

A server lists each skill with its front matter and the size and digest of each file. Files that do not match
are refused, and all text is sanitized. Declare
`EXTENSION` when the host is opened:
`Host.open(capabilities=CustomCapabilities(extensions={EXTENSION: {}}))`.
"""

import hashlib
import re
from functools import partial
from typing import Any

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.config.argument_types import check_types
from fairlead.errors import CallFailed
from fairlead.host.background import run_in_background
from fairlead.host.extensions import ExtensionMessages
from fairlead.host.offers.resources import Resources

EXTENSION = "io.modelcontextprotocol/skills"

MAX_PAGES = 100
MAX_HEAD_CHARACTERS = 65_536

_HEAD = re.compile(r"---\r?\n(.*?\r?\n)---\r?(?:\n|$)", re.DOTALL)
_REFERENCE = re.compile(r"(?:^|[\s,:\[{-])[&*]\S")


class SkillFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a skill, and what it has to be."""

    uri: str
    digest: str
    size: int


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as its server lists it. Its words are the server's own, with nothing hidden in them."""

    uri: str
    """Its address."""
    frontmatter: dict[str, Any]
    """Its fields, such as `name` and `description`."""
    resources: tuple[SkillFile, ...] = ()


class _SkillPage(msgspec.Struct, rename="camel"):
    skills: list[Skill] = []
    next_cursor: str | None = None


_decode = msgspec.json.Decoder(_SkillPage).decode


class Skills:
    """The skills of one server: `host.skills("id")`."""

    def __init__(self, server_id: str, custom: ExtensionMessages, resources: Resources) -> None:
        self._custom = custom
        self._resources = resources
        self._server_id = server_id

    def __repr__(self) -> str:
        return f"<Skills of {self._server_id}>"

    async def list(self) -> tuple[Skill, ...]:
        """The skills of the server, without reading their files."""
        skills: list[Skill] = []
        params: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            raw = await self._custom.request_unchanged(self._server_id, EXTENSION, "skills/list", params)
            try:
                page = _decode(await gate.run(gate.answer_steps(bytes(raw))))
            except (ValueError, RecursionError) as exc:
                raise self._skill_failure(
                    f"its list of skills cannot be parsed: {exc}"
                ) from gate.displayable_cause(exc)
            skills += page.skills
            if page.next_cursor is None:
                return tuple(skills)
            params = {"cursor": page.next_cursor}
        raise self._skill_failure(f"its list of skills does not end: {len(skills)} so far")

    @check_types
    async def load(self, skill: Skill) -> str:
        """The skill's own text, head included, whose head is what was listed. Nothing is hidden in it."""
        content = await self.read(skill, skill.uri)
        try:
            text = gate.content(content.decode())
            head = await run_in_background(partial(_read_head, text))  # YAML takes long, and long to load
        except ValueError as exc:
            raise self._skill_failure(
                f"the front matter of `{skill.uri}` cannot be parsed: {exc}"
            ) from gate.displayable_cause(exc)
        if head != skill.frontmatter:
            raise self._skill_failure(f"the front matter of `{skill.uri}` is not what was listed")
        return text

    @check_types
    async def read(self, skill: Skill, uri: str) -> bytes:
        """A file of the skill, which is of the size and has the digest that were listed."""
        wanted = next((file for file in skill.resources if file.uri == uri), None)
        if wanted is None:
            raise CallFailed(
                self._server_id, f"`{uri}` is not a file of the skill `{skill.uri}`", delivery="not_sent"
            )
        content = (await self._resources.read(self._server_id, uri)).content(unchanged=True)
        if len(content) != wanted.size:
            raise self._skill_failure(f"`{uri}` has {len(content)} bytes and should have {wanted.size}")
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != wanted.digest:
            raise self._skill_failure(f"`{uri}` is not what was listed: its digest differs")
        return content

    def _skill_failure(self, reason: str) -> CallFailed:
        return CallFailed(self._server_id, reason, delivery="done")


def _read_head(text: str) -> object:
    """The front matter of a skill as JSON values. Raises `ValueError`."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    match = _HEAD.match(text)
    if match is None or len(match[1]) > MAX_HEAD_CHARACTERS:
        raise ValueError("there is none, or it is too long")
    if _REFERENCE.search(match[1]):
        raise ValueError("it refers to itself, which a few lines can make endless")
    reader: Any = YAML(typ="safe", pure=True)
    try:
        head = msgspec.json.encode(reader.load(match[1]))
        return gate.value(msgspec.json.decode(head))  # YAML can spell out what it hides
    except (YAMLError, TypeError, RecursionError) as exc:
        raise ValueError("it is not YAML") from gate.displayable_cause(exc)

"""Answers to server requests: elicitation, sampling and roots, as configuration and operator allow.

A trusted server may elicit by form and by URL, an untrusted one by URL only, unless its entry changes that.
Sampling is off until the entry enables it; its text has the result budget (`max_result_bytes`), media a fixed
one, and all else must be small. Roots are the folders of the entry, or the operator's for a trusted server.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import mcp_types as types
import msgspec
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from pydantic_core import from_json, to_json

from fairlead.catalog.sanitize import gate
from fairlead.config.models import SamplingSettings, Server
from fairlead.config.untyped import as_object, is_list
from fairlead.connection.peer import refusal
from fairlead.connection.tasks import EXTENSION as TASKS
from fairlead.errors import CallDenied, ModelFailed
from fairlead.events import ElicitationComplete, ElicitationRequest, Event, ResourceUpdated, ServerLogged
from fairlead.host.elicitation.form_schema import FormRefused, escape_text, read_form_steps
from fairlead.host.elicitation.forms import FormProblems
from fairlead.host.elicitation.urls import ShownUrl, UrlRefused, show_url
from fairlead.host.operator import (
    Ability,
    FormRequest,
    Operator,
    RootsProvider,
    SampleRequest,
    UrlCompletionListener,
    UrlRequest,
)

MAX_MEDIA_BYTES: Final = 1024 * 1024
"""Of all images and sounds of a request, as base64."""
MAX_OTHER_BYTES: Final = 64 * 1024
"""Of all that is neither text for the model nor media."""

_Params = types.CreateMessageRequestParams
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, kw_only=True, slots=True)
class CustomCapabilities:
    """Client capabilities beyond the protocol's own: experimental ones, and extensions by id."""

    experimental: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Experimental capabilities by name."""
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Extensions by id, with their settings."""


async def make_safe(params: _Params, limit: int) -> tuple[_Params, list[str]]:
    """Clean, mask and bound a sampling request.

    Args:
        params: What the server sent.
        limit: How many bytes of text a model may be given.

    Returns:
        The request as a model may see it, and what was left out of it, in words.

    Raises:
        ValueError: It is too large in what cannot be cut.
    """
    raw = params.model_dump_json(by_alias=True, exclude_none=True).encode()
    cleaned = await gate.run(gate.answer_steps(raw))
    if len(cleaned) <= min(limit, MAX_OTHER_BYTES):
        return (params if cleaned is raw else _Params.model_validate_json(cleaned)), []
    message: dict[str, Any] = msgspec.json.decode(cleaned)
    bounding = _Bounding(limit)
    bounding.cut(message)
    if len(msgspec.json.encode(message)) - bounding.spent > MAX_OTHER_BYTES:
        raise ValueError(
            f"the request has more than {MAX_OTHER_BYTES:,} bytes of options, metadata or empty messages"
        )
    return _Params.model_validate(message), bounding.notes


class _Bounding:
    """One pass over a request: spends the budgets in order, and notes what was left out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text_left = limit
        self._media_left = MAX_MEDIA_BYTES
        self.spent = 0
        """The bytes of JSON that the budgets paid for."""
        self.notes: list[str] = []

    def cut(self, fields: dict[str, Any]) -> None:
        if isinstance(fields.get("systemPrompt"), str):
            fields["systemPrompt"] = self._text(fields["systemPrompt"])
        for message in fields["messages"]:
            content: Any = message["content"]
            message["content"] = [*map(self._block, content)] if is_list(content) else self._block(content)

    def _block(self, block: dict[str, Any]) -> dict[str, Any]:
        if isinstance(block.get("text"), str):
            block["text"] = self._text(block["text"])
        elif isinstance(block.get("data"), str):
            size = len(block["data"])
            if size > self._media_left:
                kind = "an image" if block["type"] == "image" else "a sound"
                return {"type": "text", "text": self._omit(f"{kind} of {size:,} bytes")}
            self._media_left -= size
            self.spent += size
        return block

    def _text(self, text: str) -> str:
        encoded = text.encode(errors="replace")
        if len(encoded) <= self._text_left:
            self._text_left -= len(encoded)
            self.spent += len(msgspec.json.encode(text))
            return text
        kept = encoded[: self._text_left].decode(errors="ignore")
        more = len(encoded) - len(kept.encode())
        self._text_left = 0
        self.spent += len(msgspec.json.encode(kept))
        return f"{kept}\n{self._omit(f'{more:,} bytes of text')}"

    def _omit(self, what: str) -> str:
        self.notes.append(what)
        return f"[{what} left out by Fairlead: more than a request may hold]"


logger = logging.getLogger(__name__)

USER_REJECTED = -1
"""The protocol's error code for a sampling request that the user rejected."""
MAX_LOG_BYTES = 65_536
"""How much of a log message is forwarded unchanged; a longer one is cut."""
CHARACTERS_PER_TOKEN = 4
"""A rough measure, for a budget that only has to be rough."""


Samples = types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData


def declarable(config: Server, abilities: frozenset[Ability]) -> frozenset[Ability]:
    """The abilities of an operator that are declared to a server, as its entry allows."""
    is_trusted = config.trust == "trusted"
    allowed: dict[Ability, bool] = {
        "form": is_trusted if config.elicitation is None else config.elicitation,
        "url": config.elicitation is not False,
        "sample": config.sampling is not None,
        "roots": is_trusted,
    }
    return frozenset(ability for ability in abilities if allowed.get(ability, False))


class ServerPeer:
    """The host as one server sees it: answers its elicitations, sampling requests and requests for roots.

    Args:
        server_id: The server.
        config: Its configuration, which says what it may ask for.
        operator: Answers for the user.
        roots: The folders of its entry.
        custom: Further capabilities to declare.
        emit: Called with events.
        shared: Whether clients of a gateway share the connection: a server's request has no user then.
        in_force: Whether the server is still configured as it was when it was connected.
    """

    def __init__(  # noqa: PLR0913 - what a peer depends on, named once
        self,
        server_id: str,
        config: Server,
        operator: Operator,
        *,
        roots: tuple[Path, ...],
        custom: CustomCapabilities,
        emit: Callable[[Event], None],
        shared: bool = False,
        in_force: Callable[[], bool] = lambda: True,
    ) -> None:
        self._server_id = server_id
        self._in_force = in_force
        self._operator = operator
        self._roots = roots
        self._custom = custom
        self._emit = emit
        self.is_shared = shared
        allowed = config.elicitation
        self._may_form = config.trust == "trusted" if allowed is None else allowed
        self._may_url = allowed is not False
        self._may_sample = config.sampling
        self._is_trusted = config.trust == "trusted"
        self._max_text_bytes = config.max_result_bytes
        self._tokens_left = config.sampling.max_tokens if config.sampling else 0
        self._declared: dict[frozenset[Ability], types.ClientCapabilities] = {}
        self._notified_of: set[Ability] = set()

    # What the operator can do may depend on whom the present request is made for.

    @property
    def _forms(self) -> bool:
        return self._may_form and "form" in self._operator.abilities

    @property
    def _urls(self) -> bool:
        return self._may_url and "url" in self._operator.abilities

    @property
    def _sampling(self) -> SamplingSettings | None:
        return self._may_sample if "sample" in self._operator.abilities else None

    @property
    def _asks_for_roots(self) -> bool:
        return self._is_trusted and "roots" in self._operator.abilities

    @property
    def capabilities(self) -> types.ClientCapabilities:
        """The declared client capabilities; the same object while the operator's abilities are the same."""
        abilities = self._operator.abilities
        declared = self._declared.get(abilities)
        if declared is None:
            custom = self._custom
            declared = self._declared[abilities] = types.ClientCapabilities(
                elicitation=self._elicitation(),
                sampling=types.SamplingCapability() if self._sampling else None,
                roots=types.RootsCapability() if self._roots or self._asks_for_roots else None,
                experimental={name: dict(value) for name, value in custom.experimental.items()} or None,
                extensions={TASKS: {}} | {name: dict(value) for name, value in custom.extensions.items()},
            )
        return declared

    def _elicitation(self) -> types.ElicitationCapability | None:
        if not self._forms and not self._urls:
            return None
        return types.ElicitationCapability(
            form=types.FormElicitationCapability() if self._forms else None,
            url=types.UrlElicitationCapability() if self._urls else None,
        )

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Answer an elicitation through the operator, or refuse it where it is not allowed."""
        kind = "url" if isinstance(params, types.ElicitRequestURLParams) else "form"
        self._emit(ElicitationRequest(server_id=self._server_id, kind=kind))
        outcome = "withdrawn"
        try:
            answer = await (
                self._elicit_url(params)
                if isinstance(params, types.ElicitRequestURLParams)
                else self._elicit_form(params)
            )
            answer = self._answer_in_force(answer)
            outcome = "refused" if isinstance(answer, types.ErrorData) else answer.action
        except Exception:
            outcome = "failed"
            raise
        finally:
            self._emit(ElicitationComplete(server_id=self._server_id, kind=kind, outcome=outcome))
        return answer

    async def _elicit_form(
        self, params: types.ElicitRequestFormParams
    ) -> types.ElicitResult | types.ErrorData:
        if not self._forms:
            return self._refuse_elicitation("form")
        form = await gate.run(read_form_steps(params.requested_schema))
        if isinstance(form, FormRefused):
            return types.ErrorData(code=INVALID_PARAMS, message=f"the form is not shown: {form}")
        raw = to_json(params.requested_schema)  # a copy, since what is there is changed in place
        cleaned = await gate.run(gate.Cleaner().value_steps(from_json(raw)))
        request = FormRequest(
            server_id=self._server_id,
            message=escape_text(params.message),
            form=form,
            requested_schema=_with_defaults(cleaned, form.defaults()),
            untrusted=not self._is_trusted,
        )
        answer = await self._operator.elicit_form(request)
        if answer.action != "accept":
            return types.ElicitResult(action=answer.action)
        checked = form.check(answer.content)
        if isinstance(checked, FormProblems):
            # The operator's answer does not fit, and any other content is not the user's.
            logger.warning("an operator's answer does not fit the form", extra={"server_id": self._server_id})
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content={**checked.content})

    async def _elicit_url(self, params: types.ElicitRequestURLParams) -> types.ElicitResult | types.ErrorData:
        if not self._urls:
            return self._refuse_elicitation("url")
        url = show_url(params.url)
        if isinstance(url, ShownUrl) and any(map(gate.holds_secret, (params.url, url.url, url.host))):
            # It cannot be masked and still lead there; opened, it would hand the secret to that host.
            url = UrlRefused(reason="the URL holds a secret of yours")
        if isinstance(url, UrlRefused):
            return types.ErrorData(code=INVALID_PARAMS, message=f"the page is not opened: {url}")
        request = UrlRequest(
            server_id=self._server_id,
            message=escape_text(params.message),
            url=url,
            elicitation_id=_sanitize_id(params.elicitation_id),
            untrusted=not self._is_trusted,
        )
        action = await self._operator.elicit_url(request)
        if action == "accept" and self._in_force():
            await self._operator.open_url(url.url)
        return types.ElicitResult(action=action)

    def _refuse_elicitation(self, ability: Literal["form", "url"]) -> types.ErrorData:
        """Refuse an elicitation that the entry does not allow, and tell the user once how to allow it."""
        if ability in self._operator.abilities and ability not in self._notified_of:
            self._notified_of.add(ability)
            how = "by a form" if ability == "form" else "on a page"
            allow = 'set `"elicitation": true` in its entry to allow it'
            self._operator.notify(self._server_id, f"its request for input {how} was refused; {allow}")
        return refusal("elicitation by form" if ability == "form" else "elicitation by URL")

    async def sample(self, params: types.CreateMessageRequestParams) -> Samples:
        """Answer a sampling request through the operator, within the server's token budget."""
        if self._sampling is None:
            return refusal("sampling")
        if params.tools or params.tool_choice:
            return refusal("sampling with tools")
        try:
            params, left_out = await make_safe(params, self._max_text_bytes)
        except ValueError as exc:
            return types.ErrorData(code=INVALID_PARAMS, message=gate.text(str(exc)))
        if left_out:
            self._tell_of_cut(left_out)
        read = _tokens(params.model_dump_json(include={"messages", "system_prompt"}))
        granted = min(params.max_tokens, self._tokens_left - read)
        if granted <= 0:
            message = "the tokens this server may use in one run are used up (`sampling.max_tokens`)"
            return types.ErrorData(code=INVALID_REQUEST, message=message)
        self._tokens_left -= read + granted  # before the wait, lest concurrent requests spend it twice
        request = SampleRequest(
            server_id=self._server_id, params=params, max_tokens=granted, untrusted=not self._is_trusted
        )
        try:
            result = await self._operator.sample(request)
        except Exception as exc:
            self._tokens_left += read + granted
            if isinstance(exc, CallDenied):
                return types.ErrorData(code=USER_REJECTED, message="the user rejected it")
            if isinstance(exc, ModelFailed):  # how, is nothing that a server should know
                return types.ErrorData(code=INTERNAL_ERROR, message="the sampling request failed")
            raise
        self._tokens_left += max(0, granted - _tokens(result.model_dump_json(include={"content"})))
        return self._answer_in_force(result)

    def _answer_in_force(self, answer: AnswerT) -> AnswerT | types.ErrorData:
        """An answer for which the user or a model was waited for: none for a server that is gone by now."""
        if self._in_force():
            return answer
        return types.ErrorData(code=INVALID_REQUEST, message="this server was disabled or changed meanwhile")

    def _tell_of_cut(self, left_out: list[str]) -> None:
        some = ", ".join(left_out[:3]) + (f" and {len(left_out) - 3} more" if len(left_out) > 3 else "")
        self._operator.notify(
            self._server_id,
            f"it wanted a model to read more than it may; left out: {some} (`max_result_bytes` in its entry)",
        )

    async def list_roots(self) -> types.ListRootsResult | types.ErrorData:
        """Name the folders of the server's entry, or where it has none, those of the operator."""
        if not self._roots and self._asks_for_roots and isinstance(self._operator, RootsProvider):
            return self._answer_in_force(await self._operator.list_roots(self._server_id))
        if not self._roots:
            return refusal("roots")
        return types.ListRootsResult(
            roots=[
                types.Root.model_validate({"uri": root.as_uri(), "name": root.name}) for root in self._roots
            ]
        )

    def handle_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass on what the server logs."""
        raw = msgspec.json.encode(params.data)  # which writes what is nested too deep for `to_json`
        cleaned = gate.json_bytes(raw, MAX_LOG_BYTES)
        text = params.data if isinstance(params.data, str) else raw.decode(errors="replace")
        self._emit(
            ServerLogged(
                server_id=self._server_id,
                level=params.level,
                message=escape_text(text),
                logger=escape_text(params.logger) if params.logger else None,
                json=cleaned,
                untrusted=not self._is_trusted,
            )
        )

    def handle_completion(self, elicitation_id: str) -> None:
        """Forward the notification that a URL elicitation is complete."""
        if isinstance(self._operator, UrlCompletionListener):
            self._operator.page_completed(self._server_id, _sanitize_id(elicitation_id) or "")

    def handle_update(self, uri: str) -> None:
        """Pass on that a resource changed."""
        self._emit(ResourceUpdated(server_id=self._server_id, uri=gate.content(uri, gate.MAX_TEXT_BYTES)))


def _with_defaults(schema: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a form with those defaults alone that fit: clients refuse a form with any other."""
    properties: dict[str, dict[str, Any]] = {}
    for name, shape in as_object(schema.get("properties")).items():
        properties[name] = {keyword: value for keyword, value in shape.items() if keyword != "default"}
        if name in defaults:
            properties[name]["default"] = defaults[name]
    return {**schema, "properties": properties}


def _sanitize_id(elicitation_id: str | None) -> str | None:
    """The sanitized id of an elicitation: the same in its request and its completion."""
    return None if elicitation_id is None else gate.content(elicitation_id, gate.MAX_TEXT_BYTES)


def _tokens(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN

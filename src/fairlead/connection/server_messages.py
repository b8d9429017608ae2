"""Requests, notifications and handshakes of servers, repaired before they are parsed.

The SDK drops a notification and refuses a request that its models do not take, for one field that is null, a
level that the protocol does not have or content that is a text instead of a block. What a server means is
plain in most of these cases: it is put into the form that the protocol has. What is still not valid is left
to the SDK to refuse, or dropped where there is nothing to pass on.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from fairlead.catalog.repair.content import repair_blocks, repair_role, text_block
from fairlead.catalog.repair.definitions import repair_icons
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import as_list, is_list, is_object

Params = Mapping[str, Any]

MAX_INSTRUCTIONS: Final = 64 * 1024
"""How many characters of a server's instructions are kept."""
MAX_RAW_INSTRUCTIONS: Final = 2 * MAX_INSTRUCTIONS
"""How many are looked at: cleaning may take some out, and no secret may be cut before it is masked."""
MAX_INFO_TEXT: Final = 1024
"""How many characters of each text are kept that a server says of itself: name, version, title and so on."""
MAX_ICONS: Final = 16
DEFAULT_MAX_TOKENS: Final = 1024
"""For a server that asks for a model's words without saying how many."""

_LEVELS: Final[Mapping[str, str]] = {
    **{
        level: level
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    },
    **dict.fromkeys(("trace", "verbose", "silly", "fine"), "debug"),
    **dict.fromkeys(("log", "information", "success"), "info"),
    "warn": "warning",
    **dict.fromkeys(("err", "exception", "failure"), "error"),
    **dict.fromkeys(("fatal", "crit", "panic"), "critical"),
    "emerg": "emergency",
}
_NUMBERED: Final = ((10, "debug"), (20, "info"), (30, "warning"), (40, "error"), (math.inf, "critical"))
"""Levels as Python's `logging` numbers them."""


def read_number(value: object) -> float | None:
    """A number, also one that was sent as text; None for what is none or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# Notifications.


def repair_notification(method: str, params: Params | None) -> Params | None:
    """The parameters of a notification as the protocol has them.

    Raises:
        ValueError: There is nothing in it to pass on.
    """
    if params is not None and "_meta" in params and not is_object(params["_meta"]):
        params = {name: value for name, value in params.items() if name != "_meta"}
    repair = _NOTIFICATIONS.get(method)
    return params if repair is None else repair(params or {})


def _repair_log(params: Params) -> Params:
    level, data = _level(params.get("level", params.get("severity"))), params.get("data")
    if "data" not in params:
        others = {name: value for name, value in params.items() if name not in ("level", "logger", "_meta")}
        if not others:
            raise ValueError("it says nothing")
        message = next((others[name] for name in ("message", "msg", "text") if name in others), None)
        data = others if message is None else message
    made: dict[str, Any] = {"level": level, "data": data}
    if isinstance(named := params.get("logger"), str):
        made["logger"] = named
    return {**made, "_meta": params["_meta"]} if "_meta" in params else made


def _level(level: object) -> str:
    if isinstance(level, str):
        return _LEVELS.get(level.strip().lower(), "info")
    number = read_number(level)
    return "info" if number is None else next(name for most, name in _NUMBERED if number <= most)


def _require_uri(params: Params) -> Params:
    if not isinstance(params.get("uri"), str) or not params["uri"]:
        raise ValueError("it names no resource")
    return params


def _require_id(params: Params) -> Params:
    named: object = params.get("elicitationId")
    if isinstance(named, int) and not isinstance(named, bool):
        return {**params, "elicitationId": str(named)}
    if not isinstance(named, str):
        raise ValueError("it names no elicitation")
    return params


def _require_request(params: Params) -> Params:
    named = params.get("requestId")
    if isinstance(named, bool) or not isinstance(named, str | int):
        raise ValueError("it names no request")
    return {name: value for name, value in params.items() if name != "reason" or isinstance(value, str)}


def _repair_progress(params: Params) -> Params:
    token, progress = params.get("progressToken"), read_number(params.get("progress"))
    if progress is None or isinstance(token, bool) or not isinstance(token, str | int | float):
        raise ValueError("it reports no progress")
    made: dict[str, Any] = {"progressToken": token, "progress": progress}
    if (total := read_number(params.get("total"))) is not None:
        made["total"] = total
    if (message := params.get("message")) is not None:
        made["message"] = message if isinstance(message, str) else text_block(message)["text"]
    return made


_NOTIFICATIONS: Final[Mapping[str, Callable[[Params], Params]]] = {
    "notifications/cancelled": _require_request,
    "notifications/message": _repair_log,
    "notifications/progress": _repair_progress,
    "notifications/resources/updated": _require_uri,
    "notifications/elicitation/complete": _require_id,
}


# The handshake.


def repair_handshake(result: Mapping[str, Any]) -> dict[str, Any]:
    """Repair a server's answer to the handshake, field by field; what is not valid is left out.

    Nothing is made up that decides how to talk to it: without a protocol version it is still not valid.
    """
    made = _without_nulls(result)
    made["capabilities"] = _repair_capabilities(made.get("capabilities"))
    for name, is_valid in _HANDSHAKE_OPTIONS.items():
        if name in made and not is_valid(made[name]):
            del made[name]
    if "instructions" in made:
        made["instructions"] = made["instructions"][:MAX_RAW_INSTRUCTIONS]
    if "ttlMs" in made and (ttl := read_number(made.pop("ttlMs"))) is not None:
        made["ttlMs"] = max(0, int(ttl))
    if is_list(versions := made.get("supportedVersions")):
        made["supportedVersions"] = read_versions(versions)
    if "protocolVersion" in made or "serverInfo" in made:
        made["serverInfo"] = _repair_info(made.get("serverInfo"))
    return made


def read_versions(listed: object) -> list[str]:
    """The protocol versions in a list of a server. Items that are no text are left out."""
    return [version for version in as_list(listed) if isinstance(version, str)]


def _repair_capabilities(value: object) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, settings in (value if is_object(value) else {}).items():
        if settings is None or settings is False:
            continue
        if name in ("experimental", "extensions"):
            named: dict[str, Any] = settings if is_object(settings) else {}
            made[name] = {key: _settings(item) for key, item in named.items() if item not in (None, False)}
        else:
            made[name] = _repair_capability(settings)
    return made


def _repair_capability(settings: object) -> dict[str, Any]:
    """The settings of a capability. One that is present in any form counts as declared."""
    made: dict[str, Any] = {}
    for name, item in _settings(settings).items():
        if name in ("listChanged", "subscribe"):
            made[name] = item in (True, 1, "true", "True", "yes")
        elif item is not None and item is not False:
            made[name] = _repair_capability(item)
    return made


def _settings(value: object) -> dict[str, Any]:
    return value if is_object(value) else {}


def _repair_info(value: object) -> dict[str, Any]:
    made = _without_nulls(_settings(value))
    for name in ("name", "version"):
        text: object = made.get(name)
        if isinstance(text, int | float) and not isinstance(text, bool):
            made[name] = str(text)
        elif not isinstance(text, str):
            made[name] = "unknown"
    if "icons" in made:
        icons: object = made["icons"]
        valid = repair_icons(icons[:MAX_ICONS] if is_list(icons) else icons)
        made["icons"] = [icon for icon in valid if len(icon["src"]) <= MAX_INFO_TEXT]
    return {
        name: item[: gate.head_length(MAX_INFO_TEXT) + 1] if isinstance(item, str) else item
        for name, item in made.items()
        if name not in _INFO_TEXTS or _is_text(item)
    }


_INFO_TEXTS: Final = frozenset(("title", "description", "websiteUrl"))


# Requests.


def repair_request(method: str, params: Params | None) -> Params | None:
    """The parameters of a request of a server in the protocol's form, repaired where possible."""
    repair = _REQUESTS.get(method)
    return params if repair is None else repair(_without_nulls(params or {}))


def _without_nulls(params: Params) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _repair_sampling(params: dict[str, Any]) -> dict[str, Any]:
    messages: object = params.get("messages", params.get("prompt"))
    items: list[Any] = messages if is_list(messages) else [] if messages is None else [messages]
    most = read_number(params.get("maxTokens", params.get("max_tokens")))
    made: dict[str, Any] = {**params, "messages": [_repair_sampled(item) for item in items]}
    made["maxTokens"] = DEFAULT_MAX_TOKENS if most is None or most < 1 else int(most)
    for name, is_valid in _SAMPLING_OPTIONS.items():
        if name in made and not is_valid(made[name]):
            del made[name]
    if "temperature" in made and (temperature := read_number(made.pop("temperature"))) is not None:
        made["temperature"] = temperature
    if isinstance(stop := made.get("stopSequences"), str):
        made["stopSequences"] = [stop]
    if "modelPreferences" in made:
        made["modelPreferences"] = _repair_preferences(made["modelPreferences"])
    return made


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return _is_text(value) or (is_list(value) and all(map(_is_text, value)))


_SAMPLING_OPTIONS: Final[Mapping[str, Callable[[object], bool]]] = {
    "systemPrompt": _is_text,
    "includeContext": lambda value: value in ("none", "thisServer", "allServers"),
    "stopSequences": _is_texts,
    "metadata": is_object,
    "_meta": is_object,
    "modelPreferences": is_object,
}
_HANDSHAKE_OPTIONS: Final[Mapping[str, Callable[[object], bool]]] = {
    "instructions": _is_text,
    "resultType": _is_text,
    "cacheScope": lambda value: value in ("public", "private"),
    "_meta": is_object,
}


def _repair_preferences(value: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    hints: object = value.get("hints")
    named = [{"name": hint} if isinstance(hint, str) else hint for hint in (hints if is_list(hints) else [])]
    if valid := [hint for hint in named if is_object(hint) and _is_text(hint.get("name", ""))]:
        made["hints"] = valid
    for name in ("costPriority", "speedPriority", "intelligencePriority"):
        if (share := read_number(value.get(name))) is not None:
            made[name] = min(max(share, 0.0), 1.0)
    return made


def _repair_sampled(item: object) -> dict[str, Any]:
    """A message for a model. Its content is one block or several: text, media, and the use of tools."""
    message: Mapping[str, Any] = item if is_object(item) else {"content": item}
    content: object = message.get("content", message.get("text"))
    blocks = [*_repair_sampling_blocks(content if is_list(content) else [content])]
    made = blocks[0] if len(blocks) == 1 else blocks or text_block("")
    return {"role": repair_role(message.get("role")), "content": made}


def _repair_sampling_blocks(items: list[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        if is_object(item) and item.get("type") in ("tool_use", "tool_result"):
            yield item
            continue
        for block in repair_blocks(item)[0] if item is not None else ():
            yield block if block["type"] in ("text", "image", "audio") else text_block(_resource_text(block))


def _resource_text(block: Mapping[str, Any]) -> object:
    """A resource link or embedded resource as text, for a message that can have neither."""
    resource: object = block.get("resource")
    return resource["text"] if is_object(resource) and "text" in resource else dict(block)


def _repair_elicitation(params: dict[str, Any]) -> dict[str, Any]:
    made = {**params, "message": text_block(params.get("message", ""))["text"]}
    if not is_object(made.get("_meta", {})):
        del made["_meta"]
    is_page = "url" in params and (params.get("mode") == "url" or "requestedSchema" not in params)
    made["mode"] = "url" if is_page else "form"
    if is_page:
        named: object = params.get("elicitationId")
        made["elicitationId"] = named if isinstance(named, str) and named else secrets.token_hex(16)
    else:
        made["requestedSchema"] = _repair_form(params.get("requestedSchema"))
    return made


def _repair_form(schema: object) -> object:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not is_object(schema):
        return schema
    made = _without_nulls(schema)
    made.setdefault("type", "object")
    properties: object = made.setdefault("properties", {})
    if is_object(properties):
        made["properties"] = {name: _repair_field(field) for name, field in properties.items()}
    if "required" in made and not _is_texts(made["required"]):
        del made["required"]
    elif isinstance(required := made.get("required"), str):
        made["required"] = [required]
    return made


def _repair_field(field: object) -> object:
    """A field of a form. Type generators write `X or nothing` for one that may be left out."""
    if not is_object(field):
        return field
    made = _without_nulls(field)
    for name in ("anyOf", "oneOf"):
        choices: object = made.get(name)
        some = [each for each in choices if each != {"type": "null"}] if is_list(choices) else []
        if is_list(choices) and len(some) == 1 and len(choices) > 1 and is_object(some[0]):
            del made[name]
            made = {**some[0], **made}
    kinds: object = made.get("type")
    if is_list(kinds) and len(some := [kind for kind in kinds if kind != "null"]) == 1:
        made["type"] = some[0]
    if "type" not in made and ({"enum", "oneOf"} & made.keys() or not made.keys() - {"title", "description"}):
        made["type"] = "string"
    return made


_REQUESTS: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "sampling/createMessage": _repair_sampling,
    "elicitation/create": _repair_elicitation,
}
REPAIRED_REQUESTS: Final = frozenset(_REQUESTS)

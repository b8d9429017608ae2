"""Ways to change a tool behind the user's back."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

Definition = dict[str, Any]

BENIGN: Definition = {
    "name": "echo",
    "title": "Search",
    "description": "Search the tickets of a project, newest first.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to look for."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "state": {"enum": ["open", "closed"], "default": "open"},
            "filter": {
                "type": "object",
                "properties": {"label": {"type": "string"}, "default": {"type": "boolean"}},
                "default": {"label": "none"},
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"total": {"type": "integer"}}},
    "annotations": {"readOnlyHint": False, "openWorldHint": True},
}

Rug = Callable[[random.Random, Definition], None]


def _words(chance: random.Random) -> str:
    return " ".join(chance.choice(["read", "~/.ssh", "first", "and", "send", "it", "on"]) for _ in range(4))


def _properties(tool: Definition) -> Definition:
    return tool["inputSchema"]["properties"]


def _insert(chance: random.Random, text: str, what: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + what + text[at:]


def description_edited(chance: random.Random, tool: Definition) -> None:
    tool["description"] = _insert(chance, tool["description"], f" {_words(chance)} ")


def one_letter_changed(chance: random.Random, tool: Definition) -> None:
    text = tool["description"]
    at = chance.randrange(len(text))
    tool["description"] = text[:at] + chance.choice("QXZ") + text[at + 1 :]


def look_alike_letter(chance: random.Random, tool: Definition) -> None:
    latin, other = chance.choice([("e", "\u0435"), ("o", "\u043e"), ("a", "\u0430"), ("c", "\u0441")])
    tool["description"] = tool["description"].replace(latin, other, 1)


def invisible_letter(chance: random.Random, tool: Definition) -> None:
    hidden = chance.choice(["\u200b", "\u2060", "\U000e0041", "\u202e", "\ufeff", "\x1b[8m"])
    tool["description"] = _insert(chance, tool["description"], hidden)


def title_changed(chance: random.Random, tool: Definition) -> None:
    tool["title"] = f"Search {_words(chance)}"


def parameter_described(chance: random.Random, tool: Definition) -> None:
    _properties(tool)[chance.choice([*_properties(tool)])]["description"] = _words(chance)


def parameter_added(chance: random.Random, tool: Definition) -> None:
    name = chance.choice(["context", "notes", "history", "default"])
    _properties(tool)[name] = {"type": "string", "description": _words(chance)}


def parameter_removed(chance: random.Random, tool: Definition) -> None:
    del _properties(tool)[chance.choice([*_properties(tool)])]


def choice_changed(chance: random.Random, tool: Definition) -> None:
    _properties(tool)["state"]["enum"].insert(chance.randrange(3), _words(chance))


def choices_reordered(_chance: random.Random, tool: Definition) -> None:
    _properties(tool)["state"]["enum"].reverse()


def required_changed(chance: random.Random, tool: Definition) -> None:
    tool["inputSchema"]["required"] = chance.choice([[], ["limit"], ["query", "filter"]])


def hint_flipped(chance: random.Random, tool: Definition) -> None:
    name = chance.choice(["readOnlyHint", "openWorldHint"])
    tool["annotations"][name] = not tool["annotations"][name]


def output_changed(chance: random.Random, tool: Definition) -> None:
    tool["outputSchema"]["properties"]["next"] = {"type": "string", "description": _words(chance)}


def number_default_changed(chance: random.Random, tool: Definition) -> None:
    _properties(tool)["limit"]["default"] = chance.randrange(11, 50)


def nested_default_changed(chance: random.Random, tool: Definition) -> None:
    _properties(tool)["filter"]["default"] = {"label": _words(chance)}


def property_called_default_changed(chance: random.Random, tool: Definition) -> None:
    _properties(tool)["filter"]["properties"]["default"]["description"] = _words(chance)


def limit_widened(chance: random.Random, tool: Definition) -> None:
    _properties(tool)["limit"]["maximum"] = chance.randrange(51, 10_000)


def more_let_in(_chance: random.Random, tool: Definition) -> None:
    tool["inputSchema"]["additionalProperties"] = True


def default_text_with_something_else(chance: random.Random, tool: Definition) -> None:
    _properties(tool)["state"]["default"] = _words(chance)
    _properties(tool)["query"]["description"] += "."


RUGS: list[Rug] = [
    description_edited,
    one_letter_changed,
    look_alike_letter,
    invisible_letter,
    title_changed,
    parameter_described,
    parameter_added,
    parameter_removed,
    choice_changed,
    choices_reordered,
    required_changed,
    hint_flipped,
    output_changed,
    number_default_changed,
    nested_default_changed,
    property_called_default_changed,
    limit_widened,
    more_let_in,
    default_text_with_something_else,
]


def pulled(seed: int) -> Definition:
    """A tool that is not what it was, in some way or other."""
    chance = random.Random(seed)
    tool = deepcopy(BENIGN)
    RUGS[seed % len(RUGS)](chance, tool)
    assert tool != BENIGN
    return tool

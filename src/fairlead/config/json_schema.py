"""JSON Schema of `fairlead.json` for editors, generated from the models."""

import json
from pathlib import Path
from typing import Any

from fairlead.config.models import SERVER_MODELS, TARGETS, Config

SCHEMA_FILE = Path(__file__).with_name("fairlead.schema.json")


def json_schema() -> dict[str, Any]:
    """Build the schema from the models."""
    schema = Config.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    definitions["Overlay"] = _overlay(definitions)
    servers = schema["properties"]["servers"]
    servers["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in dict.fromkeys(SERVER_MODELS.values())]
        + [{"$ref": "#/$defs/Overlay"}]
    }
    # A Redis address alone is short for `{"url": …}`.
    store = schema["properties"]["store"]
    store["anyOf"] = [{"$ref": store.pop("$ref")}, {"type": "string"}]
    for section in ("servers", "bundles"):
        schema["properties"][section]["propertyNames"] = {"pattern": "^[a-zA-Z0-9_-]{1,64}$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Fairlead configuration",
        "allowComments": True,
        "allowTrailingCommas": True,
        **{key: value for key, value in schema.items() if key != "title"},
    }


def schema_text() -> str:
    """Text of the schema as shipped."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _overlay(definitions: dict[str, Any]) -> dict[str, Any]:
    """Entry without a target: any field of any server, over an entry of a lower layer."""
    properties: dict[str, Any] = {}
    for model in SERVER_MODELS.values():
        properties |= definitions[model.__name__]["properties"]
    return {
        "title": "Overlay",
        "description": "Fields put over the server of the same id in a lower layer.",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: value for name, value in properties.items() if name not in TARGETS},
    }

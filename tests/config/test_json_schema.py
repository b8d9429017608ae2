"""The JSON Schema and the sample agree with the models."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.document import jsonc
from fairlead.config.document.edit import set_value
from fairlead.config.json_schema import SCHEMA_FILE, schema_text
from fairlead.config.load import load_config
from fairlead.config.validate import check, parse_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "fairlead.json"


VALIDATOR: Any = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def test_the_shipped_schema_is_the_one_the_models_give() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_the_sample_loads_without_a_problem() -> None:
    env = {"HOME": "/nonexistent", "GITHUB_TOKEN": "x", "DATABASE_URL": "x"}
    loaded = load_config(EXAMPLE, env=env, cwd=EXAMPLE.parent)
    assert loaded.problems == ()
    assert len(loaded.servers) >= 4


def test_the_sample_fits_the_schema() -> None:
    VALIDATOR.validate(jsonc.loads(EXAMPLE.read_text(encoding="utf-8")))


def test_an_overlay_fits_the_schema() -> None:
    VALIDATOR.validate({"servers": {"a": {"enabled": False}}})


@pytest.mark.parametrize(
    "document",
    [
        {"servers": {"a": {"comand": "x"}}},
        {"servers": {"a b": {"command": "x"}}},
        {"servers": {"a": {"command": "x", "enabled": "yes"}}},
        {"server": {}},
        {"version": 2},
    ],
)
def test_what_loading_refuses_the_schema_refuses(document: Any) -> None:
    assert check(document).faults
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


names = st.text("abcXYZ019_-", min_size=1, max_size=64)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(
    lambda text: text.replace("${", "")
)
some = words.filter(bool)
stdio = st.fixed_dictionaries(
    {"command": some},
    optional={
        "args": st.lists(words, max_size=3),
        "env": st.dictionaries(names, words, max_size=3),
        "cwd": some,
        "enabled": st.booleans(),
        "trust": st.sampled_from(["trusted", "untrusted"]),
        "allow_tools": st.lists(some, min_size=1, max_size=3),
        "approval": st.sampled_from(["allow", "ask", "auto", "deny"]),
        "request_timeout_ms": st.integers(1, 86_400_000),
    },
)
http = st.fixed_dictionaries(
    {"url": st.sampled_from(["https://example.com/mcp", "http://localhost:1/x"])},
    optional={"transport": st.sampled_from(["http", "sse"]), "oauth": st.just(False), "description": words},
)
documents = st.fixed_dictionaries({}, optional={"servers": st.dictionaries(names, stdio | http, max_size=4)})


@given(documents)
def test_any_valid_configuration_survives_writing_and_reading(document: dict[str, Any]) -> None:
    config = parse_config(document)
    text = "{}\n"
    for server_id, entry in document.get("servers", {}).items():
        text = set_value(text, ("servers", server_id), entry)
    assert parse_config(jsonc.parse(text).data) == config
    again = parse_config(config.model_dump(mode="json", by_alias=True, exclude_unset=True))
    assert again == config
    VALIDATOR.validate(document)

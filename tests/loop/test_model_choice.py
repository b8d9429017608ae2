"""Which model a run uses, and whose key goes where."""

from typing import Any

import pytest

from fairlead.config.secrets.masking import SECRETS
from fairlead.errors import ConfigError, ConfigInvalid, SecretUnavailable
from fairlead.loop.model_choice import choose_model
from fairlead.loop.provider import ChatModel
from tests.conftest import Machine

OPENAI = {"OPENAI_API_KEY": "sk-openai-key-1"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-anthropic-key-1"}
LOCAL = {"provider": "openai", "name": "llama", "base_url": "http://localhost:11434/v1"}


def chosen(machine: Machine, wanted: str | None, env: dict[str, str], **settings: Any) -> ChatModel:
    overrides = {"model": settings} if settings else {}
    return choose_model(machine.load(overrides=overrides), wanted, env)


def test_the_command_line_goes_before_the_configuration(machine: Machine) -> None:
    env = OPENAI | ANTHROPIC
    model = chosen(machine, None, env, **LOCAL)
    assert (model.provider, model.name, model.base_url) == ("openai", "llama", "http://localhost:11434/v1")
    model = chosen(machine, "anthropic/claude", env, **LOCAL)
    assert (model.provider, model.name, model.base_url) == ("anthropic", "claude", None)
    assert model.api_key == "sk-anthropic-key-1"
    model = chosen(machine, "meta-llama/Llama-3", env, **LOCAL)
    assert (model.provider, model.name, model.base_url) == (
        "openai",
        "meta-llama/Llama-3",
        "http://localhost:11434/v1",
    )


def test_the_variables_of_a_provider_are_enough(machine: Machine) -> None:
    assert chosen(machine, "openai/gpt", OPENAI).api_key == "sk-openai-key-1"
    assert chosen(machine, "claude", ANTHROPIC).provider == "anthropic"
    local = chosen(machine, "llama", {"OPENAI_BASE_URL": "http://localhost:11434/v1"})
    assert (local.provider, local.api_key, local.base_url) == ("openai", None, "http://localhost:11434/v1")


def test_a_key_of_the_environment_goes_to_no_address_of_a_configuration(machine: Machine) -> None:
    assert chosen(machine, None, OPENAI, **LOCAL).api_key is None
    own = chosen(machine, None, OPENAI, **LOCAL, api_key="${OPENAI_API_KEY}")
    assert own.api_key == "sk-openai-key-1"
    plain = chosen(machine, None, OPENAI, provider="openai", name="gpt", max_output_tokens=5)
    assert (plain.api_key, plain.max_output_tokens) == ("sk-openai-key-1", 5)


def test_a_key_is_masked_once_it_is_known(machine: Machine) -> None:
    model = chosen(machine, "openai/gpt", {"OPENAI_API_KEY": " hunter2-hunter2\n"})
    assert model.api_key == "hunter2-hunter2"
    assert "hunter2" not in repr(model)
    assert "hunter2" not in SECRETS.mask("the key hunter2-hunter2 is wrong")


@pytest.mark.parametrize(
    ("wanted", "env", "words", "hint"),
    [
        (None, OPENAI, "no model is chosen", "--model openai/NAME"),
        ("gpt", {}, "provider of the model `gpt` is not known", "--model openai/NAME"),
        ("gpt", OPENAI | ANTHROPIC, "provider of the model `gpt` is not known", "--model openai/NAME"),
        ("openai/gpt", ANTHROPIC, "no API key for `openai`", "export OPENAI_API_KEY"),
        ("openai/gpt", {"OPENAI_API_KEY": ""}, "no API key for `openai`", "export OPENAI_API_KEY"),
        ("anthropic/claude", OPENAI, "no API key for `anthropic`", "export ANTHROPIC_API_KEY"),
        ("openai/gpt", {"OPENAI_API_KEY": "sk-1\nX: y"}, "is no API key", ""),
        ("openai/gpt", {"OPENAI_API_KEY": "schlüssel"}, "is no API key", ""),
    ],
)
def test_a_choice_that_is_none_says_how_to_make_one(
    machine: Machine, wanted: str | None, env: dict[str, str], words: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        chosen(machine, wanted, env)
    assert hint in (caught.value.hint or "")
    assert "sk-1" not in str(caught.value)


def test_a_reference_to_nothing_names_the_field(machine: Machine) -> None:
    with pytest.raises(SecretUnavailable, match=r"model\.api_key.*NO_SUCH"):
        chosen(machine, None, {}, **LOCAL, api_key="${NO_SUCH}")


@pytest.mark.requirement("HARD-2")
def test_a_project_cannot_say_where_a_conversation_goes(machine: Machine) -> None:
    machine.write_project('{"model": {"provider": "openai", "name": "m", "base_url": "http://evil.example"}}')
    loaded = machine.load()
    assert loaded.config.model is None
    assert "a project file may not set this" in str(loaded.problems[0])
    machine.write_user('{"model": {"provider": "openai", "name": "mine", "api_key": "k"}}')
    assert choose_model(machine.load(), None, machine.env).name == "mine"


def test_a_model_without_a_provider_is_a_mistake_with_its_place(machine: Machine) -> None:
    machine.write_user('{"model": {"name": "m", "baseurl": "x"}}')
    loaded = machine.load()
    assert loaded.config.model is None
    with pytest.raises(ConfigInvalid) as caught:
        choose_model(loaded, "openai/m", machine.env)
    assert "model.provider: is missing" in str(caught.value)
    assert "did you mean `base_url`?" in (caught.value.hint or "")


def test_whether_a_model_takes_images_is_configured_or_known_by_its_name(machine: Machine) -> None:
    """Seed 004: images are stripped if the model does not support image input."""
    assert chosen(machine, None, {}, **LOCAL).vision
    assert not chosen(machine, None, {}, **LOCAL, vision=False).vision
    assert chosen(machine, "other", {}, **LOCAL, vision=False).vision  # the setting is about `llama`
    assert not chosen(machine, "llama3.1:8b", {}, **LOCAL).vision
    assert chosen(machine, None, {}, **(LOCAL | {"name": "llama3.1:8b"}), vision=True).vision
    assert not chosen(machine, "openai/gpt-3.5-turbo", OPENAI).vision

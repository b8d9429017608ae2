"""Choice of a run's model: from the command line, else the configuration, else environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fairlead.config.load import LoadedConfig
from fairlead.config.models import ModelSettings
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.references import resolve
from fairlead.errors import ConfigError, SecretUnavailable
from fairlead.host.model.vision import takes_images
from fairlead.loop.provider import DEFAULT_SILENCE_SECONDS, ChatModel, Provider

SETTING_HINT: Final = (
    "set `model` in your own fairlead.json:"
    ' {"provider": "openai", "name": "…", "base_url": "http://localhost:11434/v1"} is a local Ollama'
)
_HOW: Final = f"say `--model openai/NAME` or `--model anthropic/NAME`, or {SETTING_HINT}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variables:
    """The variables that a provider's own programs read."""

    key: str
    base_url: str


_VARIABLES: Final[dict[Provider, _Variables]] = {
    "openai": _Variables(key="OPENAI_API_KEY", base_url="OPENAI_BASE_URL"),
    "anthropic": _Variables(key="ANTHROPIC_API_KEY", base_url="ANTHROPIC_BASE_URL"),
}


def choose_model(loaded: LoadedConfig, wanted: str | None, env: Mapping[str, str]) -> ChatModel:
    """Choose the model of a run, with its URL and key.

    A key from the environment goes to where the environment or the provider says, and to no `base_url` of a
    configuration, which must name its own.

    Args:
        loaded: The configuration.
        wanted: `provider/name`, or the name of another model of the configured provider.
        env: The environment.

    Raises:
        ConfigError: No model is configured or named, or its key is missing.
    """
    settings = loaded.config.model
    loaded.require_section("model")
    provider, name = _parse_model_name(settings, wanted, env)
    if settings is None or settings.provider != provider:
        return replace(_from_environment(provider, name, env), vision=takes_images(name))
    # What the configuration says is about the model that it names.
    configured = settings.vision if name == settings.name else None
    vision = takes_images(name) if configured is None else configured
    model = ChatModel(
        provider=provider,
        name=name,
        base_url=_resolve_field(loaded, "base_url", settings.base_url, env),
        api_key=_key(_resolve_field(loaded, "api_key", settings.api_key, env), "`model.api_key`"),
        key_from="`model.api_key` in your fairlead.json",
        max_output_tokens=settings.max_output_tokens,
        silence_seconds=settings.request_timeout_ms / 1000,
        vision=vision,
    )
    if model.base_url is not None or model.api_key is not None:
        return model
    found = _from_environment(
        provider, name, env, max_output_tokens=model.max_output_tokens, silence_seconds=model.silence_seconds
    )
    return replace(found, vision=vision)


def _parse_model_name(
    settings: ModelSettings | None, wanted: str | None, env: Mapping[str, str]
) -> tuple[Provider, str]:
    if wanted is None:
        if settings is None:
            raise ConfigError("no model is chosen", hint=_HOW)
        return settings.provider, settings.name
    prefix, _, rest = wanted.partition("/")
    for provider in _VARIABLES:  # any other prefix is part of the name, as in `meta-llama/…`
        if prefix == provider and rest:
            return provider, rest
    if settings is not None:
        return settings.provider, wanted
    there: list[Provider] = [
        provider for provider, names in _VARIABLES.items() if env.get(names.key) or env.get(names.base_url)
    ]
    if len(there) != 1:
        raise ConfigError(f"the provider of the model `{wanted}` is not known", hint=_HOW)
    return there[0], wanted


def _from_environment(
    provider: Provider,
    name: str,
    env: Mapping[str, str],
    *,
    max_output_tokens: int | None = None,
    silence_seconds: float = DEFAULT_SILENCE_SECONDS,
) -> ChatModel:
    variables = _VARIABLES[provider]
    base_url = env.get(variables.base_url) or None
    key = _key(env.get(variables.key) or None, variables.key)
    if key is None and base_url is None:
        raise ConfigError(
            f"there is no API key for `{provider}`",
            hint=f"run `export {variables.key}=…`, or set `model.api_key` or `model.base_url` in your own"
            " fairlead.json; a local model often needs no key",
        )
    return ChatModel(
        provider=provider,
        name=name,
        base_url=base_url,
        api_key=key,
        key_from=f"the variable {variables.key}",
        max_output_tokens=max_output_tokens,
        silence_seconds=silence_seconds,
    )


def _resolve_field(loaded: LoadedConfig, field: str, text: str | None, env: Mapping[str, str]) -> str | None:
    if text is None:
        return None
    origin = loaded.origin("model", field)
    try:
        return resolve(text, env=env, base=origin.layer.base if origin else Path())
    except SecretUnavailable as exc:
        raise SecretUnavailable(f"model.{field}: {exc}", hint=exc.hint) from exc


def _key(text: str | None, source: str) -> str | None:
    """An API key that fits into a header, masked in all output from now on."""
    key = (text or "").strip()
    SECRETS.learn(key)
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"what {source} holds is no API key: there are characters in it that no key has")
    return key or None

"""Origin of every field of a server: the layer that set it, and the values it overrode."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fairlead.config.field_types import StrictModel
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.merge import FieldPath, LayerSetting, ValueOrigin
from fairlead.config.models import SERVER_MODELS
from fairlead.config.secrets.masking import MASK
from fairlead.config.secrets.redaction import looks_secret, redact_entry
from fairlead.config.untyped import is_list, is_object, value_at


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerValue:
    """Value of a field in one layer, safe to print."""

    value: Any
    layer: str
    place: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldOrigin:
    """A field with the value in effect, its origin, and the overridden values."""

    field: str
    in_effect: LayerValue | None
    """None where the field is no longer set: an entry above replaced the one that had it."""
    overrode: tuple[LayerValue, ...]


def explain_server(server: LoadedServer) -> list[FieldOrigin]:
    """Every field of a server: configured ones first, in their order, then the built-in defaults."""
    rows: list[FieldOrigin] = []
    seen: set[FieldPath] = set()
    for path in _paths_that_were_set(server):
        if path in seen:
            continue
        seen.add(path)
        live = [_layer_value(path, setting) for setting in server.definition.settings(path)]
        lost = [_layer_value(path, setting) for setting in server.definition.list_replaced_settings(path)]
        if live and path == ("deny_tools",):  # lists of all layers add up
            live[0] = replace(live[0], value=server.entry["deny_tools"])
        rows.append(
            FieldOrigin(
                field=".".join(map(str, path)),
                in_effect=live[0] if live else None,
                overrode=(*live[1:], *lost),
            )
        )
    rows += _list_defaults(server, {path[0] for path in seen})
    return [*(_apply_trust_cap(server, row) for row in rows), *_admin_policy_rows(server)]


def _paths_that_were_set(server: LoadedServer) -> Iterator[FieldPath]:
    definition = server.definition
    for part in (*definition.parts, *definition.replaced, *definition.defaults):
        for name, value in part.entry.items() if is_object(part.entry) else ():
            if is_object(value) and value:
                yield from ((name, key) for key in value)
            else:
                yield (name,)


def _layer_value(path: FieldPath, setting: LayerSetting) -> LayerValue:
    entry: Any = setting.value
    for step in reversed(path):
        entry = {step: entry}
    shown = value_at(redact_entry(entry), path)
    return LayerValue(value=shown, layer=setting.origin.layer.name, place=str(setting.origin))


def _list_defaults(server: LoadedServer, named: set[str | int]) -> Iterator[FieldOrigin]:
    model = SERVER_MODELS.get(server.transport or "")
    for name, field in model.model_fields.items() if model else ():
        if name not in named and not field.is_required():
            value = server.transport if name == "transport" else field.get_default(call_default_factory=True)
            default = LayerValue(value=value, layer="default", place=None)
            yield FieldOrigin(field=name, in_effect=default, overrode=())


def _apply_trust_cap(server: LoadedServer, row: FieldOrigin) -> FieldOrigin:
    """A field as limited by the administrator."""
    current, origin = row.in_effect, server.ruling.distrust
    if origin is None or row.field != "trust" or current is None or current.value != "trusted":
        return row
    capped = LayerValue(value="untrusted", layer=origin.layer.name, place=str(origin))
    return replace(row, in_effect=capped, overrode=(current, *row.overrode))


def _admin_policy_rows(server: LoadedServer) -> Iterator[FieldOrigin]:
    """Restrictions on calls that the administrator adds."""
    restrictions: list[tuple[str, Any, ValueOrigin]] = []
    if server.ruling.approval is not None:
        restrictions.append(("policy.approval", *server.ruling.approval))
    restrictions += [
        ("policy.rules", rule.model_dump(exclude_defaults=True), origin)
        for rule, origin in server.ruling.rules
    ]
    for field, value, origin in restrictions:
        in_effect = LayerValue(value=value, layer=origin.layer.name, place=str(origin))
        yield FieldOrigin(field=field, in_effect=in_effect, overrode=())


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingOrigin:
    """A setting outside of servers, such as `audit.keep_days`: its value, and the place that set it."""

    name: str
    value: Any
    default: Any
    place: str | None
    """None where no file sets it."""
    description: str | None


def explain_settings(loaded: LoadedConfig) -> list[SettingOrigin]:
    """Every setting outside of servers and bundles, by its name. Secrets are masked."""
    found: list[SettingOrigin] = []
    for section in type(loaded.config).model_fields:
        settings = getattr(loaded.config, section)
        if not isinstance(settings, StrictModel):
            continue
        values = settings.model_dump(mode="json", by_alias=True)
        for name, field in type(settings).model_fields.items():
            path = (section, field.alias or name)
            is_set = value_at(loaded.merged.data, path) is not None  # else the place is that of the section
            origin = loaded.origin(*path) if is_set else None
            default = field.get_default(call_default_factory=True)
            found.append(
                SettingOrigin(
                    name=f"{section}.{name}",
                    value=_without_secrets(name, values.get(field.alias or name)),
                    default=None if field.is_required() or isinstance(default, StrictModel) else default,
                    place=str(origin) if origin is not None else None,
                    description=field.description,
                )
            )
    return found


def _without_secrets(name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return MASK if looks_secret(name, value) else value
    if is_object(value):
        return {key: _without_secrets(key, each) for key, each in value.items()}
    return [_without_secrets(name, each) for each in value] if is_list(value) else value

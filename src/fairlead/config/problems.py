"""Problems of a merged configuration with their places: faults, missing variables, literal secrets."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from fairlead.config.command_lines import command_line
from fairlead.config.consent import reference_problems
from fairlead.config.merge import FieldPath, MergedConfig, ServerDefinition, ValueOrigin, merge
from fairlead.config.secrets.redaction import BESIDE_REFERENCE, literal_secrets
from fairlead.config.secrets.references import missing_variables, references
from fairlead.config.sources import Layer
from fairlead.config.untyped import ISOLATED, as_object, value_at
from fairlead.config.validate import CheckedDocument, ValidationFault, check
from fairlead.errors import Problem


@dataclass(kw_only=True, slots=True)
class FoundProblems:
    """Problems of a merged configuration, and the part of it that is valid."""

    checked: CheckedDocument
    merging: list[Problem]
    """What a layer may not set."""
    fatal: list[Problem]
    """What costs a whole file."""
    faults: list[Problem]
    """What is wrong with servers, bundles and sections."""
    entries: dict[str, list[Problem]]
    """Problems of the references and secrets of each server."""
    is_fatal: bool
    """Whether loading fails."""

    @property
    def all(self) -> list[Problem]:
        """All problems, in the order of the report."""
        return [*self.merging, *self.fatal, *self.faults, *chain.from_iterable(self.entries.values())]


def find_problems(merged: MergedConfig, env: Mapping[str, str]) -> FoundProblems:
    """Validate a merged configuration, and locate everything that is wrong with it.

    Args:
        merged: The merged layers.
        env: Environment variables that references may name.
    """
    found = [problem for layer in merged.layers for problem in layer.faults]
    checked = check(merged.data, (problem.path for problem in found))
    origins = [(fault, merged.origin(fault.path)) for fault in checked.faults]
    wanted = [(fault, origin) for fault, origin in origins if not _is_a_default(fault, origin)]
    shapes = [(layer.label, layer.shape) for layer in merged.layers if layer.shape is not None]
    noted = {(label, fault.written) for label, shape in shapes for fault in shape.faults}
    located = [locate_fault(fault, origin) for fault, origin in wanted]
    takes_literals = merged.data.get("allow_literal_secrets") is True
    fatal = [problem for layer in merged.layers for problem in layer.fatal]
    return FoundProblems(
        checked=checked,
        merging=merged.problems,
        fatal=fatal,
        faults=[*found, *(each for each in located if (each.file, each.written) not in noted)],
        entries={
            name: [*_entry_problems(each, env, takes_literals=takes_literals)]
            for name, each in merged.definitions.items()
        },
        is_fatal=bool(fatal) or any(_is_fatal(fault) for fault, _ in wanted),
    )


def find_replaced_problems(
    layers: list[Layer], known: FoundProblems, env: Mapping[str, str]
) -> list[Problem]:
    """Problems of what repeated keys replaced in a file, so that a repeated key hides nothing.

    Args:
        layers: The layers, low to high.
        known: The problems of the rest.
        env: Environment variables that references may name.
    """
    reported = dict.fromkeys(known.all)
    for index, layer in enumerate(layers):
        for part in layer.replaced:
            reading = merge([*layers[:index], part.layer, *layers[index + 1 :]])
            # Elsewhere in such a reading the part that counts is missing, and no fault of the file.
            reported |= dict.fromkeys(filter(part.has, find_problems(reading, env).all))
    return list(reported)[len(dict.fromkeys(known.all)) :]


def locate_fault(fault: ValidationFault, origin: ValueOrigin | None) -> Problem:
    """A fault as a problem, with the file and position of its origin."""
    if origin is None:
        return Problem(message=fault.message, hint=fault.hint, path=fault.path)
    return origin.problem(fault.message, fault.path, hint=fault.hint)


def _entry_problems(
    definition: ServerDefinition, env: Mapping[str, str], *, takes_literals: bool
) -> Iterator[Problem]:
    yield from reference_problems(definition)
    yield from _missing_secrets(definition, env)
    if not takes_literals:
        yield from _literal_secrets(definition)


def _is_fatal(fault: ValidationFault) -> bool:
    """Whether a fault makes loading fail, rather than leaving out an entry: half a policy is not a policy."""
    return not fault.is_isolated and (len(fault.path) < 2 or fault.path[0] not in ISOLATED)


def _is_a_default(fault: ValidationFault, origin: ValueOrigin | None) -> bool:
    """Whether a fault is of `defaults`: it shows up in every server, and is reported once, at its origin."""
    return fault.path[:1] == ("servers",) and origin is not None and origin.path[:1] == ("defaults",)


def _missing_secrets(definition: ServerDefinition, env: Mapping[str, str]) -> Iterator[Problem]:
    fields = as_object(definition.entry)
    if fields.get("enabled", True) is not False:
        for path, variable in missing_variables(fields, env):
            message = f"the environment variable `{variable}` is not set"
            hint = f"run `export {variable}=…`, or give a default: `${{{variable}:-…}}`"
            place: FieldPath = ("servers", definition.server_id, *path)
            yield definition.origin(path).problem(message, place, hint=hint)


_SHELL_VARIABLE = re.compile(r"(?:[A-Za-z]+ )?\$([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)")
"""A variable as a shell has it, alone or behind `Bearer`; with an underscore, as passwords may have a `$`."""


def _literal_secrets(definition: ServerDefinition) -> Iterator[Problem]:
    """Secrets in plain text: an error in a project's file, which others get to see, else a warning.

    What a variable or a program hands over is in no file, and may have them.
    """
    for path in literal_secrets(as_object(definition.entry)):
        origin = definition.origin(path)
        layer, place = origin.layer, ("servers", definition.server_id, *path)
        variable = _SHELL_VARIABLE.fullmatch(str(value_at(definition.entry, path)))
        if variable is not None:
            message = f"`${variable[1]}` is sent as it is written, and not the variable's value"
            hint = f"write `${{{variable[1]}}}`"
            yield origin.problem(message, place, severity="warning", hint=hint)
            continue
        message = "looks like a secret in plain text"
        if layer.name == "project":
            way = "use a reference such as `${NAME}`"
            if layer.is_foreign and not layer.has_references:
                way = f"take it over with `{command_line('import', str(layer.path))}`"
            elif not layer.has_references:
                way = "move the entry from `mcp.servers` to `servers`, and use a reference such as `${NAME}`"
            hint = f"a project file is often shared: {way}; or set `allow_literal_secrets` in your own file"
            yield origin.problem(message, place, hint=hint)
        elif layer.name in ("user", "file"):
            command = command_line("stash", definition.server_id)
            if layer.name == "file":  # which the command has to read as well
                command = f"fairlead --config {shlex.quote(layer.label)}{command.removeprefix('fairlead')}"
            hint = f"run `{command}` to move it into the keyring"
            if references(str(value_at(definition.entry, path))):
                hint = BESIDE_REFERENCE
            if layer.is_foreign and not layer.has_references:
                hint = f"take it over with `{command_line('import', str(layer.path))}`: that uses the keyring"
            yield origin.problem(message, place, severity="warning", hint=hint)

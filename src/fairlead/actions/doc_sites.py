"""Allow and deny sites of the built-in documentation reader."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairlead.actions.config_edits import EditOutcome, precedence, record_edit
from fairlead.actions.context import ActionContext
from fairlead.config.document.edit import append_name, edit_file, names_at, remove_name
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget
from fairlead.errors import ConfigError
from fairlead.servers.docs.allowlist import AllowList, Pattern, parse_pattern, parse_url

WHERE: Final = ("docs", "allow")
"""Where the allowlist is in a configuration file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowedSites:
    """Outcome of allowing sites."""

    edit: EditOutcome
    sites: list[Pattern]
    """All that are to be allowed."""
    added: list[Pattern]
    """Those of them that were not in the file before."""
    overridden: str | None
    """What takes precedence, so that not all of them may be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeniedSites:
    """Outcome of taking sites out of the allowlist."""

    edit: EditOutcome
    covered: dict[str, str] = field(default_factory=dict[str, str])
    """The entry that still covers a site, for each that has one."""


def parse_sites(sites: Iterable[str]) -> list[Pattern]:
    """Parse sites as users write them; of a page's URL what matters.

    Raises:
        ConfigError: One of them cannot be allowed.
    """
    return [parse_pattern(_without_scheme(site)) for site in sites]


def allow_sites(context: ActionContext, target: EditTarget, sites: Sequence[Pattern]) -> AllowedSites:
    """Add sites to the allowlist of a file.

    Args:
        context: Who allows them.
        target: The file: not a project's, in which a list of sites has no effect.
        sites: What `parse_sites` returned.
    """
    added: list[Pattern] = []

    def change(text: str) -> str:
        added.clear()
        for pattern in sites:
            if _entry_for(pattern, names_at(text, WHERE)) is None:
                text = append_name(text, WHERE, pattern.text)
                added.append(pattern)
        return text

    edit_file(target.path, change, create=EMPTY_FILE)
    edit = _reload(context)
    if added:
        names = [pattern.text for pattern in added]
        record_edit(context, edit, "allow site", "docs", sites=names)
    loaded = edit.loaded
    is_overridden = loaded is not None and any(
        _entry_for(pattern, loaded.config.docs.allow) is None for pattern in sites
    )
    overridden = precedence(loaded.origin(*WHERE)) if loaded is not None and is_overridden else None
    return AllowedSites(edit=edit, sites=[*sites], added=added, overridden=overridden)


def deny_sites(context: ActionContext, target: EditTarget, sites: Sequence[str]) -> DeniedSites:
    """Take sites out of the allowlist of a file.

    Args:
        context: Who denies them.
        target: The file.
        sites: The sites, as the file has them or in any other spelling.

    Raises:
        ConfigError: One of them is not in the list. Nothing was written.
    """

    def change(text: str) -> str:
        for site in sites:
            names = names_at(text, WHERE)
            name = site if site in names else _entry_for(parse_pattern(_without_scheme(site)), names)
            if name is None:
                raise ConfigError(
                    f"`{site}` is not in the list of {target.path}",
                    hint="run `fairlead docs list` to see what is",
                )
            text = remove_name(text, WHERE, name)
        return text

    edit_file(target.path, change, create=EMPTY_FILE)
    edit = _reload(context)
    record_edit(context, edit, "deny site", "docs", sites=[*sites])
    left = edit.loaded.config.docs.allow if edit.loaded is not None else ()
    covering = {site: _find_covering_entry(site, left) for site in sites}
    return DeniedSites(edit=edit, covered={site: entry for site, entry in covering.items() if entry})


def meaning_of(name: str) -> str | None:
    """What an entry of the allowlist covers; None where it makes no sense."""
    pattern = _parse_entry(name)
    return pattern.meaning if pattern else None


def _reload(context: ActionContext) -> EditOutcome:
    try:
        return EditOutcome(loaded=context.reload())
    except ConfigError as exc:
        return EditOutcome(loaded=None, failure=exc)


def _without_scheme(site: str) -> str:
    """A site as it is written in the list, where https goes without saying; of a page's URL, what matters."""
    if not site.lower().startswith("https://"):
        return site
    return re.split(r"[?#]", site[len("https://") :])[0].rstrip("/")


def _parse_entry(name: str) -> Pattern | None:
    """An entry written by hand, if it makes sense."""
    try:
        return parse_pattern(name)
    except ConfigError:
        return None


def _entry_for(pattern: Pattern, names: Iterable[str]) -> str | None:
    """The entry that means the same site, in any spelling."""
    return next((name for name in names if _parse_entry(name) == pattern), None)


def _find_covering_entry(site: str, names: Iterable[str]) -> str | None:
    """The entry that still covers a site, if one does."""
    pattern = _parse_entry(_without_scheme(site))
    if pattern is None or pattern.under:
        return None
    left = AllowList(name for name in names if _parse_entry(name))
    covering = left.find_entry(parse_url(f"{max(pattern.schemes)}://{pattern.place}/"))
    return covering.text if covering else None

"""`fairlead lint`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from fairlead.actions.known_catalog import KnownCatalog, read_catalog
from fairlead.adapters.common import PROVIDERS
from fairlead.adapters.openai import MAX_TOOLS
from fairlead.catalog.catalog import Catalog, CatalogPart
from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.normalize import SchemaChange
from fairlead.catalog.tools import ToolKey
from fairlead.cli.catalogs import ask_unknown, warn_of_absent
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedServer
from fairlead.host.offers.resources import ResourceOwners, UriConflict
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_json, print_table, printable, say, warn

USUAL = ("openai", "anthropic", "gemini")
EVERY = "every provider"


@dataclass(frozen=True, kw_only=True, slots=True)
class LintFinding:
    """Finding about one entry, for agents or one provider: it is refused, changed, or cleaned."""

    key: ToolKey
    provider: str
    refused: str | None = None
    change: SchemaChange | None = None
    renamed: tuple[str, str] | None = None
    """What a server calls an argument, and what the provider gets to see."""
    notice: str | None = None
    """What a person should know, though nothing is changed."""
    hidden: str | None = None
    """What was hidden in its definition, and is not shown."""
    repaired: str | None = None
    """What was malformed in its definition, and is valid now for every client."""
    kind: str = "tool"

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.refused is not None:
            return "refused"
        if self.hidden is not None:
            return "hid text"
        if self.repaired is not None:
            return "repaired"
        return "looks alike" if self.notice is not None else "rewritten"

    @property
    def how(self) -> str:
        """In a few."""
        if self.renamed is not None:
            return f"the argument `{self.renamed[0]}` is called `{self.renamed[1]}`"
        if self.change is not None:
            return f"{self.change.where or 'the schema'} {self.change.what}"
        return self.refused or self.hidden or self.repaired or self.notice or ""

    @property
    def shown_name(self) -> str:
        """The entry's name, with its kind where that is no tool."""
        return self.key.shown_tool if self.kind == "tool" else f"{self.kind} {self.key.shown_tool}"


def _providers(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    unknown = [name for name in names if name not in PROVIDERS]
    if unknown or not names:
        raise click.BadParameter(f"{', '.join(unknown) or 'none'}; there are {', '.join(PROVIDERS)}")
    return names


@click.command("lint")
@click.argument("server_id", metavar="[ID]", required=False)
@click.option(
    "--for",
    "providers",
    default=",".join(USUAL),
    show_default=True,
    metavar="PROVIDER,…",
    callback=_providers,
    help=f"Whose rules: {', '.join(PROVIDERS)}.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str | None, providers: tuple[str, ...], *, as_json: bool) -> int:
    """List the tools that a model provider would refuse, or that are rewritten for it, and how.

    Rewritten tools work: Fairlead sends each provider a definition that it takes. A refused one cannot be
    had; it ends this command with status 1. All tools are looked at, whether agents may use them or not.
    Malformed definitions of tools, resources and prompts are repaired or left out for every client, and
    named here.

    \b
    Examples:
      fairlead lint
      fairlead lint github --for openai-strict
      fairlead lint --for gemini --json
    """
    loaded = load(ctx)
    found = read_catalog(loaded)
    servers = [loaded.server(server_id)] if server_id else found.chosen
    found = ask_unknown(found, servers)
    catalog = _make_full_catalog(found, servers)
    findings = [*_findings(catalog, providers), *_repairs(found, servers, catalog)]
    clashes, notes = _clashes(found, servers), _notes(found, servers)
    if as_json:
        print_json(
            {
                "tools": len(catalog),
                "findings": [_as_json(catalog, finding) for finding in findings],
                "clashes": [{"uri": clash.uri, "servers": [*clash.servers]} for clash in clashes],
                "notes": notes,
            }
        )
    else:
        _show(catalog, findings, providers)
        for clash in clashes:
            warn(printable(str(clash)), printable(clash.hint))
        for name, lines in notes.items():
            for note in lines:
                warn(f"server `{name}`: {printable(note)}")
        warn_of_absent(found, servers)
    if any(server.server_id not in found.listings for server in servers):
        return Exit.NOT_READY
    return Exit.FIXABLE if any(finding.refused is not None for finding in findings) else Exit.OK


def _notes(found: KnownCatalog, servers: list[LoadedServer]) -> dict[str, list[str]]:
    """Problems with the lists of each server, besides the entries that findings name one by one."""
    listings = {server.server_id: found.listings.get(server.server_id) for server in servers}
    notes = {
        name: [note for note in listing.notes if _SUMMARY.match(note) is None]
        for name, listing in listings.items()
        if listing is not None
    }
    return {name: lines for name, lines in notes.items() if lines}


_SUMMARY = re.compile(r"\d+ malformed \w+ (?:repaired|left out): ")


def _clashes(found: KnownCatalog, servers: list[LoadedServer]) -> tuple[UriConflict, ...]:
    """The resources that several of the servers have under one URI."""
    listings = {
        server.server_id: listing
        for server in servers
        if (listing := found.listings.get(server.server_id)) is not None
    }
    trusted = [server.server_id for server in servers if server.config and server.config.trust == "trusted"]
    return ResourceOwners(listings, trusted).clashes


def _make_full_catalog(found: KnownCatalog, servers: list[LoadedServer]) -> Catalog:
    """All tools of the servers, allowed or not."""
    return Catalog(
        (
            CatalogPart(server_id=server.server_id, tools=listing.tools, rejected=listing.rejected)
            for server in servers
            if (listing := found.listings.get(server.server_id)) is not None
        ),
        scheme=found.loaded.config.tools.names,
    )


def _findings(catalog: Catalog, providers: tuple[str, ...]) -> Iterator[LintFinding]:
    for key, hidden in sorted(catalog.hidden.items()):
        yield LintFinding(key=key, provider=EVERY, refused=hidden.reason)
    for tool in catalog.tools:
        for provider in providers:
            adapted = PROVIDERS[provider](tool.entry, tool.name)
            if adapted.refused is not None:
                yield LintFinding(key=tool.key, provider=provider, refused=adapted.refused)
            for change in adapted.changes:
                yield LintFinding(key=tool.key, provider=provider, change=change)
            for shown, own in adapted.renamed.items():
                yield LintFinding(key=tool.key, provider=provider, renamed=(own, shown))
    for key, hidden in sorted(catalog.findings.items()):
        for each in hidden:
            yield LintFinding(key=key, provider=EVERY, hidden=f"{each.where} ({each.kind}): {each.sample}")
    for finding in catalog.names.findings:
        yield LintFinding(key=finding.key, provider=EVERY, notice=gate.content(finding.message))


def _repairs(found: KnownCatalog, servers: list[LoadedServer], catalog: Catalog) -> Iterator[LintFinding]:
    """Repairs of malformed entries, but for tools that are refused as a whole."""
    for server in servers:
        listing = found.listings.get(server.server_id)
        for repair in listing.repairs if listing is not None else ():
            key = ToolKey(server.server_id, repair.name)
            if repair.kind == "tool" and key in catalog.hidden:
                continue
            if repair.reason is not None:
                yield LintFinding(key=key, provider=EVERY, refused=repair.reason, kind=repair.kind)
                continue
            for change in repair.changes:
                yield LintFinding(key=key, provider=EVERY, repaired=gate.content(change), kind=repair.kind)


def _show(catalog: Catalog, findings: list[LintFinding], providers: tuple[str, ...]) -> None:
    together: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in findings:
        row = finding.key.server_id, finding.shown_name, finding.verdict, finding.how
        together.setdefault(row, []).append(finding.provider)
    rows = [
        (server_id, name, verdict, ", ".join(whose), how)
        for (server_id, name, verdict, how), whose in together.items()
    ]
    if rows:
        print_table(("server", "tool", "verdict", "for", "how"), rows)
    refused, rewritten, repaired = (
        {finding.key for finding in findings if finding.verdict == verdict and finding.kind == "tool"}
        for verdict in ("refused", "rewritten", "repaired")
    )
    every = len(catalog) + len(catalog.hidden)
    mended = f" {len(repaired)} repaired," if repaired else ""
    say(
        f"{every} tools: {len(refused)} refused, {len(rewritten)} rewritten,{mended}"
        f" {every - len(refused | rewritten | repaired)} taken as they are"
    )
    if len(catalog) > MAX_TOOLS and any(provider.startswith("openai") for provider in providers):
        say(
            f"\nhint: OpenAI takes {MAX_TOOLS} tools in a request and these are {len(catalog)}:"
            " choose a bundle, or leave `mode` on `auto`"
        )


def _as_json(catalog: Catalog, finding: LintFinding) -> dict[str, Any]:
    tool = catalog.of(finding.key)
    return {
        "server": finding.key.server_id,
        "kind": finding.kind,
        "tool": finding.key.shown_tool,
        "name": tool.name if tool and finding.kind == "tool" else None,
        "provider": None if finding.provider == EVERY else finding.provider,
        "verdict": finding.verdict.replace(" ", "_"),
        "where": finding.change.where if finding.change else None,
        "how": finding.how,
    }

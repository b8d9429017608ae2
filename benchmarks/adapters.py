"""Catalogs through every adapter: what each provider would get, and whether it would take it.

    uv run python -m benchmarks.adapters [--data DIR] [--changes]

DIR holds catalogs as JSON files: an object with the `tools` of a server as `tools/list` gives them. Without
it, the tools are those of `benchmarks/questions`, written for this project.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tests.adapters.rules import anthropic_faults, gemini_faults, openai_faults

from benchmarks.measuring import ROOT, show
from fairlead.adapters.common import PROVIDERS, Adapter
from fairlead.adapters.definition import AdaptedTool
from fairlead.catalog.naming import name_tools
from fairlead.catalog.schema.normalize import screen_definition
from fairlead.catalog.schema.validate import check_arguments
from fairlead.catalog.tools import ToolEntry, read_tools

Judge = Callable[[dict[str, Any]], list[str]]

JUDGES: dict[str, Judge] = {
    "openai": openai_faults,
    "openai-strict": openai_faults,
    "anthropic": anthropic_faults,
    "gemini": gemini_faults,
}


@dataclass
class Tally:
    """How the tools of one catalog fared with one provider."""

    tools: int = 0
    refused: int = 0
    changed: int = 0
    strict: int = 0
    size: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list[str])
    changes: Counter[str] = field(default_factory=Counter[str])

    def add(self, adapted: AdaptedTool, judge: Judge) -> None:
        self.tools += 1
        self.changed += bool(adapted.changes)
        self.changes.update(change.what for change in adapted.changes)
        if adapted.definition is None:
            self.refused += 1
            self.changes[f"refused: {adapted.refused}"] += 1
            return
        self.strict += bool(adapted.definition.get("strict"))
        self.size += len(msgspec.json.encode(adapted.definition))
        self.faults += (f"{adapted.key}: {fault}" for fault in judge(adapted.definition))


def catalogs(folder: Path) -> dict[str, list[ToolEntry]]:
    """The tools in each file."""
    found: dict[str, list[ToolEntry]] = {}
    for file in sorted(folder.glob("*.json")):
        definitions: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["tools"]
        entries, rejected = read_tools(file.stem, (msgspec.json.encode(one) for one in definitions))
        if rejected:
            print(f"{file.stem}: {len(rejected)} tools cannot be read")
        found[file.stem] = entries
    return found


def own_catalogs() -> dict[str, list[ToolEntry]]:
    """The tools written for this project, by server."""
    found: dict[str, list[ToolEntry]] = {}
    for line in (ROOT / "benchmarks/questions/own/tools.jsonl").read_text(encoding="utf-8").splitlines():
        tool: dict[str, Any] = json.loads(line)
        definition = {
            "name": tool["name"],
            "description": tool["description"],
            "inputSchema": tool["input_schema"],
        }
        entries, rejected = read_tools(tool["server"], iter([msgspec.json.encode(definition)]))
        assert not rejected, tool
        found.setdefault(tool["server"], []).extend(entries)
    return found


def tally(entries: list[ToolEntry], adapter: Adapter, judge: Judge) -> Tally:
    """Adapt every tool, and judge it."""
    names = name_tools(entry.key for entry in entries).names
    result = Tally()
    started = time.perf_counter()
    adapted = [adapter(entry, names[entry.key]) for entry in entries]
    result.seconds = time.perf_counter() - started
    for one in adapted:
        result.add(one, judge)
    return result


def screening(entries: list[ToolEntry]) -> None:
    """Time what is done once per definition."""
    screen_definition.cache_clear()
    started = time.perf_counter()
    states = Counter(
        "rejected" if screened.rejected else "repaired" if screened.changes else "as it came"
        for screened in (screen_definition(entry.definition) for entry in entries)
    )
    screened_at = time.perf_counter()
    unchecked = sum(check_arguments(entry, {}).outcome == "unchecked" for entry in entries)
    compiled_at = time.perf_counter()
    for entry in entries:
        check_arguments(entry, {})
    checked_at = time.perf_counter()
    each = 1e6 / len(entries)
    print(f"{len(entries)} tools: {dict(states)}, {unchecked} cannot be checked")
    print(f"reading {(screened_at - started) * each:.0f} µs each")
    print(f"compiling {(compiled_at - screened_at) * each:.0f} µs each")
    print(f"checking empty arguments {(checked_at - compiled_at) * each:.1f} µs each")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="ours if not given")
    parser.add_argument("--changes", action="store_true", help="what was changed, and how often")
    options = parser.parse_args()
    found = own_catalogs() if options.data is None else catalogs(options.data)
    screening([entry for entries in found.values() for entry in entries])
    table: list[tuple[object, ...]] = []
    totals = {name: Tally() for name in PROVIDERS}
    for catalog, entries in found.items():
        cells: list[str] = []
        for name, adapter in PROVIDERS.items():
            one, total = tally(entries, adapter, JUDGES[name]), totals[name]
            cells.append(
                f"{len(one.faults)} / {one.refused} / {one.changed}, {one.seconds / one.tools * 1e6:.0f}"
            )
            total.faults += one.faults
            total.changes += one.changes
            total.tools, total.strict, total.size = (
                total.tools + one.tools,
                total.strict + one.strict,
                total.size + one.size,
            )
        table.append((catalog, len(entries), *cells))
    show("Faults / refused / changed, µs per tool", ("catalog", "tools", *PROVIDERS), table, plot=())
    for name, total in totals.items():
        print(f"{name}: {total.size} bytes, {total.strict} strict, {len(total.faults)} faults")
        for what, count in total.changes.most_common() if options.changes else ():
            print(f"  {count:5} {what}")
        for fault in total.faults[:20]:
            print(f"  ! {fault}")
    return 1 if any(total.faults for total in totals.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())

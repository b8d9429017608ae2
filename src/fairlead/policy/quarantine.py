"""What may be offered of what a server lists, before anybody sees it: held to its pins and to a lock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from fairlead.catalog.digest import without_default_texts
from fairlead.catalog.entries import Listing, ToolEntry
from fairlead.config.load import LoadedServer
from fairlead.policy.lockfile import FILE_NAME, LockedServer, check_lock
from fairlead.policy.pins import UNCHANGED, Pins, Verdicts, check, is_guarded


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Screened:
    """A listing in which nothing is left that nobody looked at, and the tools that wait for a review."""

    listing: Listing
    """Texts of defaults and instructions that changed are left out, and `notes` say what waits."""
    quarantined: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why each of these tools may not be used."""


def screen(
    server: LoadedServer, listing: Listing, pins: Pins | None, lock: LockedServer | str | None
) -> Screened:
    """Hold what a server lists to what is pinned and locked. A lock nobody can read lets nothing through."""
    if isinstance(lock, str):
        reasons = {entry.key.tool: lock for entry in listing.tools}
        return Screened(
            listing=replace(listing, instructions=None, notes=(*listing.notes, lock)), quarantined=reasons
        )
    by_pins = check(pins, listing) if pins is not None and is_guarded(server) else UNCHANGED
    by_lock = check_lock(lock, listing) if lock is not None else UNCHANGED
    if by_pins == UNCHANGED and by_lock == UNCHANGED:
        return Screened(listing=listing)
    quarantined = _locked_out(by_lock) | _pinned_out(by_pins, pins)
    withheld = by_pins.instructions_changed or by_lock.instructions_changed
    notes = (*listing.notes, *_notes(server.server_id, by_pins, by_lock))
    return Screened(
        listing=replace(
            listing,
            tools=tuple(_as_known(entry, pins, by_pins, by_lock) for entry in listing.tools),
            instructions=None if withheld else listing.instructions,
            notes=notes,
        ),
        quarantined=quarantined,
    )


def _pinned_out(verdicts: Verdicts, pins: Pins | None) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for tool, change in verdicts.tools.items():
        if change == "new":
            reasons[tool] = "it is new, and nobody has reviewed it"
        elif change == "changed" and pins is not None:
            since = "it was reviewed" if pins.tools[tool].by == "review" else "it was first used"
            reasons[tool] = f"its definition has changed since {since}"
    return reasons


def _locked_out(verdicts: Verdicts) -> dict[str, str]:
    return {
        tool: f"{FILE_NAME} does not have it" if change == "new" else f"it is not what {FILE_NAME} says"
        for tool, change in verdicts.tools.items()
        if change != "defaults"
    }


def _as_known(entry: ToolEntry, pins: Pins | None, by_pins: Verdicts, by_lock: Verdicts) -> ToolEntry:
    """The tool without texts of defaults that nobody looked at, where it is the same but for those."""
    tool = entry.key.tool
    if by_lock.tools.get(tool) == "defaults":
        return replace(entry, definition=without_default_texts(entry.definition))
    if by_pins.tools.get(tool) == "defaults" and pins is not None:
        known = bytes(pins.tools[tool].definition)
        return replace(entry, definition=without_default_texts(entry.definition, known))
    return entry


def _notes(server_id: str, by_pins: Verdicts, by_lock: Verdicts) -> Iterator[str]:
    changed = sum(change == "changed" for change in by_pins.tools.values())
    new = sum(change == "new" for change in by_pins.tools.values())
    unlocked = sum(change != "defaults" for change in by_lock.tools.values())
    review = f"run `fairlead review {server_id}`"
    if changed:
        yield f"{changed} {'tool' if changed == 1 else 'tools'} changed: {review}"
    if new:
        yield f"{_tools(new)} new: {review}"
    if by_pins.instructions_changed:
        yield f"its instructions changed and are withheld: {review}"
    if unlocked or by_lock.instructions_changed:
        what = f"{_tools(unlocked)} not" if unlocked else "its instructions are not"
        yield f"{what} what {FILE_NAME} says: run `fairlead lock --check`"


def _tools(count: int) -> str:
    return "1 tool is" if count == 1 else f"{count} tools are"

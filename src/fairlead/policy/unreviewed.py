"""What of a server waits for its first review: the notice of each server, and what models may not read."""

from fairlead.bounded_repr import count
from fairlead.catalog.tools import Listing
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.config.models import Server
from fairlead.policy.decision import decide_by_lists
from fairlead.policy.pins import Pins, UntrustedPins, has_review, is_guarded
from fairlead.policy.tool_names import denies_any


def review_notes(
    server: LoadedServer,
    listing: Listing | None,
    pins: Pins | UntrustedPins | None,
    *,
    before_defaults: bool = False,
) -> tuple[str, ...]:
    """Why a review of a server would help: at most one line, with the command.

    Args:
        server: The server.
        listing: What it is known to list, unchanged.
        pins: Its pins, which say whether it was reviewed.
        before_defaults: Whether it keeps the default of an earlier release (see `policy.upgrade`).
    """
    config, command = server.config, f"run `{command_line('review', server.server_id)}`"
    if config is None or not server.usable or server.transport in ("builtin", "in_process"):
        return ()
    if unread := unread_offers(server, listing):
        return (f"agents read nothing of its {unread} until it is reviewed: {command}",)
    if listing is None or not listing.tools:
        return ()
    is_decided = config.approval is not None or server.approval is not None
    if config.trust == "untrusted" and config.allow_tools is None:
        if _are_all_denied(config, listing):
            return ()
        return (f"agents get none of its tools until they are reviewed: {command}",)
    if config.trust == "untrusted" and not is_decided:
        return (f"its tools need approval for each call until they are reviewed: {command}",)
    if before_defaults and not is_decided:
        return (f"as before the upgrade, its tools need approval for each call until a review: {command}",)
    # An allowlist written by hand says itself what it leaves out: only a review is repeated for new tools.
    if is_guarded(server) and isinstance(pins, Pins) and has_review(pins):
        keys = (entry.key for entry in listing.tools)
        lists = (decide_by_lists(config, key.tool, server_id=key.server_id) for key in keys)
        missing = sum(decision.field == "allow_tools" and decision.verdict == "deny" for decision in lists)
        if missing:
            tools = "1 tool that was" if missing == 1 else f"{missing} tools that were"
            until = "it is" if missing == 1 else "they are"
            return (f"it has {tools} not reviewed, which agents do not get until {until}: {command}",)
    return ()


def unread_offers(server: LoadedServer, listing: Listing | None) -> str:
    """What models may not read yet of an untrusted server without tools, in words; empty for nothing.

    Models read of an untrusted server once any of its tools may be offered. Of one without tools, resources
    and prompts are reviewed as a whole, and `*` in its allowlist is the answer: a tool that it gains later is
    new under that pattern, and held back.
    """
    config = server.config
    if listing is None or listing.tools or config is None:
        return ""
    if not is_guarded(server) or config.allow_tools is not None:
        return ""
    readable = len(listing.resources) + len(listing.templates)
    offered = ((readable, "resource"), (len(listing.prompts), "prompt"))
    return ", ".join(count(number, noun) for number, noun in offered if number)


def _are_all_denied(config: Server, listing: Listing) -> bool:
    keys = (entry.key for entry in listing.tools)
    return all(denies_any(key.server_id, key.tool, config.deny_tools) for key in keys)

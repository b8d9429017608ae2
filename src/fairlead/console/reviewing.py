"""`/mcp review`: a server is let start, its tools are looked at, and what agents may use is written down."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from anyio import to_thread

from fairlead.catalog.entries import Listing
from fairlead.cli.allowing import decision_of, named_tools, record, without_globs
from fairlead.cli.changes import accept, approved_servers
from fairlead.cli.commands.approve_ import show
from fairlead.cli.reviewing import show_in_one_line, show_instructions, show_tool
from fairlead.config.load import LoadedServer
from fairlead.config.paths import store_file
from fairlead.console.arguments import words_of
from fairlead.console.session import Session
from fairlead.errors import ArgumentsInvalid, ListFailed
from fairlead.host.member import Member
from fairlead.host.snapshots import load_pins
from fairlead.policy.allowing import Answer, ReviewDecision, globs_of
from fairlead.policy.consent import record_consent
from fairlead.policy.pins import NoPins, Pins, is_guarded
from fairlead.policy.reviewing import ReviewedTool, instructions_changed, tools_to_review
from fairlead.policy.typed_names import ALL

USAGE: Final = "/mcp review server [--allow NAMES] [--ask NAMES] [--deny NAMES]"
_OPTIONS: Final[dict[str, Answer]] = {"--allow": "allow", "--ask": "ask", "--deny": "deny"}
ANSWERS: Final = ("allow", "ask", "deny", "skip", "rest", "quit")
"""What can be said of a tool; `rest` allows this one and all that follow."""


async def review(session: Session, typed: str) -> None:
    """Have the person look at what a server offers now, or answer as they typed, and carry that out."""
    server_id, named = _read(typed)
    server = session.loaded.server(server_id)
    member = next(each for each in session.host.members if each.server.server_id == server_id)
    if not await _may_start(session, server, member):
        return
    await session.host.list_now(server_id)
    if member.snapshot is None:
        raise ListFailed(server_id, "what it offers could not be kept, and so nothing can be pinned")
    listing = member.snapshot.listing  # as it came
    store = session.host.store
    pins = (await load_pins(store, server) if store is not None else None) or member.pins
    pins = None if isinstance(pins, NoPins) else pins
    find = partial(tools_to_review, server, listing, pins, before_defaults=member.before_defaults)
    tools = await to_thread.run_sync(find)
    is_new = is_guarded(server) and instructions_changed(listing, pins)
    if named:
        is_fine = is_new and ("allow", ALL) in named
        decided = _named(named, tools, session.loaded.servers.keys(), instructions=is_fine)
    else:
        decided = await _decided(session, listing, pins, tools, asks_about_instructions=is_new)
    if decided.is_empty:
        session.screen.say("nothing was changed")
        return
    await _carry_out(session, server, listing, await _globs_replaced(session, server, tools, decided))


def _read(typed: str) -> tuple[str, list[tuple[Answer, str]]]:
    """The server and the answers in `ID [--allow NAMES] [--ask NAMES] [--deny NAMES]`, in any order."""
    words, named, servers = words_of(typed), list[tuple[Answer, str]](), list[str]()
    while words:
        word = words.pop(0)
        if word == "--":
            servers += words
            break
        option, equals, value = word.partition("=")
        answer = _OPTIONS.get(option)
        if answer is None:
            servers.append(word)
        elif equals or words:
            named.append((answer, value if equals else words.pop(0)))
        else:
            raise ArgumentsInvalid(f"`{option}` which tools?", hint=USAGE)
    if len(servers) != 1:
        raise ArgumentsInvalid(f"`{typed}` is not understood here", hint=USAGE)
    return servers[0], named


def _named(
    named: Sequence[tuple[Answer, str]],
    tools: Sequence[ReviewedTool],
    servers: Collection[str],
    *,
    instructions: bool,
) -> ReviewDecision:
    """The answers that were typed. The strictest that names a tool counts, and names more than `all`."""
    answered: dict[str, tuple[ReviewedTool, Answer]] = {}
    strictness = list(_OPTIONS.values()).index
    for answer, word in sorted(named, key=lambda one: (one[1] != ALL, strictness(one[0]))):
        for tool in named_tools([word], tools, answer=answer, servers=servers):
            answered[tool.name] = (tool, answer)
    return decision_of(answered.values(), instructions=instructions)


async def _may_start(session: Session, server: LoadedServer, member: Member) -> bool:
    """Have a project's server approved that nobody approved yet."""
    if not member.awaits_consent:
        return True
    consent = await to_thread.run_sync(lambda: server.consent)
    if consent is None:
        return True
    show(server, consent)
    if await session.person.chosen(f"Let `{server.server_id}` start?", ["yes", "no"], "no") != "yes":
        session.screen.say(f"`{server.server_id}` stays off")
        return False
    path = store_file(session.env, session.loaded.config.store.path)
    await to_thread.run_sync(record_consent, path, [consent])
    return True


async def _decided(
    session: Session,
    listing: Listing,
    pins: Pins | None,
    tools: Sequence[ReviewedTool],
    *,
    asks_about_instructions: bool,
) -> ReviewDecision:
    instructions = False
    if asks_about_instructions:
        show_instructions(listing, pins)
        if pins is not None:
            answer = await session.person.chosen("May models see these instructions?", ["yes", "no"], "no")
            instructions = answer == "yes"
    answered: list[tuple[ReviewedTool, Answer]] = []
    answer: str | None = "skip"
    for tool in tools:
        if not tool.is_open:
            show_in_one_line(tool)
            continue
        show_tool(tool)
        if answer != "rest":
            answer = await session.person.chosen(f"`{tool.entry.key.shown_tool}`:", ANSWERS, tool.suggested)
        if answer in (None, "quit"):
            break
        if answer == "rest":
            answered.append((tool, "allow"))
        elif answer in ("allow", "ask", "deny"):
            answered.append((tool, answer))
    return decision_of(answered, instructions=instructions)


async def _globs_replaced(
    session: Session, server: LoadedServer, tools: Sequence[ReviewedTool], decided: ReviewDecision
) -> ReviewDecision:
    globs = globs_of(server)
    if not globs or not decided.usable:
        return decided
    session.screen.say(f"allow_tools has {', '.join(f'`{glob}`' for glob in globs)}")
    wanted = await session.person.chosen("Write the names of reviewed tools instead?", ["yes", "no"], "no")
    return without_globs(tools, decided) if wanted == "yes" else decided


async def _carry_out(
    session: Session, server: LoadedServer, listing: Listing, decided: ReviewDecision
) -> None:
    approved = await to_thread.run_sync(approved_servers, session.loaded, [server.server_id])
    written = await to_thread.run_sync(record, session.loaded, server, listing, decided)
    if written is not None:
        await session.configuration.reload()
        accept(session.loaded, written, [server.server_id], approved=approved)
    for failure in (await session.host.connect(server.server_id)).values():
        raise failure

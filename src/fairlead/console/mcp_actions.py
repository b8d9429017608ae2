"""`/mcp login` and `/mcp review`: the login waits for the browser in the background.

`/mcp review`: a server is let start, its tools are looked at, and what agents may use is written down.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from fairlead.actions import logins
from fairlead.actions.config_edits import approve_server
from fairlead.actions.logins import CompletedLogin, LoginDialog, LoginOffer, require_ready
from fairlead.actions.review import (
    ServerReview,
    decide_by_names,
    decision_of,
    live_review,
    record_review,
    without_globs,
)
from fairlead.auth.browser import open_in_browser
from fairlead.config.load import LoadedServer
from fairlead.console.session import ConsoleSession
from fairlead.console.typed_words import option_of, words_of
from fairlead.errors import ArgumentsInvalid, LoginFailed
from fairlead.host.managed_server import ManagedServer
from fairlead.policy.review import ReviewAnswer, ReviewDecision, ReviewedTool, globs_of
from fairlead.terminal.decisions import (
    remind_of_instructions,
    show_consent,
    show_in_one_line,
    show_instructions,
    show_recorded,
    show_settled,
    show_tool,
)
from fairlead.terminal.output import plural, print_edit, print_notices, printable

if TYPE_CHECKING:
    from fairlead.auth.redirect import BrowserRedirect


async def log_in(session: ConsoleSession, rest: str) -> None:
    """Log in to a server. A URL after its id completes a login that ended in a browser elsewhere."""
    server_id, _, address = rest.partition(" ")
    server = session.loaded.server(server_id)
    if address:
        _finish(session, server_id, address.strip())
        return
    await to_thread.run_sync(require_ready, session.loaded, server)
    target = await session.host.logins.target(server)
    try:
        completed = await logins.log_in(session.actions, session.host, target, _dialog(session, server_id))
    finally:
        session.logins.pop(server_id, None)
    _show_login(session, server_id, completed)
    await session.host.close(server_id)  # what it was connected with is outdated
    for failure in (await session.host.connect(server_id)).values():
        raise failure
    listing = session.host.listing(server_id)
    session.screen.say(f"`{server_id}` is ready: {plural(len(listing.tools) if listing else 0, 'tool')}")


def _dialog(session: ConsoleSession, server_id: str) -> LoginDialog:
    screen = session.screen

    async def show(offer: LoginOffer) -> bool:
        screen.say(f"To log in to `{server_id}` you go to {offer.page.host}:")
        screen.say(f"  {offer.page.url}")
        screen.say(f"  asks for: {offer.asked_for}")
        screen.say(f"  {offer.issuer}")
        for warning in offer.page.warnings:
            screen.warn(warning)
        # The user started this login; only an unusual page needs another confirmation.
        default = "no" if offer.page.warnings else "yes"
        return await session.person.pick("Open it?", ["yes", "no"], default) == "yes"

    async def open_page(url: str, redirect: "BrowserRedirect") -> bool:
        session.logins[server_id] = redirect
        opened = await open_in_browser(url)
        if not opened:
            screen.say("no browser was started from here: please open that address yourself")
        screen.say("waiting for you to log in; Ctrl-C gives up. A browser on another machine ends up at")
        screen.say(f"a page that cannot be reached: give its address to `/mcp login {server_id} ADDRESS`")
        return opened

    return LoginDialog(show=show, open_page=open_page)


def _show_login(session: ConsoleSession, server_id: str, completed: CompletedLogin) -> None:
    session.screen.say(f"logged in to `{server_id}`")
    session.screen.say(f"  issuer: {completed.login.issuer}")
    if completed.scopes:
        session.screen.say(f"  may: {' '.join(completed.scopes)}")
    for notice in completed.notices:
        session.screen.warn(notice.message, notice.hint)
    if completed.unkept is not None:
        session.screen.warn(f"{completed.unkept}: it ends with this console", completed.unkept.hint)


def _finish(session: ConsoleSession, server_id: str, address: str) -> None:
    redirect = session.logins.get(server_id)
    problem = redirect.paste(address) if redirect else "no login is under way; `/mcp login` begins one"
    if problem is not None:
        raise LoginFailed(server_id, problem)


USAGE: Final = (
    "/mcp review server [--allow NAMES] [--ask NAMES] [--deny NAMES] [--instructions|--no-instructions]"
    " [--scope project|user]"
)
_OPTIONS: Final[dict[str, ReviewAnswer]] = {"--allow": "allow", "--ask": "ask", "--deny": "deny"}
_ABOUT_INSTRUCTIONS: Final = {"--instructions": True, "--no-instructions": False}
TOOL_ANSWERS: Final = ("allow", "ask", "deny", "skip", "rest", "quit")
"""What can be said of a tool; `rest` allows this one and all that follow."""


async def review(session: ConsoleSession, typed: str) -> None:
    """Review a server's tools with the user, or with the typed answers, and record the decision."""
    words, scope = option_of(words_of(typed), "--scope")
    server_id, named, instructions = _read(typed, words)
    server = session.loaded.server(server_id)
    managed = next(each for each in session.host.servers if each.server.server_id == server_id)
    if not await _may_start(session, server, managed):
        return
    await session.host.list_now(server_id)
    found = await live_review(session.host, server)
    if named or instructions is not None:
        servers = session.loaded.servers.keys()
        decided = decide_by_names(named, found, servers=servers, instructions=instructions)
        if decided.instructions is not None:
            show_instructions(found.listing, found.pins)
        remind_of_instructions(found, decided)
    else:
        decided = await _ask_decision(session, found)
    if decided.is_empty:
        session.screen.say("nothing was changed")
        return
    await _carry_out(session, found, await _replace_globs(session, found, decided), scope)


def _read(typed: str, words: list[str]) -> tuple[str, list[tuple[ReviewAnswer, str]], bool | None]:
    """The server and the answers that were typed (see `USAGE`), in any order."""
    named, servers = list[tuple[ReviewAnswer, str]](), list[str]()
    instructions: bool | None = None
    while words:
        word = words.pop(0)
        if word == "--":
            servers += words
            break
        if word in _ABOUT_INSTRUCTIONS:
            instructions = _ABOUT_INSTRUCTIONS[word]
            continue
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
    return servers[0], named, instructions


async def _may_start(session: ConsoleSession, server: LoadedServer, managed: ManagedServer) -> bool:
    """Have the user approve a project's server that is not approved yet."""
    if not managed.awaits_consent:
        return True
    consent = await to_thread.run_sync(lambda: server.consent)
    if consent is None:
        return True
    show_consent(server, consent)
    if await session.person.pick(f"Let `{server.server_id}` start?", ["yes", "no"], "no") != "yes":
        session.screen.say(f"`{server.server_id}` stays off")
        return False
    approve = partial(approve_server, session.actions, server.server_id, consent)
    print_notices(await to_thread.run_sync(approve))
    return True


async def _ask_decision(session: ConsoleSession, found: ServerReview) -> ReviewDecision:
    if not found.is_open:
        show_settled(found)
        return ReviewDecision()
    instructions: bool | None = None
    if found.asks_about_instructions:
        show_instructions(found.listing, found.pins)
        answer = await session.person.pick("May models see these instructions?", ["yes", "no", "later"], "no")
        instructions = {"yes": True, "no": False}.get(answer or "later")
    answered: list[tuple[ReviewedTool, ReviewAnswer]] = []
    answer: str | None = "skip"
    for tool in found.tools:
        if not tool.is_open:
            show_in_one_line(tool)
            continue
        show_tool(tool)
        if answer != "rest":
            answer = await session.person.pick(
                f"`{printable(tool.entry.key.revealed_tool)}`:", TOOL_ANSWERS, tool.suggested
            )
        if answer in (None, "quit"):
            break
        if answer == "rest":
            answered.append((tool, "allow"))
        elif answer in ("allow", "ask", "deny"):
            answered.append((tool, answer))
    reading = False
    if found.unread:
        question = f"It offers {found.unread}: may models read them?"
        reading = await session.person.pick(question, ["yes", "no"], "no") == "yes"
    return decision_of(answered, instructions=instructions, reading=reading)


async def _replace_globs(
    session: ConsoleSession, found: ServerReview, decided: ReviewDecision
) -> ReviewDecision:
    globs = globs_of(found.server)
    if not globs or not decided.usable:
        return decided
    session.screen.say(f"allow_tools has {', '.join(f'`{glob}`' for glob in globs)}")
    wanted = await session.person.pick("Write the names of reviewed tools instead?", ["yes", "no"], "no")
    return without_globs(found.tools, decided) if wanted == "yes" else decided


async def _carry_out(
    session: ConsoleSession, found: ServerReview, decided: ReviewDecision, scope: str | None
) -> None:
    record = partial(record_review, session.actions, found.server, found.listing, decided, scope=scope)
    recorded = await to_thread.run_sync(record)
    show_recorded(recorded)
    if recorded.edit is not None:
        print_edit(recorded.edit)
        recorded.edit.require_loaded()
    for failure in (await session.host.connect(found.server.server_id)).values():
        raise failure

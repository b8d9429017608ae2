"""`/mcp login`: the page is shown and agreed to, and the browser is waited for beside the prompt."""

from typing import TYPE_CHECKING

from anyio import to_thread

from fairlead.auth.opening import open_in_browser
from fairlead.cli.logins import require_ready
from fairlead.cli.output import counted
from fairlead.console.session import Session
from fairlead.errors import LoginFailed
from fairlead.host.urls import UrlRefused, show_url

if TYPE_CHECKING:
    from fairlead.auth.target import Target


async def log_in(session: Session, rest: str) -> None:
    """Log in to a server; with an address after its id, take that as where a browser elsewhere ended up."""
    server_id, _, address = rest.partition(" ")
    server = session.loaded.server(server_id)
    if address:
        _finish(session, server_id, address.strip())
        return
    await to_thread.run_sync(require_ready, session.loaded, server)
    target = await session.host.logins.target(server)
    if target.oauth.grant == "authorization_code":
        await _by_browser(session, target)
    else:
        await session.host.logins.log_in(target, None)
    session.screen.say(f"logged in to `{server_id}`")
    await session.host.close(server_id)  # what it was connected with is outdated
    for failure in (await session.host.connect(server_id)).values():
        raise failure
    listing = session.host.listing(server_id)
    session.screen.say(f"`{server_id}` is ready: {counted(len(listing.tools) if listing else 0, 'tool')}")


async def _by_browser(session: Session, target: "Target") -> None:
    screen, server_id = session.screen, target.server_id

    async def agree(url: str) -> bool:
        page = show_url(url)
        if isinstance(page, UrlRefused):
            raise LoginFailed(server_id, f"its login page cannot be opened: {page}")
        screen.say(f"To log in to `{server_id}` you go to {page.host}:")
        screen.say(f"  {page.url}")
        for warning in page.warnings:
            screen.warn(warning)
        # Whoever typed this wants it, unless the page is an odd one.
        default = "no" if page.warnings else "yes"
        return await session.person.chosen("Open it?", ["yes", "no"], default) == "yes"

    async def open_url(url: str) -> bool:
        opened = await open_in_browser(url)
        if not opened:
            screen.say("no browser was started from here: please open that address yourself")
        screen.say("waiting for you to log in; Ctrl-C gives up. A browser on another machine ends up at")
        screen.say(f"a page that cannot be reached: give its address to `/mcp login {server_id} ADDRESS`")
        return opened

    logins = session.host.logins
    async with logins.browser(target, agree=agree, open_url=open_url) as redirect:
        session.logins[server_id] = redirect
        try:
            await logins.log_in(target, redirect)
        finally:
            session.logins.pop(server_id, None)


def _finish(session: Session, server_id: str, address: str) -> None:
    redirect = session.logins.get(server_id)
    problem = redirect.paste(address) if redirect else "no login is under way; `/mcp login` begins one"
    if problem is not None:
        raise LoginFailed(server_id, problem)

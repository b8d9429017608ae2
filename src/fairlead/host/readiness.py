"""What must hold before a server is used: a person's consent, a connection, and a list of what it offers."""

from anyio import to_thread

from fairlead.catalog.entries import Listing
from fairlead.config.command_lines import command_line
from fairlead.config.consent import ConsentKey
from fairlead.connection.logging_in import LoginCount
from fairlead.errors import AuthRequired, ConsentRequired, ListFailed, ServerError
from fairlead.host.member import Member
from fairlead.policy.consent import NAMESPACE, stored_under
from fairlead.store.store import Store


async def require_consent(member: Member, store: Store | None) -> None:
    """Raise unless a project's entry was approved as it is now. Each start looks again (`permit_start`)."""
    if not member.awaits_consent:
        return
    key = await to_thread.run_sync(lambda: member.server.consent)
    if key is not None:
        await require_approved(key, store)
    member.set_approved(True)


async def require_approved(key: ConsentKey, store: Store | None) -> None:
    """Raise unless exactly this was approved."""
    if store is not None and await store.get(NAMESPACE, stored_under(key)) is not None:
        return
    message = f"it comes from {key.file}, and you have not approved this entry and what it runs"
    if store is not None and await store.get(NAMESPACE, key.earlier) is not None:
        message = (
            f"it comes from {key.file}, which you approved with a version of Fairlead that did not"
            " look at what an entry runs: look at it once more"
        )
    raise ConsentRequired(key.server_id, message, hint=f"run `{command_line('approve', key.server_id)}`")


async def listing_of(member: Member, store: Store | None, *, fresh: bool = False) -> Listing:
    """What a server offers: what is known, or with `fresh` what it says in this run."""
    if member.listing is not None and not fresh:
        return member.listing
    connection = member.live()
    await require_consent(member, store)
    await connection.ready()
    error, logins = await _list_error(member), LoginCount()
    while isinstance(error, AuthRequired):
        # It lets anybody connect, and wants a login before it says what it offers.
        logins.add(error)
        await connection.log_in(error)
        await connection.ready()
        error = await _list_error(member)
    if error is not None and (fresh or member.listing is None):
        raise error
    if member.listing is None:
        raise ListFailed(member.server.server_id, "it was closed before it said what it offers")
    return member.listing


async def _list_error(member: Member) -> ServerError | None:
    """Wait until a connected server has been listed; what went wrong, if anything did."""
    connection = member.live()
    if connection.vitals.state in ("error", "auth_required"):
        connection.refresh()
    await member.listed.wait()
    # It need not be in an error state any more: another caller, woken first, may have had it listed again.
    return None if connection.vitals.state == "ready" else connection.vitals.last_error

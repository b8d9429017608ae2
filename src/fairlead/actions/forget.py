"""Delete everything that is kept about a server, a principal or a login."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.explain import find_principal
from fairlead.actions.logins import KeptLogin, find_logins, is_for, log_out
from fairlead.actions.tokens import named_tokens
from fairlead.config.paths import state_folder
from fairlead.config.principal import LOCAL
from fairlead.config.store_location import StoreLocation, artifact_folder
from fairlead.errors import ConfigError
from fairlead.gateway.registry import living
from fairlead.host.search_memory import NAMESPACE as SEARCHES
from fairlead.host.snapshots import NAMESPACE as SNAPSHOTS
from fairlead.host.snapshots import TROUBLE, snapshot_key
from fairlead.policy.approvals import NAMESPACE as APPROVALS
from fairlead.policy.approvals import WITHDRAWN
from fairlead.policy.audit import LOG, decode
from fairlead.policy.consent import NAMESPACE as CONSENT
from fairlead.policy.pins import NAMESPACE as PINS
from fairlead.policy.pins import REVIEWED, pins_key
from fairlead.policy.upgrade import NAMESPACE as DEFAULTS
from fairlead.store.artifacts import NAMESPACE as ARTIFACTS
from fairlead.store.opening import open_database, open_database_for_reading
from fairlead.store.protocol import ANY, Database, StoredValue
from fairlead.wording import name_server

if TYPE_CHECKING:
    from fairlead.host.host import Host

Subject = Literal["server", "principal", "login"]

_TASKS: Final = "tasks"
_WORDS: Final = {
    SNAPSHOTS: "snapshots of what it offers",
    TROUBLE: "last errors",
    PINS: "pins",
    DEFAULTS: "permission defaults",
    APPROVALS: "approvals",
    WITHDRAWN: "withdrawn approvals",
    CONSENT: "consents",
    ARTIFACTS: "artifacts",
    SEARCHES: "search history",
    _TASKS: "tasks",
}
_MOST_READ: Final = 1000
"""Audit records that are read at once."""


class _Subject(msgspec.Struct, frozen=True):
    """Subject of a stored value, as far as the value names it."""

    server_id: str = ""
    principal: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetPlan:
    """Everything that is stored about one subject."""

    subject: Subject
    name: str
    store: StoreLocation
    values: list[tuple[str, StoredValue]] = field(default_factory=list[tuple[str, StoredValue]])
    """Namespace and value."""
    records: list[int] = field(default_factory=list[int])
    """Sequence numbers of records in the audit log; none unless they are to go, too."""
    records_left: int = 0
    """Records of the audit log that stay."""
    files: list[Path] = field(default_factory=list[Path])
    tokens: list[str] = field(default_factory=list[str])
    """Names of gateway tokens."""
    logins: list[KeptLogin] = field(default_factory=list[KeptLogin])
    remarks: list[str] = field(default_factory=list[str])
    """What stays, and how it goes."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of things to delete, by kind."""
        found: dict[str, int] = {}
        for namespace, _ in self.values:
            found[_WORDS[namespace]] = found.get(_WORDS[namespace], 0) + 1
        more = {
            "log files": len(self.files),
            "logins": len(self.logins),
            "gateway tokens": len(self.tokens),
            "audit records": len(self.records),
        }
        return found | {name: number for name, number in more.items() if number}


def plan_forget(
    context: ActionContext, subject: Subject, name: str, kept: Iterable[KeptLogin], *, audit: bool = False
) -> ForgetPlan:
    """Find what is stored about a server, a principal or a login. Changes nothing.

    Args:
        context: Who forgets.
        subject: What the name is of.
        name: A server's id, also of one that is configured no more; a principal as `fairlead audit` shows it,
            or a gateway token's name; for a login, the server's id or URL.
        kept: All logins.
        audit: Delete its records in the audit log, too.

    Raises:
        UnknownServer: There is no such server, and so no login.
        ConfigError: The name is empty, or the server can have no login.
    """
    if not name.strip():  # what is kept without a name must not be taken for it
        raise ConfigError(f"the name of the {subject} is empty", hint="name what is to be forgotten")
    match subject:
        case "server":
            return _plan_server(context, name, [*kept], audit=audit)
        case "principal":
            return _plan_principal(context, find_principal(context.loaded, name), [*kept], audit=audit)
        case "login":
            logins = find_logins(context.loaded, kept, name, every=True)
            return ForgetPlan(subject=subject, name=name, store=context.store, logins=logins)


def _plan_server(context: ActionContext, server_id: str, kept: list[KeptLogin], *, audit: bool) -> ForgetPlan:
    loaded = context.loaded
    server = loaded.servers.get(server_id)
    own_keys = {snapshot_key(server), pins_key(server)} if server is not None else set[str]()

    def is_about(namespace: str, stored: StoredValue) -> bool:
        if namespace == CONSENT:
            return stored.key.split("\0")[1:2] == [server_id]
        if stored.key in own_keys or (namespace == _TASKS and stored.key.startswith(f"{server_id}/")):
            return True
        subject = _subject_of(stored)
        return subject.server_id == server_id or subject.message.startswith(name_server(server_id))

    values, records, left = _find(context.store, is_about, lambda found: found[0] == server_id, audit=audit)
    others = [other for other in loaded.servers.values() if other.server_id != server_id]
    logins = [each for each in kept if server is not None and is_for(each.login, server)]
    shared = [each for each in logins if any(is_for(each.login, other) for other in others)]
    remarks = [f"the login to {each.login.resource} stays: another server uses it" for each in shared]
    if server is not None and not server.is_built_in:
        remarks.append(f"its entry stays: `fairlead remove` takes it out of {server.definition.origin(())}")
    log = state_folder(context.env) / "logs" / f"{server_id}.log"
    return ForgetPlan(
        subject="server",
        name=server_id,
        store=context.store,
        values=_with_defaults(context.store, values),
        records=records,
        records_left=left,
        files=[
            path for path in (log, log.with_name(f"{log.name}.1")) if _is_plain(server_id) and path.exists()
        ],
        logins=[each for each in logins if each not in shared],
        remarks=remarks,
    )


def _plan_principal(
    context: ActionContext, principal: str, kept: list[KeptLogin], *, audit: bool
) -> ForgetPlan:
    own_keys = {snapshot_key(server, principal) for server in context.loaded.servers.values()}

    def is_about(namespace: str, stored: StoredValue) -> bool:
        if namespace == SNAPSHOTS and principal != LOCAL and stored.key in own_keys:
            return True
        # What servers offer to everyone is saved for the local user, and is not about that user.
        of_all = namespace in (SNAPSHOTS, TROUBLE, PINS, DEFAULTS, CONSENT) and principal == LOCAL
        return not of_all and _subject_of(stored).principal == principal

    values, records, left = _find(context.store, is_about, lambda found: found[1] == principal, audit=audit)
    tokens = [
        token.name
        for token in named_tokens(context.env, context.store).read()
        if token.owner.principal == principal
    ]
    return ForgetPlan(
        subject="principal",
        name=principal,
        store=context.store,
        values=values,
        records=records,
        records_left=left,
        tokens=tokens,
        logins=[each for each in kept if each.login.principal == principal],
    )


def _is_plain(server_id: str) -> bool:
    """Whether a typed name can be a server's id, and so the name of a file."""
    return bool(server_id) and all(letter.isalnum() or letter in "_-" for letter in server_id)


def _subject_of(stored: StoredValue) -> _Subject:
    try:
        return msgspec.json.decode(stored.value, type=_Subject)
    except (msgspec.DecodeError, RecursionError):
        return _Subject()


def _find(
    store: StoreLocation,
    is_about: Callable[[str, StoredValue], bool],
    is_recorded: Callable[[tuple[str, str]], bool],
    *,
    audit: bool,
) -> tuple[list[tuple[str, StoredValue]], list[int], int]:
    """The values and audit records about a subject, and how many records stay since they are not to go."""
    if not store.exists():
        return [], [], 0
    with open_database_for_reading(store) as database:
        values = [
            (namespace, stored)
            for namespace in _WORDS
            for stored in database.scan(namespace)
            if is_about(namespace, stored)
        ]
        records = [*_records(database, is_recorded)]
    return values, records if audit else [], 0 if audit else len(records)


def _records(database: Database, is_recorded: Callable[[tuple[str, str]], bool]) -> Iterable[int]:
    after = 0
    while page := database.read_log(LOG, after=after, limit=_MOST_READ):
        after = page[-1].sequence
        for stored in page:
            record = decode(stored)
            if record is not None and is_recorded((record.server, record.principal)):
                yield stored.sequence


def _with_defaults(
    store: StoreLocation, values: list[tuple[str, StoredValue]]
) -> list[tuple[str, StoredValue]]:
    """The same, with the permission defaults that belong to the pins among them: they share their key."""
    pinned = {stored.key for namespace, stored in values if namespace == PINS}
    have = {stored.key for namespace, stored in values if namespace == DEFAULTS}
    if not pinned - have:
        return values
    with open_database_for_reading(store) as database:
        found = [database.get(DEFAULTS, key) for key in sorted(pinned - have)]
    return [*values, *((DEFAULTS, stored) for stored in found if stored is not None)]


async def forget(context: ActionContext, plan: ForgetPlan, host: "Host | None") -> list[Notice]:
    """Delete what a plan names. Logins are ended at their issuer where it offers that.

    Args:
        context: Who forgets.
        plan: What goes.
        host: Ends the logins; None where there are none.

    Returns:
        What the user should know about it.
    """
    notices: list[Notice] = []
    for each in plan.logins if host is not None else ():
        assert host is not None
        revocation = await log_out(context, host, each.login)
        if revocation.outcome == "failed":
            notices.append(
                Notice(message=f"the tokens for {each.login.resource} were not ended: {revocation.reason}")
            )
    for name in plan.tokens:
        named_tokens(context.env, context.store).remove(name)
    if plan.values or plan.records:
        with open_database(plan.store) as database:
            _delete(database, plan)
            left = {_digest_of(stored) for stored in database.scan(ARTIFACTS)}
        _delete_artifact_files(context, plan, left)
    for path in plan.files:
        path.unlink(missing_ok=True)
    server_id = plan.name if plan.subject == "server" else ""
    notices += context.record(
        "forget", server_id, subject=plan.subject, name=plan.name, **_count_for_audit(plan)
    )
    if plan.counts and living(context.env):
        notices.append(
            Notice(
                message="a gateway runs, and may know of it until it is restarted",
                hint="restart the gateway",
            )
        )
    return notices


def _count_for_audit(plan: ForgetPlan) -> dict[str, int]:
    return {name.replace(" ", "_"): number for name, number in plan.counts.items()}


def _delete(database: Database, plan: ForgetPlan) -> None:
    for namespace, stored in plan.values:
        database.delete(namespace, stored.key, expect=ANY)
        if namespace == PINS:
            database.publish(REVIEWED, stored.key.encode())  # running hosts look again
    if plan.records:
        database.delete_records(LOG, plan.records)


def _digest_of(stored: StoredValue) -> str:
    return stored.key.rpartition("/")[2]


def _delete_artifact_files(context: ActionContext, plan: ForgetPlan, left: set[str]) -> None:
    """Delete the files of artifacts that no record is left of: equal ones share a file."""
    folder = artifact_folder(context.env, context.loaded.config)
    if folder is None:
        return  # a shared store lets them expire, and a bucket is swept of what no record is left of
    digests = {_digest_of(stored) for namespace, stored in plan.values if namespace == ARTIFACTS}
    for digest in digests - left:
        if digest.isalnum():
            (folder / digest).unlink(missing_ok=True)

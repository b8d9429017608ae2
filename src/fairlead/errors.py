"""Every error this package raises on purpose.

FairleadError                     catch this to catch them all
├── ConfigError                   the configuration cannot be used as it is; nothing was contacted
│   ├── ConfigInvalid             what the files say is wrong; carries every `Problem` at once
│   ├── ConfigUnreadable          a file cannot be read
│   ├── ConfigUnwritable          a file cannot be changed; it is as it was
│   ├── SecretUnavailable         a `${…}` reference points at nothing
│   ├── UnknownServer             no server has that id
│   └── UnknownBundle             no bundle has that name
├── StoreError                    the state on disk cannot be used
│   ├── VersionConflict           somebody else changed the value first; read it again
│   ├── ValueTooLarge             a value is larger than any may be; it was not read
│   ├── LockBusy                  somebody else holds the lock, and went on holding it
│   └── LockLost                  a lease ran out before its holder was done
├── ServerError                   one server failed; the others are unaffected
│   ├── ConnectFailed             it never became ready
│   ├── ConsentRequired           it comes from a project file and nobody approved it yet
│   ├── AuthRequired              it wants a login first
│   ├── LoginFailed               logging in to it did not work
│   │   └── TokenRefused          the issuer will not renew a login; only a new one helps
│   ├── IssuerUnavailable         the issuer cannot be asked right now; what is known is kept
│   ├── ListFailed                it is connected, but would not say what it offers
│   └── CallFailed                a request to it failed; `delivery` says how far it got
│       ├── CallTimedOut          no answer in time
│       ├── CallRejected          it answered with a protocol error
│       └── ConnectionLost        it went away
├── ModelFailed                   the model's API would not do what it was asked
│   └── ModelUnavailable          it cannot be asked right now
├── ListenFailed                  a port cannot be had
├── GatewayGone                   a gateway that was found is not there any more; nothing was sent to it
├── CallDenied                    policy says no, or a person
│   ├── ApprovalRequired          a person must be asked, and nobody can be
│   └── RunCancelled              a person was asked, and wants the whole run ended
├── UnknownTool                   that server has no such tool
├── UnknownArtifact               nothing is kept under that handle, or not for this principal
├── ArgumentsInvalid              what was given does not fit the tool's schema; nothing was sent
├── WrongType                     a function of the library was passed a wrong type; also a `TypeError`
└── ToolFailed                    a first-party tool could not do what it was asked
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning"]
Delivery = Literal["not_sent", "unknown", "done"]


_DELIVERY_NOTICES: dict[Delivery, str] = {
    "not_sent": "the call was not carried out",
    "unknown": "the server may have carried out the call",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that is wrong in a configuration, and where."""

    message: str
    hint: str | None = None
    severity: Severity = "error"
    file: str | None = None
    path: tuple[str | int, ...] = ()
    line: int | None = None
    column: int | None = None

    @property
    def where(self) -> str:
        """The place, as editors and terminals like to link it: `file:line:column`."""
        place = self.file or "<config>"
        if self.line is not None:
            place += f":{self.line}:{self.column or 1}"
        return place

    @property
    def json_path(self) -> str:
        """The place inside the document, like `servers.github.args[0]`."""
        text = ""
        for step in self.path:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += f".{step}" if text else step
        return text

    def __str__(self) -> str:
        subject = f"{self.json_path}: " if self.path else ""
        return f"{self.where}: {subject}{self.message}"


class FairleadError(Exception):
    """Base of every error here: a message for a person, a stable `code`, and a `hint` where there is one."""

    code: ClassVar[str] = "error"
    delivery: Delivery = "not_sent"
    """How far a call got that failed with it: not to its server, unless an error says otherwise."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def delivery_notice(self) -> str | None:
        """What the user of a call that failed with it has to know before repeating the call, if anything."""
        return _DELIVERY_NOTICES.get(self.delivery)


class ConfigError(FairleadError):
    """The configuration cannot be used as it is; nothing was contacted."""

    code = "config_error"


class ConfigInvalid(ConfigError):
    """What the files say is wrong. `problems` holds all of it, not only the first."""

    code = "config_invalid"

    def __init__(self, *problems: Problem, hint: str | None = None) -> None:
        self.problems = problems
        hints = [problem.hint for problem in problems if problem.hint]
        super().__init__("\n".join(map(str, problems)), hint=hint or (hints[0] if len(hints) == 1 else None))


class ConfigUnreadable(ConfigError):
    """A file cannot be read."""

    code = "config_unreadable"


class ConfigUnwritable(ConfigError):
    """A file cannot be changed. It is as it was."""

    code = "config_unwritable"


class SecretUnavailable(ConfigError):
    """A `${…}` reference points at nothing."""

    code = "secret_unavailable"


class UnknownServer(ConfigError):
    """No server has that id."""

    code = "unknown_server"


class UnknownBundle(ConfigError):
    """No bundle has that name."""

    code = "unknown_bundle"


class StoreError(FairleadError):
    """The state on disk cannot be used."""

    code = "store_error"


class VersionConflict(StoreError):
    """Somebody else changed the value first. Read it again and decide anew."""

    code = "version_conflict"


class ValueTooLarge(StoreError):
    """A stored value is larger than any may be. It was not read."""

    code = "value_too_large"

    def __init__(self, message: str, *, hint: str | None = None, version: int) -> None:
        super().__init__(message, hint=hint)
        self.version = version


class LockBusy(StoreError):
    """Somebody else holds the lock, and went on holding it."""

    code = "lock_busy"


class LockLost(StoreError):
    """A lease ran out before its holder was done."""

    code = "lock_lost"


class ServerError(FairleadError):
    """One server failed; the others are unaffected."""

    code = "server_error"

    def __init__(self, server_id: str, message: str, *, hint: str | None = None) -> None:
        # An error that is made from another one of the same server names it once.
        subject = f"server `{server_id}`: "
        super().__init__(subject + message.removeprefix(subject), hint=hint)
        self.server_id = server_id


class ConnectFailed(ServerError):
    """The server never became ready."""

    code = "connect_failed"


class ConsentRequired(ServerError):
    """The server comes from a project file and nobody approved it yet."""

    code = "consent_required"


class AuthRequired(ServerError):
    """The server wants a login first. `challenge` is what it said, as it said it."""

    code = "auth_required"

    def __init__(
        self,
        server_id: str,
        message: str,
        *,
        hint: str | None = None,
        challenge: str | None = None,
        wants_more: bool = False,
    ) -> None:
        super().__init__(server_id, message, hint=hint)
        self.challenge = challenge
        self.wants_more = wants_more
        """There is a login, and what is wanted is more than it may do."""


class LoginFailed(ServerError):
    """Logging in did not work. What was there before is as it was."""

    code = "login_failed"


class TokenRefused(LoginFailed):
    """The issuer will not renew a login (`invalid_grant`). Only a new one helps."""

    code = "token_refused"


class IssuerUnavailable(ServerError):
    """The issuer of a login cannot be asked right now. Tokens are kept, and it is asked again later."""

    code = "issuer_unavailable"


class ListFailed(ServerError):
    """The server is connected, but would not say what it offers."""

    code = "list_failed"


class CallFailed(ServerError):
    """A request to a server failed. `delivery` says whether it can have had an effect."""

    code = "call_failed"

    def __init__(self, server_id: str, message: str, *, delivery: Delivery, hint: str | None = None) -> None:
        super().__init__(server_id, message, hint=hint)
        self.delivery: Delivery = delivery


class CallTimedOut(CallFailed):
    """No answer in time."""

    code = "call_timed_out"


class CallRejected(CallFailed):
    """The server answered with a protocol error.

    `words` is its message alone and `data` what it sent along, both cleaned, bounded and masked.
    """

    code = "call_rejected"

    def __init__(
        self,
        server_id: str,
        message: str,
        *,
        rpc_code: int,
        data: Any = None,  # noqa: ANN401 - any JSON value
        untrusted: bool = True,
        hint: str | None = None,
    ) -> None:
        super().__init__(server_id, message, delivery="done", hint=hint)
        self.rpc_code = rpc_code
        self.words = message
        self.data = data
        self.untrusted = untrusted
        """It comes from a server that is not trusted: to a model it is data, never instructions."""


class ConnectionLost(CallFailed):
    """The server was ready and went away."""

    code = "connection_lost"


class ModelFailed(FairleadError):
    """A model's API would not do what it was asked: a wrong key, a wrong name, too long a conversation."""

    code = "model_failed"


class ModelUnavailable(ModelFailed):
    """A model's API cannot be asked right now: it is down, too busy, or not where it should be."""

    code = "model_unavailable"


class ListenFailed(FairleadError):
    """A port cannot be had."""

    code = "listen_failed"


class GatewayGone(FairleadError):
    """A gateway that was found running cannot be asked any more. Nothing it was asked had an effect."""

    code = "gateway_gone"


class CallDenied(FairleadError):
    """Policy says no, or a person does. Nothing was sent."""

    code = "call_denied"


class ApprovalRequired(CallDenied):
    """A person must be asked about this call, and nobody can be. Nothing was sent."""

    code = "approval_required"


class RunCancelled(CallDenied):
    """A person was asked about a call and wants the whole run ended. Nothing was sent."""

    code = "run_cancelled"


class UnknownTool(FairleadError):
    """That server has no such tool."""

    code = "unknown_tool"


class UnknownArtifact(FairleadError):
    """Nothing is kept under that handle, not any more, or not for this principal."""

    code = "unknown_artifact"


class ArgumentsInvalid(FairleadError):
    """What was given does not fit the tool's schema. Nothing was sent."""

    code = "arguments_invalid"


class WrongType(FairleadError, TypeError):
    """A function of the library was passed an argument of a wrong type. Nothing was done."""

    code = "wrong_type"


class ToolFailed(FairleadError):
    """A first-party tool could not do what it was asked. Message and hint are what the model reads."""

    code = "tool_failed"
    delivery = "done"


NEEDS_USER = (AuthRequired, CallDenied, ConsentRequired, LoginFailed)
"""What ends once the user logs in, consents or approves."""

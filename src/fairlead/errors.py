"""All errors that this package raises on purpose, in one tree.

FairleadError                     catch this to catch them all
├── ConfigError                   the configuration cannot be used; nothing was contacted
│   ├── ConfigInvalid             the files have mistakes; carries every `Problem` at once
│   ├── ConfigUnreadable          a file cannot be read
│   ├── ConfigUnwritable          a file cannot be changed; it is unchanged
│   ├── SecretUnavailable         a `${…}` reference has no value
│   ├── UnknownServer             no server has that id
│   └── UnknownBundle             no bundle has that name
├── StoreError                    the durable state cannot be used
│   ├── StoreUnavailable          the store's server does not answer now
│   ├── VersionConflict           another writer changed the value first; read it again
│   ├── ValueTooLarge             a value is over the size limit; it was not read
│   ├── LockBusy                  the lock stayed held by another holder
│   └── LockLost                  a lease ran out before its holder was done
├── ServerError                   one server failed; the others are unaffected
│   ├── ConnectFailed             it never became ready
│   ├── ConsentRequired           it comes from a project file without the user's consent
│   ├── AuthRequired              it requires a login
│   ├── LoginFailed               the login failed
│   │   ├── ClientRegistrationRequired  the issuer registers no clients; the user has to, once
│   │   └── TokenRefused          the issuer refuses a token refresh; a new login is needed
│   ├── IssuerUnavailable         the issuer cannot be reached now; tokens are kept
│   ├── ListFailed                it is connected, but listing what it offers failed
│   └── CallFailed                a request to it failed; `delivery` says how far it got
│       ├── CallTimedOut          no answer in time
│       ├── CallRejected          it answered with a protocol error
│       ├── ConnectionLost        the connection broke
│       └── ResultInvalid         the result is not of the requested type
├── ModelFailed                   the model's API refused a request
│   └── ModelUnavailable          it cannot be reached now
├── ListenFailed                  a port cannot be bound
├── GatewayGone                   a running gateway cannot be reached any more; nothing was sent to it
├── ReplicaFailed                 another replica failed a request; `delivery` says how far it got
├── CallDenied                    policy or the user denied the call
│   ├── ApprovalRequired          the call needs approval, and there is no way to ask the user
│   └── RunCancelled              the user cancelled the whole run at an approval
├── UnknownTool                   that server has no such tool
├── UnknownArtifact               no artifact has that handle for this principal
├── UnknownCall                   no call with that id waits for an answer
├── ArgumentsInvalid              the arguments do not match the tool's schema; nothing was sent
├── WrongType                     a function of the library was passed a wrong type; also a `TypeError`
├── WaitTimedOut                  the synchronous host waited too long; also a `TimeoutError`
├── WouldBlock                    the synchronous host was used where it would wait for itself
└── ToolFailed                    a first-party tool failed
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from fairlead.bounded_repr import bound_repr
from fairlead.wording import name_server, without_server

Severity = Literal["error", "warning"]
Delivery = Literal["not_sent", "unknown", "done"]


_DELIVERY_NOTICES: dict[Delivery, str] = {
    "not_sent": "the call was not carried out",
    "unknown": "the server may have carried out the call",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One problem of a configuration, and its position."""

    message: str
    """What is wrong, in a sentence."""
    hint: str | None = None
    """What to do about it."""
    severity: Severity = "error"
    """Whether it keeps something from working."""
    file: str | None = None
    """The file, if it is in one."""
    path: tuple[str | int, ...] = ()
    """Keys and indexes that lead to the value."""
    line: int | None = None
    """The line in the file, from 1."""
    column: int | None = None
    """The column in the line, from 1."""
    written: tuple[str | int, ...] | None = None
    """The path as the document spells it, where that is not Fairlead's own format."""

    @property
    def where(self) -> str:
        """Position in the form that editors and terminals link: `file:line:column`."""
        place = self.file or "<config>"
        if self.line is not None:
            place += f":{self.line}:{self.column or 1}"
        return place

    @property
    def json_path(self) -> str:
        """Path inside the document, as that spells it, such as `servers.github.args[0]`."""
        text = ""
        for step in self.written or self.path:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += f".{step}" if text else step
        return text

    def __str__(self) -> str:
        subject = f"{self.json_path}: " if self.path else ""
        return f"{self.where}: {subject}{self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """An input of an action that settles why the action was refused. Each surface words it in its own way."""

    input: str
    """The name of the input, such as `replace` or `scope`."""
    value: str | None = None
    """The value that settles it, where one is known and it is not a switch."""


class FairleadError(Exception):
    """Base of all errors: a message for the user, a stable `code`, and a `hint` where there is one.

    ```python
    try:
        await host.call("time.get_current_time", timezone=5)
    except FairleadError as error:
        print(error, error.hint, error.code, error.delivery)
    ```
    """

    code: ClassVar[str] = "error"
    delivery: Delivery = "not_sent"
    """Delivery of the call that failed with it: not sent, unless an error overrides it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __repr__(self) -> str:
        hint = f", hint={bound_repr(self.hint)}" if self.hint else ""
        return f"{type(self).__name__}({bound_repr(str(self))}{hint})"

    @property
    def delivery_notice(self) -> str | None:
        """Warning for the user before they repeat the failed call, if there is a reason for one."""
        return _DELIVERY_NOTICES.get(self.delivery)

    def after_sending(self) -> Self:
        """This error where it ends a call of which a part was sent before: it is no longer `not_sent`.

        A copy, since one error may end the waits of several calls.
        """
        if self.delivery != "not_sent":
            return self
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        copy.__cause__ = self.__cause__
        copy.delivery = "unknown"
        return copy


class ConfigError(FairleadError):
    """The configuration cannot be used; nothing was contacted.

    Of an action that was refused, `field` names the input at fault, and `remedy` the one that settles it.
    """

    code = "config_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        field: str | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.remedy = remedy


class ConfigInvalid(ConfigError):
    """The files have mistakes. `problems` holds all of them, not only the first."""

    code = "config_invalid"

    def __init__(self, *problems: Problem, hint: str | None = None) -> None:
        self.problems = problems
        hints = [problem.hint for problem in problems if problem.hint]
        super().__init__("\n".join(map(str, problems)), hint=hint or (hints[0] if len(hints) == 1 else None))


class ConfigUnreadable(ConfigError):
    """A file cannot be read."""

    code = "config_unreadable"


class ConfigUnwritable(ConfigError):
    """A file cannot be changed. It is unchanged."""

    code = "config_unwritable"


class SecretUnavailable(ConfigError):
    """A `${…}` reference has no value."""

    code = "secret_unavailable"


class UnknownServer(ConfigError):
    """No server has that id."""

    code = "unknown_server"


class UnknownBundle(ConfigError):
    """No bundle has that name."""

    code = "unknown_bundle"


class StoreError(FairleadError):
    """The durable state cannot be used."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store's server does not answer now. What needs it is refused until it does."""

    code = "store_unavailable"


class VersionConflict(StoreError):
    """Another writer changed the value first. Read it again and decide anew."""

    code = "version_conflict"


class ValueTooLarge(StoreError):
    """A stored value is over the size limit. It was not read."""

    code = "value_too_large"

    def __init__(self, message: str, *, hint: str | None = None, version: int) -> None:
        super().__init__(message, hint=hint)
        self.version = version


class LockBusy(StoreError):
    """The lock stayed held by another holder."""

    code = "lock_busy"


class LockLost(StoreError):
    """A lease ran out before its holder was done."""

    code = "lock_lost"


class ServerError(FairleadError):
    """One server failed; the others are unaffected."""

    code = "server_error"

    def __init__(self, server_id: str, message: str, *, hint: str | None = None) -> None:
        # An error made from another one of the same server names it once.
        super().__init__(name_server(server_id) + without_server(message, server_id), hint=hint)
        self.server_id = server_id


class ConnectFailed(ServerError):
    """The server never became ready."""

    code = "connect_failed"


class ConsentRequired(ServerError):
    """The server comes from a project file without the user's consent."""

    code = "consent_required"


class AuthRequired(ServerError):
    """The server requires a login. `challenge` is its own, unchanged."""

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
        """Whether there is a login, with too few OAuth scopes."""


class LoginFailed(ServerError):
    """The login failed. Earlier tokens are unchanged."""

    code = "login_failed"


class ClientRegistrationRequired(LoginFailed):
    """The issuer does not register this client by itself: the user has to do that once, and name its id.

    The hint says what to register, with which redirect URI, and the field that takes the id.
    """

    code = "needs_client_registration"


class TokenRefused(LoginFailed):
    """The issuer refuses a token refresh (`invalid_grant`). A new login is needed."""

    code = "token_refused"


class IssuerUnavailable(ServerError):
    """The issuer cannot be reached now. Tokens are kept, and the refresh is tried again later."""

    code = "issuer_unavailable"


class ListFailed(ServerError):
    """The server is connected, but listing what it offers failed."""

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

    `words` is its message alone and `data` what it sent along, both sanitized, bounded and masked.
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
        """Whether an untrusted server sent it: for a model it is data, never instructions."""


class ConnectionLost(CallFailed):
    """The connection to a ready server broke."""

    code = "connection_lost"


class ResultInvalid(CallFailed):
    """The result of a tool is not of the type that `ToolResult.as_type` was given. The tool was called."""

    code = "result_invalid"

    def __init__(self, server_id: str, message: str, *, tool: str | None, hint: str | None = None) -> None:
        super().__init__(server_id, message, delivery="done", hint=hint)
        self.tool = tool


class ModelFailed(FairleadError):
    """A model's API refused a request: a wrong key, a wrong name, too long a conversation."""

    code = "model_failed"


class ModelUnavailable(ModelFailed):
    """A model's API cannot be reached now: it is down, too busy, or at another address."""

    code = "model_unavailable"


class ListenFailed(FairleadError):
    """A port cannot be bound."""

    code = "listen_failed"


class GatewayGone(FairleadError):
    """A running gateway cannot be reached any more. Nothing sent to it had an effect."""

    code = "gateway_gone"


class ReplicaFailed(FairleadError):
    """Another replica of the gateway did not answer a request. `delivery` says whether it may have had it."""

    code = "replica_failed"

    def __init__(self, message: str, *, delivery: Delivery, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.delivery: Delivery = delivery


class CallDenied(FairleadError):
    """Policy or the user denied the call. Nothing was sent."""

    code = "call_denied"


class ApprovalRequired(CallDenied):
    """The call needs approval, and there is no way to ask the user. Nothing was sent."""

    code = "approval_required"


class RunCancelled(CallDenied):
    """The user cancelled the whole run when prompted to approve a call. Nothing was sent."""

    code = "run_cancelled"


class UnknownTool(FairleadError):
    """That server has no such tool."""

    code = "unknown_tool"


class UnknownArtifact(FairleadError):
    """No artifact has that handle for this principal, or not any more."""

    code = "unknown_artifact"


class UnknownCall(FairleadError):
    """No call with that id waits for an answer, or not any more."""

    code = "unknown_call"


class ArgumentsInvalid(FairleadError):
    """The arguments do not match the tool's schema. Nothing was sent."""

    code = "arguments_invalid"


class WrongType(FairleadError, TypeError):
    """A function of the library was passed an argument of a wrong type. Nothing was done."""

    code = "wrong_type"


class WaitTimedOut(FairleadError, TimeoutError):
    """The synchronous host did not finish within `fail_after`. The work was cancelled."""

    code = "wait_timed_out"
    delivery = "unknown"


class WouldBlock(FairleadError):
    """The synchronous host was used where it would wait for itself. Nothing was done."""

    code = "would_block"


class ToolFailed(FairleadError):
    """A first-party tool failed. Message and hint are for the model."""

    code = "tool_failed"
    delivery = "done"


NEEDS_USER = (AuthRequired, CallDenied, ConsentRequired, LoginFailed)
"""What ends once the user logs in, consents or approves."""

"""What foreign exceptions become: our errors, with words for people and how far the request got."""

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import BaseModel, ValidationError

from fairlead.connection.failures import (
    call_failure,
    calling,
    connect_failure,
    connecting,
    lost_error,
    root_cause,
)
from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerUnreadable,
    ConnectionClosed,
    ConnectionEnding,
    HttpRejected,
    NotEncodable,
    RequestExpired,
    RequestFailed,
    RequestRejected,
    SessionExpired,
    SpawnFailed,
    Unreachable,
)
from fairlead.errors import (
    AuthRequired,
    CallFailed,
    CallRejected,
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    ListFailed,
    ServerError,
)

EXITED = ConnectionEnding(
    kind="exited",
    message="the server exited with code 3",
    exit_code=3,
    stderr=tuple(f"line {number}" for number in range(20)),
)


def invalid() -> ValidationError:
    class Model(BaseModel):
        field: int

    with pytest.raises(ValidationError) as raised:
        Model.model_validate({})
    return raised.value


@pytest.mark.parametrize(
    ("cause", "kind", "words", "hint"),
    [
        (SpawnFailed("x cannot be run"), ConnectFailed, "x cannot be run", "`command`"),
        (ConnectionClosed(EXITED, "unknown"), ConnectFailed, "code 3", None),
        (HttpRejected(401, "no"), AuthRequired, "login", "fairlead login x"),
        (HttpRejected(404, "HTTP 404"), ConnectFailed, "HTTP 404", "MCP URL"),
        (AnswerLost("gone"), ConnectFailed, "gone", "running"),
        (AnswerUnreadable("odd"), ConnectFailed, "odd", "MCP server"),
        (Unreachable("no connection to x:1"), ConnectFailed, "no connection to x:1", "running"),
        (RequestRejected(UNSUPPORTED_PROTOCOL_VERSION, "1999"), ConnectFailed, "no protocol version", None),
        (RequestRejected(-32000, "go away"), ConnectFailed, "refused the handshake: go away", None),
        (MCPError(-32000, "odd"), ConnectFailed, "refused the handshake: odd", None),
        (invalid(), ConnectFailed, "not valid MCP", None),
        (OSError("disk on fire"), ConnectFailed, "disk on fire", None),
        (KeyError(), ConnectFailed, "KeyError", None),
    ],
)
def test_a_failure_to_connect_is_told_in_words(
    cause: Exception, kind: type[ServerError], words: str, hint: str | None
) -> None:
    error = connect_failure("x", cause)
    assert type(error) is kind
    assert str(error).startswith("server `x`: ")
    assert words in str(error)
    assert (hint or "") in (error.hint or "")


@pytest.mark.parametrize(
    ("failure", "kind", "delivery"),
    [
        (RequestExpired("tools/call", 5, "unknown"), CallTimedOut, "unknown"),
        (RequestExpired("tools/call", 5, "not_sent"), CallTimedOut, "not_sent"),
        (RequestRejected(INVALID_PARAMS, "no"), CallRejected, "done"),
        (ConnectionClosed(EXITED, "unknown"), ConnectionLost, "unknown"),
        (ConnectionClosed(EXITED, "not_sent"), ConnectionLost, "not_sent"),
        (SessionExpired(404, "s"), ConnectionLost, "not_sent"),
        (AnswerLost("gone"), ConnectionLost, "unknown"),
        (AnswerUnreadable("odd"), CallFailed, "done"),
        (HttpRejected(500, "HTTP 500"), CallFailed, "unknown"),
        (HttpRejected(400, "HTTP 400"), CallFailed, "done"),
        (Unreachable("no connection"), ConnectionLost, "not_sent"),
        (NotEncodable("NaN"), CallFailed, "not_sent"),
    ],
)
def test_a_failed_call_says_how_far_it_got(
    failure: RequestFailed, kind: type[CallFailed], delivery: str
) -> None:
    error = call_failure("x", failure)
    assert type(error) is kind
    assert isinstance(error, CallFailed)
    assert error.delivery == delivery
    assert error.__cause__ is None
    assert ("before you repeat it" in (error.hint or "")) == (
        kind is ConnectionLost and delivery == "unknown"
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (302, "`url`"),
        (400, "MCP endpoint"),
        (403, "does not allow it"),
        (404, "check the path of `url`"),
        (405, "takes no MCP requests"),
        (410, "is gone"),
        (413, "send less"),
        (418, "MCP endpoint"),
        (429, "try again later"),
        (500, "its own log"),
    ],
)
def test_every_status_has_its_hint_in_a_call_as_when_connecting(status: int, words: str) -> None:
    called, connected = (make("x", HttpRejected(status, "no")) for make in (call_failure, connect_failure))
    assert words in (called.hint or "")
    assert called.hint == connected.hint


def test_a_call_that_wants_a_login_says_so() -> None:
    assert isinstance(call_failure("x", HttpRejected(401, "no")), AuthRequired)


def test_a_rejected_call_keeps_the_code() -> None:
    error = call_failure("x", RequestRejected(INVALID_PARAMS, "bad"))
    assert isinstance(error, CallRejected)
    assert error.rpc_code == INVALID_PARAMS


def test_the_last_lines_of_stderr_are_in_the_error_and_no_more() -> None:
    text = str(lost_error("x", EXITED))
    assert "line 19" in text
    assert "line 11" not in text


def test_the_one_real_failure_is_found_inside_groups() -> None:
    real = ValueError("real")
    assert root_cause(real) is real
    assert root_cause(BaseExceptionGroup("a", [ExceptionGroup("b", [real]), KeyError()])) is real


@pytest.mark.requirement("HARD-21")
def test_no_group_comes_out_of_connecting() -> None:
    with pytest.raises(ConnectFailed, match="no program") as raised, connecting("x"):
        raise ExceptionGroup("unhandled errors in a TaskGroup", [SpawnFailed("no program")])
    assert isinstance(raised.value.__cause__, SpawnFailed)


def test_our_own_errors_pass_through_connecting_even_from_inside_a_group() -> None:
    own = ListFailed("x", "no list")
    for failure in (own, ExceptionGroup("group", [own])):
        with pytest.raises(ListFailed) as raised, connecting("x"):
            raise failure
        assert raised.value is own


def test_calling_lets_strange_errors_be_what_they_are() -> None:
    with pytest.raises(ZeroDivisionError), calling("x"):
        _ = 1 / 0

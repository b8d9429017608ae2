"""What clients send becomes messages that the SDK's server takes."""

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from fairlead.jsonrpc.incoming import read_messages, repair_body


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{"action":"accept"},"error":null}', {"action": "accept"}),
        (b'{"jsonrpc":"2.0","id":3,"result":null,"error":null}', {}),
        (b'{"jsonrpc":"2.0","id":3,"result":null}', {}),
    ],
)
def test_an_answer_of_a_client_may_have_null_for_what_it_has_not(answer: bytes, result: object) -> None:
    body = repair_body(answer)
    assert isinstance(body, bytes)
    for message in (*read_messages(answer), jsonrpc_message_adapter.validate_json(body, by_name=False)):
        assert isinstance(message, JSONRPCResponse)
        assert (message.id, message.result) == (3, result)


@pytest.mark.parametrize("answer", [b'"result":7', b'"error":"no"', b'"error":null', b'"error":{"code":"x"}'])
def test_an_answer_that_cannot_be_used_ends_the_wait_for_it(answer: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":3,%b}' % answer
    body = repair_body(line)
    assert isinstance(body, bytes)
    for message in (*read_messages(line), jsonrpc_message_adapter.validate_json(body, by_name=False)):
        assert isinstance(message, JSONRPCError)
        assert message.id == 3

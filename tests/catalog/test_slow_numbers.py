"""Numbers that a parser takes long for: results and arguments full of them are read in bounded time."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from mcp_types import JSONRPCRequest

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize.slices import decode_finite, has_slow_numbers
from fairlead.gateway.tool_results import as_dict, fit_result
from fairlead.jsonrpc.incoming import read_messages, repair_body
from fairlead.policy.argument_shapes import shape_of

SECONDS = 0.5
"""Far above what it takes, and far below what it took: 1.3 s."""
LONG = b"0." + b"0" * 310 + b"1"
NUMBERS = (b"1e300", b"1E+300", b"1e0000300", b"2.2250738585072011e-308", LONG, b"9" * 4000)


def full_of(number: bytes, size: int = 1_000_000) -> bytes:
    return b'{"n":[%b]}' % b",".join([number] * (size // (len(number) + 1)))


def result(*, content: bytes = b"", structured: bytes = b"null", meta: bytes = b"{}") -> ToolResult:
    block = b'{"type":"text","text":"a"%b}' % content
    raw = b'{"content":[%b],"structuredContent":%b,"_meta":%b}' % (block, structured, meta)
    return ToolResult("s", raw)


READERS: dict[str, Callable[[ToolResult], object]] = {
    "text": lambda each: each.text,
    "repr": repr,
    "newest version": lambda each: fit_result(each, number=4),
    "older version": lambda each: fit_result(each, number=3),
    "for the SDK": lambda each: as_dict(fit_result(each, number=3, keeps_null=False)),
}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12].decode())
def test_a_result_full_of_costly_numbers_is_read_quickly(
    number: bytes, reader: Callable[[ToolResult], object]
) -> None:
    many = full_of(number)
    ours = b'{"fairlead/delivery":1,"n":%b}' % many
    began = time.thread_time()
    for said in (result(structured=many), result(content=b',"x":' + many), result(meta=ours)):
        reader(said)
    assert time.thread_time() - began < 3 * SECONDS


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12].decode())
def test_a_clients_arguments_full_of_costly_numbers_are_read_quickly(number: bytes) -> None:
    arguments = full_of(number)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":%b}}' % arguments
    began = time.thread_time()
    (message,) = read_messages(body)
    assert repair_body(body)
    shape_of(msgspec.Raw(full_of(number, 60_000)), str)
    assert time.thread_time() - began < 2 * SECONDS
    assert isinstance(message, JSONRPCRequest)
    assert (message.params or {})["name"] == "a"


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12].decode())
def test_costly_numbers_are_read_as_any_others(number: bytes) -> None:
    many = full_of(number)
    assert has_slow_numbers(many)
    value: Any = decode_finite(many)
    assert value["n"][0] == msgspec.json.decode(number)


def test_a_number_beyond_the_range_of_floats_is_refused_among_costly_ones_too() -> None:
    many = full_of(b"1e300")
    for odd in (b"1e999", b"-1e400", b"NaN", b"Infinity"):
        with pytest.raises(ValueError, match=r"."):
            decode_finite(many[:-2] + b"," + odd + b"]}")

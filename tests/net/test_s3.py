"""Objects of an S3-compatible bucket: signed as the service checks it, bounded, and refused with hints."""

import asyncio
import contextlib
import hashlib
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime

import anyio
import pytest

from fairlead.errors import StoreError, StoreUnavailable
from fairlead.net.http import open_client
from fairlead.net.s3 import MAX_OBJECTS, BucketAddress, BucketClient, S3Credentials, sign
from fairlead.testing import watch_loop
from tests.s3_server import BUCKET, S3Server, s3_server

NOTHING = hashlib.sha256(b"").hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def credentials_of(server: S3Server) -> S3Credentials:
    return S3Credentials(access_key=server.access_key, secret_key=server.secret_key)


def address_of(server: S3Server, bucket: str = BUCKET) -> BucketAddress:
    return BucketAddress(endpoint=server.url, bucket=bucket, region="us-east-1")


def test_a_signature_is_the_one_of_the_published_example() -> None:
    # "GET Object" of Amazon's page on signature calculations.
    example = S3Credentials(
        access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    )
    headers = sign(
        "GET",
        "https://examplebucket.s3.amazonaws.com/test.txt",
        {},
        {"Range": "bytes=0-9"},
        NOTHING,
        credentials=example,
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert headers["authorization"].endswith(f"Signature={expected}")
    listing = sign(
        "GET",
        "https://examplebucket.s3.amazonaws.com/",
        {"prefix": "J", "max-keys": "2"},
        {},
        NOTHING,
        credentials=example,
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    assert listing["authorization"].endswith(f"Signature={expected}")


async def test_objects_are_written_read_listed_and_deleted(server: S3Server) -> None:
    async with open_client() as http:
        bucket = BucketClient(address_of(server), lambda: credentials_of(server), http, {})
        content = bytes(range(256)) * 4096
        await bucket.put("some/folder/a b+c~%.bin", content)
        assert await bucket.get("some/folder/a b+c~%.bin", len(content)) == content
        (found,) = await bucket.list("some/")
        assert found.name == "some/folder/a b+c~%.bin"
        assert abs(time.time() - found.modified) < 60
        await bucket.delete("some/folder/a b+c~%.bin")
        await bucket.delete("some/folder/a b+c~%.bin")
        assert await bucket.get("some/folder/a b+c~%.bin", 100) is None
        assert await bucket.list("some/") == []


async def test_a_list_of_several_pages_is_read_to_its_end(server: S3Server) -> None:
    async with open_client() as http:
        bucket = BucketClient(address_of(server), lambda: credentials_of(server), http, {})
        for number in range(5):
            await bucket.put(f"many/{number}", b"")
        bucket.page_size = 2
        assert [each.name for each in await bucket.list("many/")] == [f"many/{number}" for number in range(5)]


async def test_a_larger_object_than_was_written_is_not_read(server: S3Server) -> None:
    async with open_client() as http:
        bucket = BucketClient(address_of(server), lambda: credentials_of(server), http, {})
        await bucket.put("large", b"x" * 2000)
        with pytest.raises(StoreError, match="larger than it was written"):
            await bucket.get("large", 1000)


@pytest.mark.parametrize(
    ("changes", "bucket", "hint"),
    [
        ({"access_key": "AKIANOBODY"}, BUCKET, "access_key"),
        ({"secret_key": "not-the-secret-of-it"}, BUCKET, "secret_key"),
        ({}, "no-such-bucket", "make the bucket"),
    ],
)
async def test_a_refusal_says_what_to_correct_and_no_secret(
    server: S3Server, changes: dict[str, str], bucket: str, hint: str
) -> None:
    given = {"access_key": server.access_key, "secret_key": server.secret_key, **changes}
    async with open_client() as http:
        client = BucketClient(address_of(server, bucket), lambda: S3Credentials(**given), http, {})
        with pytest.raises(StoreError, match="refuses") as caught:
            await client.put("a", b"content")
        assert hint in (caught.value.hint or "")
        assert given["secret_key"] not in f"{caught.value}{caught.value.hint}"
        assert not isinstance(caught.value, StoreUnavailable)


async def test_a_bucket_that_is_away_is_said_and_not_waited_for_again_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = BucketAddress(
            endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}", bucket=BUCKET, region="us-east-1"
        )
        credentials = S3Credentials(access_key="a", secret_key="b")
        async with open_client() as http:
            bucket = BucketClient(address, lambda: credentials, http, {})
            with pytest.raises(StoreUnavailable, match="does not answer: ") as caught:
                await bucket.put("a", b"content")
            assert "artifacts.s3.endpoint" in (caught.value.hint or "")
            with pytest.raises(StoreUnavailable, match=r"does not answer$"):
                await bucket.get("a", 100)


@contextlib.asynccontextmanager
async def bucket_that_lists(page: bytes) -> AsyncGenerator[BucketClient]:
    """A bucket of a service that answers every request with one page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(page)
        writer.write(head + page)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening, open_client() as http:
        port = listening.sockets[0].getsockname()[1]
        address = BucketAddress(endpoint=f"http://127.0.0.1:{port}", bucket=BUCKET, region="us-east-1")
        yield BucketClient(address, lambda: S3Credentials(access_key="a", secret_key="b"), http, {})


def listed_object(name: str, modified: str) -> bytes:
    return f"<Contents><Key>{name}</Key><LastModified>{modified}</LastModified></Contents>".encode()


@pytest.mark.parametrize("page", [b"<Contents>" * 400_000, b"<Contents><Key>" * 250_000])
async def test_a_page_without_ends_does_not_hold_the_event_loop(page: bytes) -> None:
    async with bucket_that_lists(page) as bucket:
        with watch_loop(0.25), anyio.fail_after(20):
            assert await bucket.list("") == []


async def test_an_object_with_a_date_that_no_clock_has_is_left_out() -> None:
    odd = ("9999-12-31T23:59:59-23:59", "0001-01-01", "yesterday")
    page = b"".join(listed_object("odd", date) for date in odd)
    async with bucket_that_lists(page + listed_object("good", "2026-01-01T00:00:00Z")) as bucket:
        assert [each.name for each in await bucket.list("") if each.name != "odd"] == ["good"]


async def test_a_list_that_does_not_end_is_read_up_to_a_limit() -> None:
    page = b"".join(listed_object(f"{number}", "2026-01-01T00:00:00Z") for number in range(30_000))
    more = b"<NextContinuationToken>again</NextContinuationToken>"
    async with bucket_that_lists(page + more) as bucket:
        with anyio.fail_after(60):
            assert len(await bucket.list("")) == MAX_OBJECTS

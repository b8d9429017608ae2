"""Client of an S3-compatible bucket: puts, gets, deletes and lists objects.

Requests are signed with AWS Signature Version 4, over path-style addresses, which Amazon S3, MinIO, Ceph,
Garage, R2 and others understand. Every wait and every answer has a limit; redirects are not followed.
"""

import hashlib
import hmac
import html
import io
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp
import anyio.to_thread
from yarl import URL

from fairlead.errors import StoreError, StoreUnavailable
from fairlead.net.http import open_client, proxy_for, read_beginning, tls_context

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 15.0
"""How long an answer may pause."""
SLOWEST_BYTES: Final = 512 * 1024
"""How many bytes a second a transfer makes at least, on average, beyond the time above."""
PAUSE_SECONDS: Final = 5.0
"""How long after a failure to connect no other attempt is made: calls must not wait for it one by one."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_LIST_BYTES: Final = 4 * 1024 * 1024
MAX_PAGES: Final = 100
MAX_OBJECTS: Final = 100_000

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")
_MAX_OBJECT_TEXT: Final = 4000
_KEY: Final = re.compile(r"<Key>([^<]{1,4000})</Key>")
_MODIFIED: Final = re.compile(r"<LastModified>([^<]{1,40})</LastModified>")
_NEXT: Final = re.compile(r"<NextContinuationToken>([^<]{1,4000})</NextContinuationToken>")

_HINTS: Final = {
    "NoSuchBucket": "make the bucket, or correct `artifacts.s3.bucket`",
    "InvalidAccessKeyId": "correct `artifacts.s3.access_key`",
    "SignatureDoesNotMatch": "correct `artifacts.s3.secret_key` and `artifacts.s3.region`",
    "AccessDenied": "its key needs s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket there",
    "RequestTimeTooSkewed": "set this machine's clock",
    "ExpiredToken": "renew the credentials that `artifacts.s3` refers to",
    "AuthorizationHeaderMalformed": "correct `artifacts.s3.region`",
    "PermanentRedirect": "correct `artifacts.s3.region` and `artifacts.s3.endpoint`: the bucket is elsewhere",
    "TemporaryRedirect": "correct `artifacts.s3.endpoint`: the bucket is elsewhere",
}
_AWAY_HINT: Final = "check `artifacts.s3.endpoint`, and that it can be reached; `fairlead doctor` tries it"


@dataclass(frozen=True, kw_only=True, slots=True)
class S3Credentials:
    """Credentials that requests are signed with."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketAddress:
    """Endpoint, region and name of a bucket."""

    endpoint: str
    bucket: str
    region: str

    def __str__(self) -> str:
        return f"`{self.bucket}` at {self.endpoint}"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a bucket."""

    name: str
    modified: float
    """When it was written, in seconds since 1970 by the bucket's clock."""


def sign(  # noqa: PLR0913 - the parts of a request
    method: str,
    url: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body_digest: str,
    *,
    credentials: S3Credentials,
    region: str,
    now: datetime,
) -> dict[str, str]:
    """Return the headers of a request with its signature.

    Args:
        method: The HTTP method.
        url: The address, with its path percent-encoded and without a query.
        query: The parameters.
        headers: Further headers, which are signed as well.
        body_digest: SHA-256 of the body, in hexadecimal.
        credentials: What to sign with.
        region: The region of the bucket.
        now: The time.
    """
    parts = urlsplit(url)
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    sent = {name.lower(): value.strip() for name, value in headers.items()}
    sent |= {"host": parts.netloc, "x-amz-date": moment, "x-amz-content-sha256": body_digest}
    if credentials.session_token is not None:
        sent["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(sent))
    lines = (
        method,
        parts.path or "/",
        encode_query(query),
        *(f"{name}:{sent[name]}" for name in sorted(sent)),
        "",
        names,
        body_digest,
    )
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (moment[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join((_ALGORITHM, moment, scope, digest))
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{credentials.access_key}/{scope}"
    sent["authorization"] = (
        f"{_ALGORITHM} Credential={credential},SignedHeaders={names},Signature={signature}"
    )
    return sent


def encode_query(query: Mapping[str, str]) -> str:
    """Encode query parameters in the canonical form of signatures."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


class BucketClient:
    """The objects of one bucket. Every method may raise `StoreError`, and nothing else.

    Args:
        address: Where it is.
        credentials: Returns what to sign with, read anew for each request: it may be replaced meanwhile.
        http: The HTTP client.
        env: The environment, which may name a proxy.
    """

    def __init__(
        self,
        address: BucketAddress,
        credentials: Callable[[], S3Credentials],
        http: aiohttp.ClientSession,
        env: Mapping[str, str],
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._http = http
        self._env = env
        self.page_size: int | None = None
        """How many objects a page of a list has; as many as the service gives if not set."""
        self._next_attempt = float("-inf")

    async def put(self, name: str, content: bytes) -> None:
        """Write an object. One of that name is replaced, as a whole."""
        await self._request("PUT", name, content=content)

    async def get(self, name: str, max_bytes: int) -> bytes | None:
        """Read an object; None where there is none. A larger one than it should be is refused."""
        return await self._request("GET", name, max_bytes=max_bytes)

    async def delete(self, name: str) -> None:
        """Delete an object. One that is not there is none."""
        await self._request("DELETE", name)

    async def list(self, prefix: str) -> list[ListedObject]:
        """List the objects whose name begins so, `MAX_OBJECTS` at most."""
        found: list[ListedObject] = []
        query = {"list-type": "2", "prefix": prefix}
        if self.page_size is not None:
            query["max-keys"] = str(self.page_size)
        for _ in range(MAX_PAGES):
            said = await self._request("GET", "", query=query, max_bytes=MAX_LIST_BYTES)
            # A page may be long: not in the event loop.
            objects, token = await anyio.to_thread.run_sync(_read_page, said or b"")
            found += objects
            if token is None or len(found) >= MAX_OBJECTS:
                break
            query["continuation-token"] = token
        return found[:MAX_OBJECTS]

    async def _request(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes = b"",
        max_bytes: int = MAX_ERROR_BYTES,
    ) -> bytes | None:
        if time.monotonic() < self._next_attempt:
            raise StoreUnavailable(f"bucket {self.address} does not answer", hint=_AWAY_HINT)
        limit = CONNECT_SECONDS + READ_SECONDS + (len(content) + max_bytes) / SLOWEST_BYTES
        # Objects are written whole, and deleted by name: each request may be sent again.
        for attempt in range(2):
            try:
                with anyio.fail_after(limit):
                    return await self._send(method, name, query or {}, content, max_bytes)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError) as exc:
                if attempt:
                    self._fail(exc)  # not a connection that had been idle for too long
            except (aiohttp.ClientError, OSError, TimeoutError) as exc:
                self._fail(exc)
        return None

    def _fail(self, error: Exception) -> None:
        self._next_attempt = time.monotonic() + PAUSE_SECONDS
        reason = str(error) or "no answer in time"
        raise StoreUnavailable(f"bucket {self.address} does not answer: {reason}", hint=_AWAY_HINT) from error

    async def _send(
        self, method: str, name: str, query: Mapping[str, str], content: bytes, max_bytes: int
    ) -> bytes | None:
        # Reading a reference and hashing many bytes take a while: not in the event loop.
        credentials, digest = await anyio.to_thread.run_sync(self._prepare, content)
        path = quote(f"/{self.address.bucket}/{name}", safe="/-_.~") if name else f"/{self.address.bucket}"
        url = f"{self.address.endpoint.rstrip('/')}{path}"
        headers = sign(
            method,
            url,
            query,
            {},
            digest,
            credentials=credentials,
            region=self.address.region,
            now=datetime.now(UTC),
        )
        target = URL(f"{url}?{encode_query(query)}" if query else url, encoded=True)
        async with self._http.request(
            method,
            target,
            data=io.BytesIO(content) if content else None,  # read in pieces: a whole one holds up the loop
            headers={**headers, "content-length": str(len(content))},
            allow_redirects=False,
            ssl=tls_context() if target.scheme == "https" else False,
            proxy=proxy_for(target, self._env),
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
            auto_decompress=False,
        ) as response:
            if response.status in (200, 204):
                return await self._read(response, max_bytes)
            said = await read_beginning(response, MAX_ERROR_BYTES)
            if response.status == 404 and name and b"NoSuchBucket" not in said:
                return None
            raise self._refusal(response.status, said)

    async def _read(self, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > max_bytes:
                raise StoreError(f"bucket {self.address}: an object is larger than it was written")
            parts.append(part)
        return b"".join(parts)

    def _prepare(self, content: bytes) -> tuple[S3Credentials, str]:
        return self._credentials(), hashlib.sha256(content).hexdigest()

    def _refusal(self, status: int, said: bytes) -> StoreError:
        found = _CODE.search(said)
        code = found[1].decode() if found else {301: "PermanentRedirect", 403: "AccessDenied"}.get(status, "")
        kind = StoreUnavailable if status >= 500 else StoreError
        reason = f"status {status}, {code}" if code else f"status {status}"
        return kind(f"bucket {self.address} refuses: {reason}", hint=_HINTS.get(code))


def _read_page(said: bytes) -> tuple[list[ListedObject], str | None]:
    """The objects of a page, and what to ask for the next one with."""
    text = said.decode(errors="replace")
    # Split rather than matched by a pattern, which would look for the end of each object anew.
    parts = [part.partition("</Contents>") for part in text.split("<Contents>")[1:]]
    objects = filter(None, (_read_object(inner[:_MAX_OBJECT_TEXT]) for inner, end, _ in parts if end))
    token = _NEXT.search(text)
    return [*objects], html.unescape(token[1]) if token else None


def _read_object(text: str) -> ListedObject | None:
    name, modified = _KEY.search(text), _MODIFIED.search(text)
    if name is None or modified is None:
        return None
    try:
        moment = datetime.fromisoformat(modified[1]).timestamp()
    except (ValueError, OverflowError):
        return None
    return ListedObject(html.unescape(name[1]), moment)


@asynccontextmanager
async def open_bucket(
    address: BucketAddress, credentials: Callable[[], S3Credentials], env: Mapping[str, str]
) -> AsyncGenerator[BucketClient]:
    """Use a bucket for the length of the block. Nothing is sent before the first request."""
    async with open_client() as http:
        yield BucketClient(address, credentials, http, env)

"""What people read when a server cannot be reached."""

import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from fairlead.connection.outcomes import connection_trouble

URL = "https://mcp.test/?key=secret"
KEY = ConnectionKey(
    "mcp.test", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
)


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (
            aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "Name or service not known")),
            "the name mcp.test cannot be resolved",
        ),
        (
            aiohttp.ClientConnectorCertificateError(KEY, certificate_error()),
            "the certificate of mcp.test is not trusted: self-signed certificate",
        ),
        (
            aiohttp.ClientConnectorSSLError(KEY, OSError(1, "wrong version number")),
            "no connection to mcp.test:443: wrong version number",
        ),
        (
            aiohttp.ClientConnectorError(KEY, OSError(111, "Connection refused")),
            "no connection to mcp.test:443: nothing listens there (connection refused)",
        ),
        (aiohttp.ClientOSError(f"Can not write request body for {URL}"), "the connection broke"),
        (aiohttp.ServerDisconnectedError(), "the server closed the connection"),
        (aiohttp.ClientPayloadError("400, message: x"), "the answer broke off, or cannot be decompressed"),
        (aiohttp.ConnectionTimeoutError(f"Connection timeout to host {URL}"), "no connection in time"),
        (
            aiohttp.ClientOSError(104, f"Cannot write to {URL}"),
            "the connection broke: Connection reset by peer",
        ),
        (aiohttp.InvalidURL(URL), "the URL cannot be used"),
        (aiohttp.ClientConnectionResetError(), "the connection broke"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_trouble_on_the_way_is_told_in_words(failure: Exception, text: str) -> None:
    assert connection_trouble(failure) == text

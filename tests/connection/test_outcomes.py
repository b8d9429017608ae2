"""What people read when a server cannot be reached."""

import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from fairlead.connection.failure_hints import hint_on_the_way
from fairlead.connection.outcomes import connection_trouble, trouble_kind

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
        (
            aiohttp.ClientOSError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert (_ssl.c:2580)"),
            "the server ended the TLS connection: it wants a certificate of the client",
        ),
        (
            aiohttp.ClientOSError(1, "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert (_ssl.c:2580)"),
            "the server ended the TLS connection: SSLV3_ALERT_BAD_CERTIFICATE",
        ),
        (aiohttp.InvalidURL(URL), "the URL cannot be used"),
        (aiohttp.ClientConnectionResetError(), "the connection broke"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_trouble_on_the_way_is_told_in_words(failure: Exception, text: str) -> None:
    assert connection_trouble(failure) == text


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


def invalid_certificate(code: int) -> ssl.SSLCertVerificationError:
    error = certificate_error()
    error.verify_code = code
    return error


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (aiohttp.ClientConnectorCertificateError(KEY, invalid_certificate(9)), "certificate_expired"),
        (aiohttp.ClientConnectorCertificateError(KEY, invalid_certificate(10)), "certificate_expired"),
        (aiohttp.ClientConnectorCertificateError(KEY, invalid_certificate(62)), "certificate_host"),
        (aiohttp.ClientConnectorCertificateError(KEY, invalid_certificate(20)), "certificate"),
        (aiohttp.ClientConnectorSSLError(KEY, tls_error("TLSV1_ALERT_PROTOCOL_VERSION")), "old_tls"),
        (aiohttp.ClientConnectorSSLError(KEY, tls_error("UNSUPPORTED_PROTOCOL")), "old_tls"),
        (aiohttp.ClientConnectorSSLError(KEY, tls_error("WRONG_VERSION_NUMBER")), "no_tls"),
        (aiohttp.ClientConnectorSSLError(KEY, tls_error("BAD_SIGNATURE")), "tls"),
        (aiohttp.ClientPayloadError("400, message: x"), "damaged"),
        (aiohttp.ServerDisconnectedError(), "closed"),
        (aiohttp.ClientOSError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert"), "closed_tls"),
    ],
)
def test_each_kind_of_trouble_has_a_hint_of_its_own(failure: Exception, kind: str) -> None:
    assert trouble_kind(failure) == kind
    assert hint_on_the_way(trouble_kind(failure))

"""The HTTP client all connections share."""

import aiohttp

CONNECT_SECONDS = 15.0

# Servers commonly drop a connection that was idle for 5 seconds. If they drop it while a request is on its
# way, nobody knows whether the request was carried out; so ours give up idle ones a little earlier.
_IDLE_SECONDS = 4.0


def open_client() -> aiohttp.ClientSession:
    """Return a client with a pool of connections and no memory: no cookies, no `.netrc`.

    Whoever opens it closes it. Only connecting is bounded in time; the rest is for the caller to say.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
        headers={"User-Agent": "fairlead"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        trust_env=False,
    )

"""How far a redirect is followed: never to another origin, never with another method."""

from yarl import URL

MAX_REDIRECTS = 3

_KEEPING_METHOD = (307, 308)
_CHANGING_METHOD = (301, 302, 303)


def is_redirect(status: int) -> bool:
    """Tell whether a status sends the client somewhere else."""
    return status in _KEEPING_METHOD or status in _CHANGING_METHOD


def within_origin(url: URL, reference: str) -> URL | None:
    """Return where `reference`, found at `url`, leads, or `None` if that is another origin or nowhere."""
    try:
        target = url.join(URL(reference))
    except ValueError:
        return None
    same_origin = (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port)
    return target if same_origin and target.user is None else None


def redirect_target(url: URL, method: str, status: int, location: str) -> URL | None:
    """Return where a redirect leads, or `None` if it must not be followed.

    What a request carries (credentials, arguments, a session) was meant for one origin and goes to no other;
    and a POST that became a GET would be another request.
    """
    if status not in _KEEPING_METHOD and method != "GET":
        return None
    return within_origin(url, location)

"""The former place of `page_request` and `sessions`."""

from fairlead.web.page_request import Answer, PageRequest, own_path, see
from fairlead.web.sessions import LoginSessions

__all__ = ["Answer", "LoginSessions", "PageRequest", "own_path", "see"]

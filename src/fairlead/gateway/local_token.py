"""The token of this machine's user."""

from collections.abc import Mapping

from fairlead.gateway.folder import local_token_file, require_plain
from fairlead.servers.http import own_token


def local_token(env: Mapping[str, str]) -> str:
    """The token; made up and kept, readable by its owner alone, the first time."""
    path = local_token_file(env)
    require_plain(path)
    if path.exists():
        path.chmod(0o600)
    return own_token(path)

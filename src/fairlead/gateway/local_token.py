"""The two tokens of this machine's user: one for agents, and one to decide with, which no agent is given."""

from collections.abc import Mapping
from pathlib import Path

from fairlead.config.masking import SECRETS
from fairlead.gateway.folder import decide_token_file, local_token_file, require_plain
from fairlead.servers.http import own_token


def local_token(env: Mapping[str, str]) -> str:
    """The agents' token; created the first time, readable by its owner alone."""
    return _kept(local_token_file(env))


def decide_token(env: Mapping[str, str]) -> str:
    """The token that approves calls and changes the gateway; created the first time, like the other."""
    return _kept(decide_token_file(env))


def _kept(path: Path) -> str:
    require_plain(path)
    if path.exists():
        path.chmod(0o600)
    token = own_token(path)
    SECRETS.learn(token)
    return token

"""The tokens of this machine's user: for agents, for each installed agent, and one to decide with."""

import stat
from collections.abc import Mapping
from pathlib import Path

from fairlead.config.files import read_text, write_atomic
from fairlead.config.masking import SECRETS
from fairlead.config.paths import STATE_HINT
from fairlead.config.principal import LOCAL
from fairlead.errors import ConfigUnwritable
from fairlead.gateway.folder import agent_token_file, decide_token_file, local_token_file, require_plain
from fairlead.gateway.tokens import digest_of, token_file
from fairlead.servers.http import own_token


def local_token(env: Mapping[str, str]) -> str:
    """The agents' token; created the first time, readable by its owner alone."""
    return _kept(local_token_file(env))


def decide_token(env: Mapping[str, str]) -> str:
    """The token that approves calls and changes the gateway; created the first time, like the other."""
    return _kept(decide_token_file(env))


def agent_token(env: Mapping[str, str], agent: str) -> str:
    """The token of one installed agent of this machine's user; made where there is none that opens."""
    path, named, name = agent_token_file(env, agent), token_file(env), _agent_token_name(agent)
    require_plain(path)
    kept = read_text(path).strip() if path.exists() else ""
    if kept and any(token.digest == digest_of(kept) for token in named.read()):
        return kept
    named.remove(name)
    made = named.add(name, principal=LOCAL)
    write_atomic(path, made + "\n", mode=0o600)
    return made


def has_agent_token(env: Mapping[str, str], agent: str) -> bool:
    """Is there a token of this agent? Removing one that is needed would lock the agent out."""
    return any(token.name == _agent_token_name(agent) for token in token_file(env).read())


def remove_agent_token(env: Mapping[str, str], agent: str) -> None:
    """Have the token of an agent that was uninstalled open nothing any more."""
    token_file(env).remove(_agent_token_name(agent))
    agent_token_file(env, agent).unlink(missing_ok=True)


def _agent_token_name(agent: str) -> str:
    return f"agent-{agent}"


def _kept(path: Path) -> str:
    require_plain(path)
    _make_private(path)
    token = own_token(path)
    SECRETS.learn(token)
    return token


def _make_private(path: Path) -> None:
    try:
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as exc:
        raise ConfigUnwritable(
            f"others can read `{path}`, and that cannot be changed: {exc.strerror}", hint=STATE_HINT
        ) from exc

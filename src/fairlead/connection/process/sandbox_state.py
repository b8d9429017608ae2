"""`codex/sandbox-state`: describes the sandbox of a server's process to servers that declare this extension.

Codex made this experimental capability: its client sends the request `codex/sandbox-state/update` with the
policy and the working folder. A sandbox belongs to a process, so that the state is sent once for each: before
the first call, and again after a change of the entry, which starts another process.
"""

from pathlib import Path
from typing import Any, Final

from fairlead.connection.process.sandbox import SandboxRequest

SANDBOX_CAPABILITY: Final = "codex/sandbox-state"
SANDBOX_METHOD: Final = "codex/sandbox-state/update"
SANDBOX_ANSWER_SECONDS: Final = 5.0
"""How long a start waits for the answer: a call must not come before the server knows its sandbox."""


def describe_sandbox(sandbox: SandboxRequest | None, cwd: Path) -> dict[str, Any]:
    """State of a server's sandbox, in the words of Codex's policies.

    Args:
        sandbox: The sandbox of its process; None where it has none.
        cwd: Its working folder.

    Returns:
        The parameters of the request: `danger-full-access` without a sandbox, `read-only` where nothing of
        the user's can be written, else `workspace-write`, whose folder is always one that can be written.
    """
    if sandbox is None:
        policy: dict[str, Any] = {"type": "danger-full-access"}
    elif not sandbox.write:
        policy = {"type": "read-only", "network_access": sandbox.network}
    else:
        policy = {
            "type": "workspace-write",
            "writable_roots": [str(path) for path in sandbox.write],
            "network_access": sandbox.network,
            # The sandbox has a `/tmp` of its own.
            "exclude_tmpdir_env_var": False,
            "exclude_slash_tmp": False,
        }
        if not any(cwd.is_relative_to(path) for path in sandbox.write):
            cwd = sandbox.write[0]
    return {"sandboxPolicy": policy, "codexLinuxSandboxExe": None, "sandboxCwd": str(cwd)}

"""The answer that a review preselects for a tool: what the user said earlier, else by its annotations."""

from fairlead.catalog.tools import ToolEntry
from fairlead.config.load import LoadedServer
from fairlead.config.models import ApprovalMode
from fairlead.policy.decision import Verdict, is_harmless
from fairlead.policy.findings import has_findings
from fairlead.policy.tool_names import escape_name


def suggest_answer(server: LoadedServer, entry: ToolEntry, mode: ApprovalMode | None) -> Verdict:
    """Answer to preselect. A tool with findings is denied, whatever was said about it.

    Args:
        server: Its server. Annotations count where it is trusted.
        entry: The tool.
        mode: Its mode, where that is the user's word about the tool as it is now.
    """
    if has_findings(entry):
        return "deny"
    if mode is not None and mode != "auto":
        return mode
    trusted = server.transport == "builtin" or (
        server.config is not None and server.config.trust == "trusted"
    )
    return "allow" if trusted and is_harmless(entry.definition) else "ask"


def is_named_by_user(server: LoadedServer, tool: str, pattern: str | None) -> bool:
    """Whether an approval mode names the very tool, in a file of the user's: as another agent's had it, say.

    A glob or a default may match what a server calls its tools, and a project's file came with a clone.
    """
    if pattern is None or pattern != escape_name(tool):
        return False
    return server.definition.origin(("approval", "tools", pattern)).layer.name != "project"

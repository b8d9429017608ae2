"""The names that programs may rely on: these and no others. A change here is a change of the public API."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import fairlead
from fairlead import errors, events

PUBLIC = {
    "fairlead": """
    ApprovalAnswer ApprovalRequest ApprovalRequired ArgumentsInvalid AuthRequired BrowserOpenFailed
    CallDenied CallFailed CallRejected CallTimedOut Callbacks CatalogTool ChatModel
    ClientRegistrationRequired Config ConfigError ConfigInvalid ConfigUnreadable ConfigUnwritable
    ConnectFailed ConnectionLost ConsentRequired CustomCapabilities Delivery ElicitationComplete
    ElicitationRequest Event EventStream EventsDropped FairleadError Form FormAnswer FormRequest
    GatewayGone Host HostOpening IssuerUnavailable ListFailed ListenFailed Listing LoadedConfig
    LoadedServer LockBusy LockLost LoginFailed McpServer McpStartupComplete McpStartupUpdate
    McpToolCallBegin McpToolCallEnd McpToolCallProgress McpToolsChanged ModelFailed ModelUnavailable
    OffersChanged Operator Problem ProviderTools Remedy ReplicaFailed Reply ResourceUpdated ResultInvalid
    RootsProvider RunCancelled RunFinished RunLimits SampleRequest SearchOutcome SecretUnavailable
    ServerError ServerInfo ServerLogged ServerState ServerStatus ShownUrl StartupStatus StateChanged
    StepFinished StepRetried StoreError StoreUnavailable Subscriber SyncHost SyncIterator
    SyncProviderTools SyncToolset TextDelta TokenRefused ToolCalled ToolContext ToolDefinition ToolEntry
    ToolFailed ToolKey ToolModel ToolResult ToolReturned ToolsQuarantined Toolset UnknownArtifact
    UnknownBundle UnknownCall UnknownServer UnknownTool UrlCompletionListener UrlRequest Usage
    ValueTooLarge VersionConflict WaitTimedOut WouldBlock WrongType discover_config_path load_config open
    parse_config run_task
    """,
    "fairlead.adapters": """
    AdaptedTool anthropic_result export_servers gemini_result openai_arguments openai_messages
    openai_result to_anthropic to_gemini to_langchain to_openai
    to_pydantic_ai
    """,
    "fairlead.testing": """
    FakeClock Link LoopWatchdog ScriptedServer open_host watch_loop write_tree
    """,
}

ALIASES = {"ApprovalAnswer", "Delivery", "Event", "ServerState", "StartupStatus"}
"""Names of types made of others, which have no name of their own at run time."""


@pytest.mark.parametrize("package", PUBLIC)
def test_a_public_package_has_exactly_these_names(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == PUBLIC[package].split()
    for name in module.__all__:
        assert name in ALIASES or getattr(module, name).__name__ == name


def test_all_errors_and_events_are_public() -> None:
    for module in (errors, events):
        for name, value in inspect.getmembers(module, inspect.isclass):
            assert value.__module__ != module.__name__ or name in fairlead.__all__


def test_documentation_imports_from_public_packages_alone() -> None:
    root = Path(__file__).parent.parent
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        for package in re.findall(r"from (fairlead[\w.]*) import", page.read_text()):
            assert package in PUBLIC, f"{page.name} imports from {package}"

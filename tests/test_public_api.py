"""The names that programs may rely on: these and no others. A change here is a change of the public API."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import fairlead
from fairlead import errors, events
from tests.tools.reference.python_api import (
    PACKAGES,
    is_shown,
    library_page,
    private_types,
    shown_class,
    without_private_options,
)
from tests.tools.reference.sources import Found, find

PUBLIC = {
    "fairlead": """
    Ability AnyTool ApprovalAnswer ApprovalMode ApprovalRequest ApprovalRequired ArgumentsInvalid AuthFlow
    AuthProvider AuthRequired BrowserOpenFailed Bundle CallDenied CallFailed CallOutcome CallRejected
    CallTimedOut Callbacks Catalog CatalogTool ChatModel Choice ChoiceField ChoicesField
    ClientRegistrationRequired Config ConfigError ConfigInvalid ConfigUnreadable ConfigUnwritable
    ConnectFailed ConnectionLost ConsentRequired CustomCapabilities Delivery ElicitationComplete
    ElicitationRequest Event EventStream EventsDropped FairleadError Form FormAnswer FormContent
    FormProblems FormRequest FormValue GatewayGone Handler Host HostOpening IssuerUnavailable ListFailed
    ListenFailed Listing LoadedConfig LoadedServer LockBusy LockLost LoginFailed MatchReason McpServer
    McpStartupComplete McpStartupUpdate McpToolCallBegin McpToolCallEnd McpToolCallProgress
    McpToolsChanged Message ModelFailed ModelUnavailable NumberField OffersChanged OnProgress Operator
    Problem Provider ProviderTools Remedy ReplicaFailed Reply ResourceUpdated ResultInvalid RootsProvider
    RunCancelled RunEvent RunFinished RunLimits RunOutcome SampleRequest SearchHit SearchOutcome
    SecretUnavailable ServedEndpoint ServerError ServerInfo ServerLogged ServerState ServerStatus Severity
    ShownUrl Skill Skills StartupStatus StateChanged StepFinished StepRetried StoreError StoreUnavailable
    Subscriber SyncHost SyncIterator SyncProviderTools SyncSkills SyncToolset TextDelta TextField
    TextFormat TokenRefused ToolCalled ToolContext ToolDefinition ToolEntry ToolFailed ToolKey ToolModel
    ToolResult ToolReturned ToolsQuarantined Toolset UnknownArtifact UnknownBundle UnknownCall
    UnknownServer UnknownTool UrlAnswer UrlCompletionListener UrlRequest Usage ValueTooLarge
    VersionConflict WaitTimedOut WouldBlock WrongType YesNoField discover_config_path load_config open
    parse_config run_task
    """,
    "fairlead.adapters": """
    AdaptedTool Caller ConversionNote ExportedDocument FairleadTool Loss SchemaChange anthropic_result
    gemini_result openai_arguments openai_messages openai_result to_anthropic to_gemini to_langchain
    to_openai to_pydantic_ai
    """,
    "fairlead.testing": """
    FakeClock Link LoopWatchdog ScriptedServer Tree open_host watch_loop write_tree
    """,
}

ALIASES = {
    "Ability", "AnyTool", "ApprovalAnswer", "ApprovalMode", "AuthFlow", "CallOutcome", "Caller",
    "Delivery", "Event", "FormValue", "Handler", "Loss", "Message", "OnProgress", "Provider",
    "RunEvent", "RunOutcome", "ServerState", "Severity", "StartupStatus", "TextFormat",
    "Tree", "UrlAnswer",
}  # fmt: skip
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


INTERNAL_FIELDS = {
    "Bundle": {"servers"},
    "Config": {
        *("artifacts", "audit", "bundles", "defaults", "docs", "extensions", "gateway", "model", "policy"),
        *("search", "servers", "store", "tools"),
    },
    "Listing": {"rejected", "repairs"},
    "LoadedConfig": {"merged", "rules"},
    "LoadedServer": {"config", "definition", "rules", "ruling"},
    "Skill": {"resources"},
}
"""Fields of public classes whose types are not public. Those of `Config` are described with its file."""
INTERNAL_METHODS = {
    "Catalog": {"findings", "index", "meaning"},
    "Host": {
        *("catalog", "close_with", "configured", "end", "propose", "reach", "statuses_besides", "tracer"),
        "wait_for_catalog",
    },
    "LoadedConfig": {"layers", "origin"},
    "LoadedServer": {
        *("admin_rules", "consent", "consent_to", "extension_folder", "resolve", "resolve_target", "source"),
        "working_folder",
    },
    "ToolEntry": {"derive"},
    "Toolset": {
        *("error_result", "find", "login_hint", "note_call", "rank", "unavailable_to_model"),
        *("wait_until_settled", "waiting_for_login", "without_images"),
    },
}
"""Methods and properties that are of use to Fairlead alone."""


def public_definitions() -> list[Found]:
    return [find(package, name) for package in PACKAGES for name in importlib.import_module(package).__all__]


def test_public_functions_and_methods_take_and_return_public_types_alone() -> None:
    for found in public_definitions():
        shown = shown_class(found).body if isinstance(found.node, ast.ClassDef) else [found.node]
        for each in shown:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
                signature = without_private_options(found, each)
                assert private_types(found, signature) == set(), f"{found.module}: {found.name}, {each.name}"


def hidden_members(*kinds: type[ast.stmt]) -> dict[str, set[str]]:
    """The documented members of public classes that the reference does not show."""
    hidden: dict[str, set[str]] = {}
    for found in public_definitions():
        for each in found.node.body if isinstance(found.node, ast.ClassDef) else ():
            match each:
                case ast.AnnAssign(target=ast.Name(id=name)):
                    is_documented = True
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    is_documented = ast.get_docstring(each) is not None
                case _:
                    continue
            if (
                isinstance(each, kinds)
                and is_documented
                and not name.startswith("_")
                and not is_shown(found, each)
            ):
                hidden.setdefault(found.name, set()).add(name)
    return hidden


def test_every_field_of_a_public_class_is_shown_or_known_to_be_internal() -> None:
    assert hidden_members(ast.AnnAssign) == INTERNAL_FIELDS


def test_every_method_of_a_public_class_is_shown_or_known_to_be_internal() -> None:
    assert hidden_members(ast.FunctionDef, ast.AsyncFunctionDef) == INTERNAL_METHODS


def test_the_reference_shows_what_a_host_is_for_and_not_what_holds_it_together() -> None:
    page = library_page()
    for name in ("aclose", "call", "connect", "events", "open", "status", "tools_of", "toolset"):
        assert f"#### Host.{name}\n" in page
    for name in INTERNAL_METHODS["Host"]:
        assert f"#### Host.{name}\n" not in page
    assert "backing" not in page

"""Models of the configuration file: frozen and strict, so that an unknown field is an error."""

from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fairlead.config.field_types import (
    AllowTools,
    Arguments,
    Bytes,
    Command,
    HeaderName,
    HeaderValue,
    Milliseconds,
    PrincipalName,
    ServerId,
    ServerPattern,
    StrictModel,
    Text,
    Texts,
    ToolPattern,
    VariableName,
    WebUrl,
)
from fairlead.config.oauth_models import OAuthSettings
from fairlead.config.state_models import ArtifactSettings, AuditSettings, StoreSettings

BuiltinName = Literal["repo", "docs", "edit", "shell"]
"""The servers that come with Fairlead."""
Trust = Literal["trusted", "untrusted"]
ApprovalMode = Literal["allow", "ask", "auto", "deny"]
Sharing = Literal["auto", "shared", "session", "call"]
BundleMode = Literal["direct", "meta", "auto"]

AGENT_ID = "agent"
"""The id of the gateway's agent, which has no entry among the servers."""
TARGETS = ("command", "url", "builtin", "extension")
"""Fields with a server's target. An entry with none of them overlays a lower layer's entry."""


class ApprovalSettings(StrictModel):
    """Approval modes of a server: a default, and exceptions by tool."""

    default: ApprovalMode | None = Field(default=None, description="The mode of every tool not named below.")
    tools: dict[Text, ApprovalMode] = Field(default={}, description="Modes by tool name or glob.")


class SandboxSettings(StrictModel):
    """Sandbox of the server's process: no home, no sockets, no network unless allowed."""

    kind: Literal["bwrap"] = Field(default="bwrap", description="What makes it: bubblewrap, on Linux.")
    network: bool = Field(default=False, description="May the process use the network?")
    read: Texts = Field(default=(), description="Paths it may read besides the system and its own program.")
    write: Texts = Field(
        default=(),
        description="Paths it may write to; a cache too, such as `~/.npm` for npx or `~/.cache/uv` for uvx.",
    )


class SamplingSettings(StrictModel):
    """Let a server request completions from your model, where the program has one."""

    max_tokens: Annotated[int, Field(ge=1)] = Field(
        default=20_000, description="Most tokens it may use in one run."
    )


LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class ServerLimits(StrictModel):
    """Timeouts and sizes, for one server or, in `defaults`, for all."""

    lazy: bool = Field(default=True, description="Start on first use rather than with the host.")
    sharing: Sharing = Field(
        default="auto",
        description="One connection for all clients of a gateway, one per session, or one per call.",
    )
    startup_timeout_ms: Milliseconds = Field(default=30_000, description="Time to become ready.")
    request_timeout_ms: Milliseconds = Field(
        default=30_000, description="Time without an answer or progress before a request fails."
    )
    max_request_ms: Milliseconds = Field(default=600_000, description="Longest time a request may take.")
    idle_stop_ms: Milliseconds | None = Field(
        default=None, description="Stop after this long without a request."
    )
    tools_ttl_ms: Milliseconds = Field(
        default=300_000, description="How long a list of tools counts as fresh."
    )
    max_result_bytes: Bytes = Field(default=100_000, description="Result budget of a model, in bytes.")
    max_list_items: Annotated[int, Field(ge=1)] = Field(
        default=10_000, description="How many tools, resources or prompts a server may list."
    )
    max_list_bytes: Bytes = Field(
        default=16 * 1024 * 1024,
        description="Most bytes of all lists of a server together; the rest is left out.",
    )
    max_message_bytes: Bytes = Field(
        default=8 * 1024 * 1024, description="The largest message a server may send."
    )


class Server(ServerLimits):
    """Fields of every server, with any transport."""

    enabled: bool = Field(default=True, description="Whether it is used; false keeps the entry, unused.")
    required: bool = Field(default=False, description="Fail the start when this server is not ready.")
    trust: Trust = Field(default="untrusted", description="Whether its annotations and descriptions count.")
    allow_tools: AllowTools | None = Field(
        default=None,
        description="Tools that may be called, by name or glob. An untrusted server needs this list.",
    )
    deny_tools: Texts = Field(default=(), description="Tools that may not be called. Deny beats allow.")
    check_arguments: bool = Field(
        default=True,
        description="Refuse arguments that do not fit a tool's schema; off leaves that to the server.",
    )
    approval: ApprovalMode | ApprovalSettings | None = Field(
        default=None, description="Approval mode of its tools."
    )
    description: str | None = Field(default=None, description="What this server is for; helps tool search.")
    elicitation: bool | None = Field(
        default=None,
        description="Elicitations it may send. If not set: form and URL if trusted, else URL only.",
    )
    sampling: SamplingSettings | None = Field(
        default=None, description="Whether it may use your model; not if not set."
    )
    roots: Texts = Field(
        default=(), description="Folders it may work in: its MCP roots; all that a built-in server can read."
    )
    log_level: LogLevel | None = Field(default=None, description="The lowest level it shall log to us.")


class StdioServer(Server):
    """Launch a local process and speak over its stdin and stdout."""

    transport: Literal["stdio"] = Field(default="stdio", description="Known by `command`; may be left out.")
    command: Text = Field(description="The program. Run directly, never through a shell.")
    args: Arguments = Field(default=(), description="Its arguments, one text each.")
    cwd: Text | None = Field(default=None, description="Relative to the folder of this file.")
    env: dict[VariableName, str] = Field(
        default={}, description="Variables the process gets besides a short safe list."
    )
    sandbox: SandboxSettings | None = Field(
        default=None, description="Run its process in a sandbox, with what is named here."
    )


class RemoteServer(Server):
    """Connect to a URL: Streamable HTTP, or the older HTTP+SSE where `transport` is `sse`."""

    transport: Literal["http", "sse"] = Field(
        default="http", description="`http` is Streamable HTTP, `sse` the older HTTP+SSE."
    )
    url: WebUrl = Field(description="The URL of its MCP endpoint.")
    headers: dict[HeaderName, HeaderValue] = Field(default={}, description="Sent with every request.")
    headers_helper: Command | None = Field(default=None, description="A command (argv) that prints headers.")
    oauth: Literal[False] | OAuthSettings | None = Field(
        default=None, description="How to log in, where discovery is not enough; false: never."
    )
    auth_provider_id: Text | None = Field(
        default=None, description="A provider passed in when the host is opened."
    )
    account: Text | None = Field(default=None, description="Which of several logins for one URL.")
    login: Literal["own", "shared"] = Field(
        default="own",
        description="Whose login a gateway's principals use: each their own, or all of them yours.",
    )


class BuiltinServer(Server):
    """A server that comes with Fairlead and runs in its process."""

    transport: Literal["builtin"] = Field(
        default="builtin", description="Known by `builtin`; may be left out."
    )
    builtin: BuiltinName = Field(
        description="Which one: `repo` searches and reads files, `docs` reads documentation, `edit` changes"
        " files, `shell` runs commands in a sandbox."
    )
    sandbox: SandboxSettings | None = Field(
        default=None, description="For `shell`, whose commands always run in a sandbox: what they may use."
    )

    @model_validator(mode="after")
    def _only_commands_have_a_sandbox(self) -> Self:
        if self.sandbox is not None and self.builtin != "shell":
            raise ValueError("`sandbox` is for servers that start processes: of the built-in ones, `shell`")
        return self


class ExtensionServer(Server):
    """Run the Python files of a folder in a process of their own: each registers tools."""

    transport: Literal["extension"] = Field(
        default="extension", description="Known by `extension`; may be left out."
    )
    extension: Text = Field(description="The folder. Relative to the folder of this file.")
    env: dict[VariableName, str] = Field(
        default={}, description="Variables the process gets besides a short safe list."
    )
    sandbox: SandboxSettings | None = Field(
        default=None, description="Run its process in a sandbox, with what is named here."
    )


SERVER_MODELS: dict[str, type[Server]] = {
    "stdio": StdioServer,
    "http": RemoteServer,
    "sse": RemoteServer,
    "builtin": BuiltinServer,
    "extension": ExtensionServer,
}


CHILD_TRANSPORTS = ("stdio", "extension")
"""Transports of servers that are processes of ours."""


def transport_of(entry: Any) -> str | None:  # noqa: ANN401 - this is where unknown data is first looked at
    """Transport of an entry: what it names, else by its target."""
    if not isinstance(entry, dict):
        return getattr(entry, "transport", None)
    fields = cast("dict[str, object]", entry)
    if "transport" in fields:
        named = fields["transport"]
        return named if isinstance(named, str) else None
    for target, transport in zip(TARGETS, ("stdio", "http", "builtin", "extension"), strict=True):
        if target in fields:
            return transport
    return None


def _model_of(entry: Any) -> str | None:  # noqa: ANN401 - as above
    model = SERVER_MODELS.get(transport_of(entry) or "")
    return model.__name__ if model else None


ServerConfig = Annotated[
    Annotated[StdioServer, Tag("StdioServer")]
    | Annotated[RemoteServer, Tag("RemoteServer")]
    | Annotated[BuiltinServer, Tag("BuiltinServer")]
    | Annotated[ExtensionServer, Tag("ExtensionServer")],
    Discriminator(_model_of),
]


class BundleServer(StrictModel):
    """Tools of one server that a bundle selects."""

    allow_tools: AllowTools | None = Field(
        default=None,
        description="Its tools in the bundle, by name or glob; all if not set. In your own file it is also"
        " the list that an untrusted server needs, where the server's entry has none.",
    )
    deny_tools: Texts = Field(default=(), description="Its tools that are left out of the bundle.")
    mode: BundleMode | None = Field(
        default=None, description="How its tools are offered; as the bundle's if not set."
    )


class ToolDelivery(StrictModel):
    """How tools are offered to a model."""

    mode: BundleMode = Field(
        default="auto", description="Tools directly, behind meta-tools, or by their cost."
    )
    always_direct: Texts = Field(default=(), description="Tools offered directly in every mode.")
    token_budget: Annotated[int, Field(ge=0)] = Field(
        default=8_000, description="With `auto`: most tokens of definitions before meta-tools take over."
    )
    resources: bool = Field(default=True, description="Whether a model can read resources.")
    prompts: bool = Field(default=False, description="Whether a model can use prompts.")


class ToolSettings(ToolDelivery):
    """How all tools are offered, where no bundle is chosen."""

    names: Literal["stable", "readable"] = Field(
        default="stable", description="`mcp_<server>_<tool>_<hash>`, or `server__tool` where that is free."
    )
    search: Literal["words", "meaning"] = Field(
        default="words", description="`meaning` also finds synonyms; needs `fairlead[search]`."
    )


class EmbeddingSettings(StrictModel):
    """A model that compares texts by meaning, over an OpenAI-compatible API: Ollama, vLLM, a provider."""

    url: WebUrl = Field(description="The URL of the API, such as `http://localhost:11434/v1`.")
    model: Text = Field(description="The name of the model in the API.")
    api_key: Text | None = Field(
        default=None, description="Its key, as a reference such as `${NAME}`; none for most local servers."
    )


class SearchSettings(StrictModel):
    """How tools are searched."""

    memory: bool = Field(
        default=True,
        description="Remember which tools searches led to, for each principal, to find them sooner.",
    )
    embeddings: EmbeddingSettings | None = Field(
        default=None, description="Search by meaning with this model, in addition to words."
    )


class Bundle(ToolDelivery):
    """A named selection of servers and tools, for one agent or one purpose."""

    servers: dict[ServerId, BundleServer] = Field(
        min_length=1, description="Its servers by id; `{}` takes all tools of one."
    )
    description: str | None = Field(default=None, description="What it is for; shown in lists of bundles.")
    names: Literal["plain"] | None = Field(
        default=None,
        description="`plain` leaves tools the names their server gave them: for one server alone.",
    )

    @field_validator("names")
    @classmethod
    def _plain_names_are_of_one_server(
        cls, names: Literal["plain"] | None, info: ValidationInfo
    ) -> Literal["plain"] | None:
        if names == "plain" and len(info.data.get("servers", ())) > 1:
            raise ValueError("the tools of several servers cannot all keep their names: leave it out")
        return names


class PolicyRule(StrictModel):
    """One rule about calls. The strictest that matches wins: deny, then ask, then allow."""

    action: Literal["allow", "ask", "deny"] = Field(description="What becomes of the calls that match.")
    server: ServerPattern | None = Field(
        default=None, description="Server id or glob; every server if not set."
    )
    tool: ToolPattern | None = Field(default=None, description="Tool name or glob; every tool if not set.")
    principal: PrincipalName | None = Field(
        default=None,
        description="Whose calls: a principal, a subject of the gateway's OAuth issuer, or `group:NAME` for"
        " the members of a group (a claim of their token), by name or glob; all calls if not set.",
    )
    arguments: dict[Text, Text] = Field(
        default={}, description="Argument names and globs their values must match."
    )
    reason: Text | None = Field(default=None, description="Shown with a refusal or an approval request.")


class PolicySettings(StrictModel):
    """Rules about calls to all servers."""

    approval: ApprovalMode | None = Field(default=None, description="The mode of servers without their own.")
    rules: Annotated[tuple[PolicyRule, ...], Strict(strict=False)] = Field(
        default=(), description="Rules about calls, by server, tool, principal and arguments."
    )


class DocsSettings(StrictModel):
    """The built-in documentation reader."""

    allow: Texts = Field(
        default=(), description="Domains it may read: `docs.python.org`, `*.example.org`, with a path."
    )


class GatewayOAuth(StrictModel):
    """Access tokens of a team's own OAuth issuer, accepted besides the gateway's own."""

    issuer: WebUrl = Field(description="The issuer, as its metadata and tokens spell it.")
    audience: Text = Field(
        description="The audience of tokens: the URL of the gateway, as its clients know it."
    )
    jwks_url: WebUrl | None = Field(
        default=None, description="The URL of its keys; from its metadata if not set."
    )
    required_scopes: Texts = Field(default=(), description="Scopes a token must have.")
    principal_claim: Text = Field(default="sub", description="The claim that identifies the principal.")
    groups_claim: Text = Field(
        default="groups",
        description="The claim that lists the groups of the principal; with dots, a path into objects"
        " (`realm_access.roles`).",
    )
    groups_required: bool | None = Field(
        default=None,
        description="Refuse tokens without that claim? By default where a rule or bundle names a group. If"
        " false, such a token is in no group, and no rule that names one is about it.",
    )
    bundles: dict[Text, Text | Texts] = Field(
        default={},
        description="Which bundles a principal may use, by `group:NAME` or by subject, name or glob; if set,"
        " all others are refused.",
    )
    decide_scope: Text | None = Field(
        default=None,
        description="The OAuth scope whose bearers may approve their own calls; without one, none may.",
    )


class AgentSettings(StrictModel):
    """The gateway's agent: your model, at work for clients with the tools that each of them may call."""

    max_steps: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=50, description="Most steps of the model in one call; a client may ask for fewer."
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Most tokens of one call; a client may ask for fewer."
    )


class GatewaySettings(StrictModel):
    """One endpoint in front of all servers."""

    host: Text = Field(default="127.0.0.1", description="The address it listens on; `0.0.0.0` for all.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(default=8130, description="0 takes any free port.")
    names: Texts = Field(
        default=(),
        description="Other names clients reach it by: `gateway.example.org`, with a port if need be.",
    )
    public_url: WebUrl | None = Field(
        default=None,
        description="Where people and clients reach it, behind a balancer or proxy, such as"
        " `https://gateway.example.org`: for the links that it gives them; its name is one of `names`, too.",
    )
    replica_address: Text | None = Field(
        default=None,
        description="Where other replicas of this gateway reach this one, with a shared store, such as"
        " `http://${POD_IP}:8130`; the address it listens on if not set.",
    )
    drain_ms: Annotated[int, Field(ge=0, le=600_000)] = Field(
        default=0,
        description="How long a gateway that is to stop still serves what comes, while `/readyz` says that it"
        " is not ready: as long as the balancer takes to see that.",
    )
    oauth: GatewayOAuth | None = Field(default=None, description="Accept tokens of your own issuer too.")
    requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        default=60_000, description="Requests per minute of one principal; null for no limit."
    )
    startup_wait_ms: Milliseconds = Field(
        default=5_000,
        description="How long a client's first list waits for servers that were never listed before.",
    )
    max_structured_bytes: Annotated[int, Field(ge=0)] = Field(
        default=4 * 1024 * 1024,
        description="The largest structured content that a client gets whole, apart from `max_result_bytes`."
        " For more it gets an error with a preview and the handle of an artifact.",
    )
    mode: BundleMode = Field(
        default="auto",
        description="How agents are offered tools: directly, behind meta-tools, or by their cost.",
    )
    approval: ApprovalMode | None = Field(
        default=None,
        description="Over the gateway, the mode of tools that no rule and no other mode is about.",
    )
    approvals: Literal["person", "client"] = Field(
        default="person",
        description="Who answers approvals: the user, in the dashboard or with `fairlead approvals`; "
        "or the client that calls, whose answers then count as its user's.",
    )
    agent: AgentSettings | None = Field(
        default=None,
        description="Offer the model of `model` as the tools `agent.run` and `agent.reply`: `{}` is enough.",
    )


class ModelSettings(StrictModel):
    """The model that `fairlead run` uses."""

    provider: Literal["openai", "anthropic"] = Field(
        description="The API it has: OpenAI's chat API (as most local servers), or Anthropic's."
    )
    name: Text = Field(description="Its name in the API.")
    base_url: WebUrl | None = Field(
        default=None,
        description="The URL of the API, such as `http://localhost:11434/v1`; the provider's if not set.",
    )
    api_key: Text | None = Field(
        default=None,
        description="Use a reference such as `${NAME}`; not needed for the usual variable and no `base_url`.",
    )
    max_output_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The longest answer in one step."
    )
    vision: bool | None = Field(
        default=None, description="Whether it takes images; by its name, for known models, if not set."
    )
    request_timeout_ms: Milliseconds = Field(
        default=300_000, description="Time without output before a step fails."
    )


class Config(StrictModel):
    """A whole configuration."""

    schema_: str | None = Field(
        default=None, alias="$schema", description="Where the JSON Schema is, for editors."
    )
    version: Literal[1] = Field(default=1, description="The version of the file's format.")
    servers: dict[ServerId, ServerConfig] = Field(default={}, description="The MCP servers, by id.")
    extensions: Texts = Field(
        default=(),
        description="Folders whose Python files register tools: each is a server, named like the folder.",
    )
    bundles: dict[ServerId, Bundle] = Field(
        default={}, description="Selections of servers and tools, by name: `/mcp/NAME` of the gateway."
    )
    policy: PolicySettings = Field(
        default_factory=PolicySettings.model_construct,
        description="What calls of all servers may do.",
    )
    defaults: ServerLimits = Field(
        default_factory=ServerLimits.model_construct,
        description="Timeouts and sizes of the servers whose entries set none.",
    )
    tools: ToolSettings = Field(
        default_factory=ToolSettings.model_construct, description="How models are offered tools."
    )
    search: SearchSettings = Field(
        default_factory=SearchSettings.model_construct, description="How tools are found."
    )
    docs: DocsSettings = Field(
        default_factory=DocsSettings.model_construct,
        description="What the built-in documentation reader may read.",
    )
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings.model_construct,
        description="The endpoint that `fairlead gateway` puts in front of all servers.",
    )
    store: StoreSettings = Field(
        default_factory=StoreSettings.model_construct,
        description="Where state is; the address of a Redis alone is short for `url`.",
    )
    audit: AuditSettings = Field(
        default_factory=AuditSettings.model_construct, description="The log of calls and edits."
    )
    artifacts: ArtifactSettings = Field(
        default_factory=ArtifactSettings.model_construct,
        description="Where the rest of results is that are too large for a model.",
    )
    model: ModelSettings | None = Field(
        default=None, description="The model of `fairlead run`, the console and the gateway's agent."
    )
    allow_literal_secrets: bool = Field(
        default=False,
        description="Accept secrets in plain text: a project's server with one is refused otherwise.",
    )

"""Selections: the servers and tools of a bundle, or of all enabled servers, for one principal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from fairlead.catalog.tools import ToolEntry
from fairlead.config.load import LoadedConfig
from fairlead.config.models import ApprovalMode, BundleMode, EmbeddingSettings
from fairlead.config.principal import LOCAL_CALLER, GroupedPrincipal
from fairlead.policy.decision import BundleFilter, CallPolicy, Decision
from fairlead.policy.tool_names import matches_any

CatalogKey = tuple[str | None, frozenset[tuple[str, str]], ApprovalMode | None, frozenset[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A choice of servers and tools, and how they are handed to a model."""

    name: str | None = None
    """The bundle; None for everything."""
    servers: Mapping[str, BundleFilter] | None = None
    left_out: frozenset[str] = frozenset()
    """Servers that are excluded, even where the bundle names them."""
    mode: BundleMode = "auto"
    modes: Mapping[str, BundleMode] = field(default_factory=dict[str, BundleMode])
    """Delivery of tools (direct or behind meta-tools) of servers that differ from the rest."""
    always_direct: tuple[str, ...] = ()
    token_budget: int = 0
    resources: bool = True
    prompts: bool = False
    plain_names: bool = False
    """Whether its tools keep their own names, without a prefix."""
    search: Literal["words", "meaning"] = "words"
    remembers: bool = True
    """Whether it is remembered which tools searches led to."""
    embeddings: EmbeddingSettings | None = None
    """The model to search by meaning with."""
    approval: ApprovalMode | None = None
    """The mode of tools that no rule and no other mode is about, where the surface is configured with one."""
    caller: GroupedPrincipal = LOCAL_CALLER
    """The principal it is for, since rules can hide tools from principals and groups."""
    rules_for_caller: frozenset[tuple[str, str]] = frozenset()
    """The rules that name the caller: what they do, and how they spell its principal or group."""

    @property
    def catalog_key(self) -> CatalogKey:
        """The cache key of its catalog: principals with the same rules share one."""
        return self.name, self.rules_for_caller, self.approval, self.left_out

    def decide(self, policy: CallPolicy, tool: str, entry: ToolEntry | None) -> Decision:
        """The decision of policy about a tool, with arguments that no rule matches.

        Lists and explanations go by this, with all that `Proposal.decide` goes by when a call is made.
        """
        bundle_filter = self.bundle_filter(policy.server.server_id)
        return policy.decide(tool, bundle_filter, entry=entry, caller=self.caller, default=self.approval)

    def has(self, server_id: str) -> bool:
        """Whether this server is part of it."""
        return server_id not in self.left_out and (self.servers is None or server_id in self.servers)

    def bundle_filter(self, server_id: str) -> BundleFilter | None:
        """The bundle's effect on a server; None if all its tools are included."""
        return self.servers.get(server_id) if self.servers is not None else None

    def keeps_direct(self, tool: str) -> bool:
        """Whether a tool is given directly in every mode."""
        return matches_any(tool, self.always_direct)


def select(config: LoadedConfig, name: str | None, caller: GroupedPrincipal = LOCAL_CALLER) -> Selection:
    """The selection of a bundle, or of everything, for a caller. A bundle of a project file only narrows.

    Args:
        config: The configuration.
        name: The bundle; all enabled servers if None.
        caller: The principal and its groups, which rules may name.

    Raises:
        UnknownBundle: No bundle has that name.
    """
    admin = (loaded for server in config.servers.values() for loaded in server.admin_rules)
    for_caller = frozenset(
        (loaded.rule.action, loaded.rule.principal)
        for loaded in (*config.rules, *admin)
        if loaded.rule.principal is not None and loaded.is_for(caller)
    )
    return replace(_select(config, name), caller=caller, rules_for_caller=for_caller)


def filter_in_force(config: LoadedConfig, bundle: str, server_id: str) -> BundleFilter | None:
    """A bundle's effect on a server as it is configured now; None where either is not there any more."""
    return select(config, bundle).bundle_filter(server_id) if bundle in config.config.bundles else None


def _select(config: LoadedConfig, name: str | None) -> Selection:
    if name is None:
        tools = config.config.tools
        return Selection(
            mode=tools.mode,
            always_direct=tools.always_direct,
            token_budget=tools.token_budget,
            resources=tools.resources,
            prompts=tools.prompts,
            search=tools.search,
            remembers=config.config.search.memory,
            embeddings=config.config.search.embeddings,
        )
    bundle = config.bundle(name)
    origin = config.origin("bundles", name)
    is_foreign = origin is not None and origin.layer.name == "project"
    servers = {
        server_id: BundleFilter(
            bundle=name,
            allow_tools=taken.allow_tools,
            deny_tools=taken.deny_tools,
            grants=not is_foreign,
            origin=replace(origin, path=(*origin.path, "servers", server_id)) if origin else None,
        )
        for server_id, taken in bundle.servers.items()
    }
    if is_foreign:
        # A project file chooses among what there is. How that is handed to a model stays the user's choice.
        everything = _select(config, None)
        return replace(
            everything,
            name=name,
            servers=servers,
            resources=everything.resources and bundle.resources,
            prompts=everything.prompts and bundle.prompts,
        )
    return Selection(
        name=name,
        servers=servers,
        mode=bundle.mode,
        modes={server_id: taken.mode for server_id, taken in bundle.servers.items() if taken.mode},
        always_direct=bundle.always_direct,
        token_budget=bundle.token_budget,
        resources=bundle.resources,
        prompts=bundle.prompts,
        plain_names=bundle.names == "plain",
        search=config.config.tools.search,
        remembers=config.config.search.memory,
        embeddings=config.config.search.embeddings,
    )

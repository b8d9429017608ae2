"""Limits and times of a gateway."""

from dataclasses import dataclass

from fairlead.config.models import BundleMode
from fairlead.gateway.pending_approvals import PATIENCE_SECONDS


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayOptions:
    """Options of a gateway: limits, times, and what overrides its configuration."""

    mode: BundleMode | None = None
    """How tools are presented to models; overrides the configuration."""
    approval_seconds: float = PATIENCE_SECONDS
    session_idle_seconds: float = 1_800.0
    """After how long without a request a client is taken to be gone."""
    max_sessions: int = 1_000
    max_sessions_of_principal: int = 200
    """Of more, the principal's own oldest session that lies idle is ended."""
    max_sessions_of_token: int = 100
    """Of more, the token's own oldest session that lies idle is ended: one agent leaves room for the others
    of its principal. Tokens of an issuer, which change, count as one token of their principal."""
    max_streams_of_principal: int = 200
    """How many streams of `subscriptions/listen` one principal may have open."""
    max_streams_of_token: int = 100
    grace_seconds: float = 5.0
    """How long requests under way may go on when the gateway ends."""
    agent: bool = False
    """Whether clients get the gateway's agent, also where `gateway.agent` is not set."""

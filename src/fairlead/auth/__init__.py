"""OAuth for MCP servers: discovery, client registration, login flow, token endpoint, vault and broker.

The host uses `broker.Broker` for tokens and `flow` for logins.
"""

"""JSON-RPC messages as bytes, and the stdio transport of what we serve: the gateway, first-party servers."""

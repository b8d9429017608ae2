"""First-party MCP servers, and what is needed to write more of them."""

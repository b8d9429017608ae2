"""The framework of first-party MCP servers: typed tools, the server, and its HTTP transport."""

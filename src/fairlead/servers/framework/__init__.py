"""What first-party MCP servers are written with."""

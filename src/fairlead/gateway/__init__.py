"""One MCP endpoint in front of all servers of a host."""

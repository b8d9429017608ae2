"""The ways to an MCP server: stdio, Streamable HTTP, HTTP+SSE, in memory. Callers use `factory`."""

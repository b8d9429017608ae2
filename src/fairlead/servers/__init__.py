"""First-party MCP servers (`repo`, `docs`), and the framework they are written with."""

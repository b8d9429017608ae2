"""First-party MCP servers (`repo`, `docs`, `edit`, `shell`, extensions), and their framework.

The host opens them with `builtin.open_builtin_server`; programs write their own with `framework`.
"""

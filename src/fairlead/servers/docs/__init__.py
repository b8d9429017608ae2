"""The built-in `docs` server: pages of allowed sites as Markdown."""

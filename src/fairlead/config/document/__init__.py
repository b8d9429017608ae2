"""Configuration files: `jsonc` (parser with positions), `edit` (of text), `files` (locks, atomic writes)."""

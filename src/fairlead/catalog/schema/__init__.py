"""JSON Schemas of tools: `normalize` (to 2020-12), `validate` (in bounded time), `coerce` (arguments)."""

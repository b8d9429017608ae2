"""JSON Schemas of tools: `normalize` (to 2020-12), `portable` (to all drafts), `validate`, `coerce`."""

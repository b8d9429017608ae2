"""Tool search: an immutable index, queries and scores. Callers use `search` and `index`."""

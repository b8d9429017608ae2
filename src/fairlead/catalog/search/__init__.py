"""Tool search over an immutable index. Other packages use `search.search`, `index.Index` and `vectors`."""

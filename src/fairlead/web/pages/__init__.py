"""One file for each page: what is on it, as HTML."""

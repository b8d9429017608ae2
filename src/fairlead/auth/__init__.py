"""Logging in: one broker for every server, process and account."""

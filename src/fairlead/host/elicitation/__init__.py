"""Requests of servers to the host and its user: elicitations, URLs, sampling."""

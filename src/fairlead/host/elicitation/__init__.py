"""Elicitation: forms and URLs as a user is shown them, checked and sanitized."""

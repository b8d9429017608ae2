"""Malformed definitions and content, repaired or left out entry by entry, for each protocol version."""

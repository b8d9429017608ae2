"""Who a call is made for. One person's host has one principal; a gateway has one for each of its tokens."""

from typing import Final

LOCAL: Final = "local"
"""The person whose machine this is."""

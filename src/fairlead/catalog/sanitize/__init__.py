"""Sanitizing, masking and marking of what servers send, before anything else sees it.

Other packages use `gate`, and `definitions` for listings. `text` says which characters are hidden and which
text is suspicious, `cleaner` works on one JSON message, and `slices` on JSON of any size without blocking.
"""

"""Sanitizing, masking and marking of what servers send, before anything else sees it.

Other packages use `gate`, and `definitions` for listings.
"""

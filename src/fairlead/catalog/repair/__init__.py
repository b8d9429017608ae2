"""Repair of malformed definitions and content, entry by entry, for each protocol version.

Other packages use `content` (answers), `protocol_versions` (lists, versions) and `definitions`.
"""

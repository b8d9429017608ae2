"""Permissions of tools, and the preparation and record of what they return.

Other packages use `decision` (may a tool be called), `arguments` (argument rules), `approvals`, `consent`,
`pins`, `quarantine` and `lockfile` (has a definition changed), `review`, `results` (result budget) and
`audit`.
"""

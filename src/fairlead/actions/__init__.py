"""The actions of a user, one function each, for every surface.

An action picks the file to edit, makes the edit, writes the audit record and returns a value. It prints
nothing and asks nothing: the command line, the console and the dashboard call it and render what it returns.
`context` says for whom, with which configuration, and how an edit takes effect there.

`entries` adds and removes, `switch` enables, disables and restarts, `review` and `approvals` decide, `logins`
logs in and out, `lock`, `imports` and `exports` write files, `doc_sites` edits what the documentation reader
may read, `artifacts`, `store_keys` and `searches` are about what is stored, `gateway_service` starts and
stops the gateway, `audit_log`, `status`, `readiness`, `explain`, `doctor` and `known_catalog` read.
`live_configuration` reloads. The gateway's control API is below this package and is given what it calls.
"""

"""The host: managed servers, the call pipeline, approvals, logins and snapshots. Use `host.Host`.

`parts` makes what a host works with; `managed_servers` and `managed_server` keep the servers; `server_access`
is what the host's own parts use of them; `call` and `permission` are the way of a call; `client_host` has the
hosts of a gateway's principals and clients.
"""

"""The host: managed servers, the call pipeline, approvals, logins and snapshots. Use `host.Host`."""

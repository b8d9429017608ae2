"""Access control of the gateway: `Host` and `Origin` checks, bearer tokens, JWTs and rate limits."""

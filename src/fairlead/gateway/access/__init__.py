"""Who may use the gateway: tokens, JWTs, origins and rate limits."""

"""Durable state that all processes of one user share in SQLite, or all replicas of a gateway in Redis.

Other packages use `protocol.Store` and `protocol.Database` (the interfaces, with and without an event loop),
`async_store.AsyncStore` and `opening.open_database` (which open them) and `artifacts`.
"""

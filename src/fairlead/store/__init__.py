"""Durable state that all processes of one user share, in SQLite.

Other packages use `protocol.Store` (the interface), `async_sqlite.SqliteStore` (in an event loop),
`sqlite.Database` (without one) and `artifacts`.
"""

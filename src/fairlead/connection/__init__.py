"""One supervised connection per server: transport, protocol version, deadlines, recovery.

The host uses `connection.Connection`.
"""

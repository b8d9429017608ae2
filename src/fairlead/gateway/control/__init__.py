"""The control API: what the command line has a running gateway do.

`protocol.py` is the messages, `server.py` the routes, `client.py` what commands use.
"""

"""The gateway: one MCP endpoint in front of all servers of a host.

`gateway.py` opens it and makes the ASGI application, `endpoint.py` holds the transports of one bundle,
`client_session.py` is one client. `fast_path.py` answers the frequent methods as bytes, `sdk_server.py` all
others. `access/` decides who may send requests, `control/` serves the command line, `agent.py` offers the
model loop as tools. What these need of each other is said in protocols (`services.py`, and next to the
classes that need it): imports point one way.
"""

"""One supervised connection per server: transport, protocol version, deadlines, recovery.

The host uses `connection.Connection`, whose `supervisor` connects, lists, reconnects and closes: one run is
a `link`, the states are a table in `state`, and `deadlines` has the clocks of requests, the backoff and the
circuit breaker. `session` negotiates the protocol version, `lists` reads what a server offers, `tasks` and
`subscriptions` are those of the protocol. Requests of servers come in by `server_requests` and are answered
by a `peer`. `failures` makes errors of foreign exceptions, with the hints of `failure_hints` and
`diagnosis`.
"""

"""Transports: stdio, Streamable HTTP, HTTP+SSE and in memory. Callers use `factory`.

Each is a `WireDispatcher` (`dispatcher`), which matches requests and answers over `messages` and works on
what the server sends by itself with an `inbox`. Over HTTP, `http_endpoint` sends requests with the headers
of `request_headers` and reads responses in pieces (`pacing`, `sse_parser`).
"""

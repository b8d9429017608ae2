"""Network access: `http` (client, TLS, proxies), `ssrf` (addresses, redirects), `listen` (ASGI server)."""

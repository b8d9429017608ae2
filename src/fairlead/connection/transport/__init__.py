"""Transports: stdio, Streamable HTTP, HTTP+SSE and in memory. Callers use `factory`."""

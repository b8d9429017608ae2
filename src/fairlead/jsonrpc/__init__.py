"""JSON-RPC messages as bytes (`frames`, `incoming`), and the stdio transport of a server (`stdio`)."""

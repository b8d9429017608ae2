"""One supervised connection per server: transport, era, deadline, recovery."""

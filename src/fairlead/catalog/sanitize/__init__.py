"""What servers write, made safe for models, clients, terminals, logs and pages. Callers use `gate`."""

"""What the gateway is compared with, each a program of its own that prints the port it listens on."""

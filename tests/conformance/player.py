"""What the suite starts as its client: has a scenario played elsewhere, and ends as that ends.

python -IS player.py SOCKET URL
"""

import json
import os
import socket
import sys


def main() -> int:
    environment = {name: os.environ[name] for name in os.environ if name.startswith("MCP_CONFORMANCE_")}
    with socket.socket(socket.AF_UNIX) as players:
        players.connect(sys.argv[1])
        message = json.dumps({"environment": environment, "url": sys.argv[2]}).encode() + b"\n"
        sent = socket.send_fds(players, [message], [1, 2])
        players.sendall(message[sent:])
        ended = players.recv(1)
        return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main())

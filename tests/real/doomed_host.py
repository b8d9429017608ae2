"""A host to be killed: it connects the servers of its last argument, a JSON document, says so, and waits."""

import json
import sys

import anyio

from fairlead.host.host import Host


async def main(servers: str) -> None:
    async with Host.open(overrides={"servers": json.loads(servers)}) as host:
        await host.require([status.server_id for status in host.status()])
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])

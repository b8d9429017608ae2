"""A fast server on stdin and stdout: `python -m benchmarks.servers.stdio [TOOLS]`."""

import os
import sys

from benchmarks.servers.answers import Answers


def main() -> None:
    """Answer until stdin ends: as many requests as one read brings with as few writes as they need."""
    answers = Answers(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    partial = b""
    while data := os.read(0, 1 << 16):
        *lines, partial = (partial + data).split(b"\n")
        found = [answer for line in lines if (answer := answers.answer(line)) is not None]
        waiting = memoryview(b"\n".join([*found, b""]))
        while waiting:
            waiting = waiting[os.write(1, waiting) :]


if __name__ == "__main__":
    main()

"""How quickly the command line starts, and how loading grows with the number of servers.

    uv run python -m benchmarks.startup

CPU time of whole processes, interleaved rounds, medians, with `python -c pass` taken off. A first round
that does not count writes the bytecode.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fairlead.config.load import load_config

GOALS = {"fairlead --help": 80, "fairlead list": 150}
IMPORT_MCP_MS = 605
"""What importing the SDK took where the goals (in ms of CPU over a bare Python) were set: machines differ,
so the goal is the share of that."""


def cpu_ms(argv: list[str], env: dict[str, str], cwd: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def measure_start(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        servers = {f"server{n}": {"command": "run", "args": ["--port", str(n)]} for n in range(20)}
        (Path(folder) / "fairlead.json").write_text(json.dumps({"servers": servers}, indent=2))
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))}
        env["HOME"] = folder
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "fairlead --help": [sys.executable, "-m", "fairlead", "--help"],
            "fairlead list": [sys.executable, "-m", "fairlead", "list"],
            "import mcp": [sys.executable, "-c", "import mcp"],
        }
        for argv in commands.values():  # the first run of each writes the bytecode
            cpu_ms(argv, env, folder)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, argv in commands.items():
                times[name].append(cpu_ms(argv, env, folder))
    bare = statistics.median(times["python -c pass"])
    sdk = statistics.median(times["import mcp"]) - bare
    print(f"{'command':<18}{'CPU ms':>9}{'over bare':>11}{'of import mcp':>15}{'goal':>7}")
    for name, samples in times.items():
        over = statistics.median(samples) - bare
        goal = f"{GOALS[name] / IMPORT_MCP_MS:.2f}" if name in GOALS else ""
        print(f"{name:<18}{over + bare:>9.1f}{over:>11.1f}{over / sdk:>15.2f}{goal:>7}")


def measure_loading(rounds: int) -> None:
    print(f"\n{'servers':<10}{'load ms':>9}{'us/server':>11}")
    for count in (10, 100, 1000, 4000):
        text = json.dumps(
            {
                "servers": {
                    f"server{n}": {"command": "run", "args": ["--port", str(n)], "env": {"A": "1"}}
                    for n in range(count)
                }
            },
            indent=2,
        )
        env = {"FAIRLEAD_CONFIG_JSON": text, "HOME": "/nonexistent"}
        samples: list[float] = []
        for _ in range(rounds):
            start = time.process_time()
            load_config(env=env, cwd="/")
            samples.append((time.process_time() - start) * 1000)
        median = statistics.median(samples)
        print(f"{count:<10}{median:>9.2f}{median * 1000 / count:>11.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    measure_start(arguments.rounds)
    measure_loading(max(3, arguments.rounds // 3))

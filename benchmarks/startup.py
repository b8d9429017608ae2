"""How quickly the command line starts, and how loading grows with the number of servers.

    uv run python -m benchmarks.startup [--quick]

CPU time of whole processes, interleaved rounds, medians, with `python -c pass` taken off. A first round
that does not count writes the bytecode. For the console it is the time on the clock until its prompt is on a
terminal, beside that of whole commands.
"""

import argparse
import json
import os
import pty
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.measuring import IMPORT_MCP_MS, Goal, show
from fairlead.config.load import load_config

GOALS = {"fairlead --help": 80, "fairlead list": 120}
"""In ms of CPU over a bare Python, where `import mcp` takes `IMPORT_MCP_MS`."""
PROMPT_GOAL_MS = 500
PROMPT = b">"


def cpu_ms(argv: list[str], env: dict[str, str], cwd: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def wall_ms(argv: list[str], env: dict[str, str], cwd: str) -> float:
    start = time.perf_counter()
    subprocess.run(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def prompt_ms(argv: list[str], env: dict[str, str], cwd: str) -> float:
    """How long it takes until the prompt is on the terminal. The program is left after that."""
    terminal, other_side = pty.openpty()
    start = time.perf_counter()
    process = subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=other_side, stdout=other_side, stderr=other_side, start_new_session=True
    )
    os.close(other_side)
    try:
        seen = b""
        while PROMPT not in seen:
            seen += _read(terminal)
        shown = (time.perf_counter() - start) * 1000
        os.write(terminal, b"\x04")
        with suppress(OSError):  # which is how Linux says that nobody holds the other side
            while _read(terminal):
                continue
        process.wait(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(terminal)
    return shown


def _read(terminal: int) -> bytes:
    readable, _, _ = select.select([terminal], [], [], 60)
    assert readable, "nothing was shown for a minute"
    return os.read(terminal, 65536)


def example(folder: str) -> dict[str, str]:
    """Write a configuration of twenty servers, and return the environment it is used in."""
    servers = {f"server{n}": {"command": "run", "args": ["--port", str(n)]} for n in range(20)}
    (Path(folder) / "fairlead.json").write_text(json.dumps({"servers": servers}, indent=2))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))}
    return env | {"HOME": folder}


def measure_console(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = example(folder) | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        bare = [sys.executable, "-c", "pass"]
        listing = [sys.executable, "-m", "fairlead", "list"]
        console = [sys.executable, "-m", "fairlead", "console"]
        prompt_ms(console, env, folder)
        times: dict[str, list[float]] = {"python -c pass": [], "fairlead list": [], "console's prompt": []}
        for _ in range(rounds):
            times["python -c pass"].append(wall_ms(bare, env, folder))
            times["fairlead list"].append(wall_ms(listing, env, folder))
            times["console's prompt"].append(prompt_ms(console, env, folder))
    rows: list[tuple[object, ...]] = []
    for name, samples in times.items():
        taken = statistics.median(samples)
        is_ours = name == "console's prompt"
        rows.append((name, taken, Goal(value=taken, at_most=PROMPT_GOAL_MS, unit=" ms") if is_ours else None))
    show("Until it is there, on the clock", ("command", "ms", "goal"), rows)


def measure_start(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = example(folder)
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
    rows: list[tuple[object, ...]] = []
    for name, samples in times.items():
        over = statistics.median(samples) - bare
        goal = None
        if name in GOALS:  # machines differ: scaled by what importing the SDK takes
            label, factor = "over bare Python:", sdk / IMPORT_MCP_MS
            goal = Goal(value=over, at_most=GOALS[name], unit=" ms", factor=factor, label=label)
        rows.append((name, over + bare, over, f"{over / sdk:.2f}", goal))
    columns = ("command", "CPU ms", "over bare Python", "of `import mcp`", "goal")
    note = (
        f"Machine factor {sdk / IMPORT_MCP_MS:.2f}: `import mcp` takes {sdk:.0f} ms of CPU over bare Python, "
        f"and took {IMPORT_MCP_MS} where goals were set."
    )
    show("What a command costs at its start", columns, rows, plot="over bare Python", note=note)


def measure_loading(rounds: int) -> None:
    rows: list[tuple[object, ...]] = []
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
        rows.append((count, median, median * 1000 / count))
    show("Loading a configuration", ("servers", "CPU ms", "us/server"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: three rounds")
    rounds = 3 if parser.parse_args().quick else 15
    measure_start(rounds)
    measure_console(rounds)
    measure_loading(max(3, rounds // 3))

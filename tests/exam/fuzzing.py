"""Run one fuzz target: `python -m tests.exam.fuzzing TARGET [--seconds 60] [FILE...]`.

With files, checks these and needs nothing else. Without, atheris looks for inputs that reach new code,
beginning with the corpus; `tests/tools/fuzz` installs it.
"""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from tests.exam.targets import CORPUS, NAMES, load

FOUND = Path(__file__).parents[2] / ".fuzz"
MAX_BYTES = 2_000
INPUT_SECONDS = 10
"""How long one input may take: all that is checked here is bounded, and far below."""


def main() -> None:
    """Read the command line and run the target."""
    parser = argparse.ArgumentParser(description="Run one fuzz target.")
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    if given.files:
        check = load(given.target)
        for file in given.files:
            check(file.read_bytes())
    else:
        _fuzz(given.target, given.seconds)


def _fuzz(target: str, seconds: int) -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["fairlead"]):
        check = load(target)
    kept = FOUND / target
    kept.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": seconds,
        "max_len": MAX_BYTES,
        "timeout": INPUT_SECONDS,
        "rss_limit_mb": 2_048,
        "artifact_prefix": f"{FOUND / target}-",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    arguments = [f"-{name}={value}" for name, value in options.items()]
    # libFuzzer adds what it finds to the first folder.
    atheris.Setup([sys.argv[0], *arguments, str(kept), str(CORPUS / target)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""The promises in requirements.toml and the tests that prove them stay in step."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parent
PROMISES: dict[str, dict[str, str]] = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
MARK = re.compile(r"mark\.requirement\(([^)]*)\)")
ID = re.compile(r'"((?:NEED|HARD)-\d+)"')


def proved() -> set[str]:
    found: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        for mark in MARK.findall(file.read_text(encoding="utf-8")):
            found.update(ID.findall(mark))
    return found


def test_every_promise_marked_done_has_a_test() -> None:
    done = {name for name, promise in PROMISES.items() if promise["status"] == "done"}
    assert not done - proved()


def test_every_test_names_a_promise_that_exists() -> None:
    assert not proved() - set(PROMISES)


def test_every_promise_has_a_known_status() -> None:
    assert {promise["status"] for promise in PROMISES.values()} <= {"done", "partly", "open"}

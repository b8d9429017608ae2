"""What a command loads is what it needs: a quick start is a matter of imports, not of luck."""

import subprocess
import sys

import pytest

from tests.conftest import Machine

HEAVY = {
    "mcp",
    "mcp_types",
    "aiohttp",
    "starlette",
    "anyio",
    "keyring",
    "rich",
    "tomlkit",
    "ruamel",
    "sqlite3",
    "msgspec",
}
SCRIPT = """
import sys
before = set(sys.modules)  # a tool that watches this process brings modules of its own
from fairlead.cli.main import run
status = run(sys.argv[1:])
print(*{name.partition(".")[0] for name in sys.modules.keys() - before}, file=sys.stderr)
sys.exit(status)
"""


def modules_after(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.strip().splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("list", "--help"), ("list",), ("list", "--json"), ("get", "a")]
)
def test_reading_commands_load_no_network_code_and_no_terminal_library(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    machine.write_project('{"servers": {"a": {"command": "x"}}}')
    assert not modules_after(*arguments) & HEAVY


def test_help_does_not_load_the_models(machine: Machine) -> None:
    assert "pydantic" not in modules_after("--help")


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys, fairlead; print(*[m for m in sys.modules if m.startswith('fairlead')])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["fairlead"]


def test_the_public_names_are_there_and_no_others() -> None:
    import fairlead

    for name in fairlead.__all__:
        assert getattr(fairlead, name)
    assert dir(fairlead) == fairlead.__all__
    with pytest.raises(AttributeError):
        getattr(fairlead, "nothing")  # noqa: B009 - the attribute must be looked up, and must not exist

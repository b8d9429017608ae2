"""The page on reliability: every numbered promise, and the tests that prove it."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tools.reference.markdown import code

TESTS: Final = Path(__file__).parents[2]

_INTRODUCTION = """# Reliability

What Fairlead promises, and the tests that prove it. `NEED-n` is what users of MCP hosts suffer from, `HARD-n`
what must survive what. A test's name is the sentence that it checks; all of them run for every change. A
promise that is kept only in part, or not yet, says so. `uv run pytest FILE -k NAME` runs one of them.
"""
_STATUS = {"done": "", "partly": " *(in part)*", "open": " *(not yet)*"}


def reliability_page() -> str:
    """The page: first the needs, then the hardening."""
    promises: dict[str, dict[str, str]] = tomllib.loads(
        (TESTS / "requirements.toml").read_text(encoding="utf-8")
    )
    proofs: dict[str, list[tuple[str, str]]] = {name: [] for name in promises}
    for path in sorted(TESTS.rglob("test_*.py")):
        for promise, test in _marked(ast.parse(path.read_text(encoding="utf-8"))):
            proofs[promise].append((path.relative_to(TESTS.parent).as_posix(), test))
    parts = [_INTRODUCTION]
    for title, prefix in (("What users suffer from", "NEED-"), ("What must survive what", "HARD-")):
        parts.append(f"\n## {title}\n")
        for name in [each for each in promises if each.startswith(prefix)]:
            promise = promises[name]
            parts.append(f"\n### {name}: {promise['promise']}{_STATUS[promise['status']]}\n\n")
            parts += [f"- {_sentence(test)} ({code(file)})\n" for file, test in dict.fromkeys(proofs[name])]
            if not proofs[name]:
                parts.append("No test names it yet.\n")
    return "".join(parts)


def _sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def _marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    """The promises of a module's tests: by their own marks, and by the module's."""
    of_module = [
        name
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        for name in _ids(statement.value)
    ]
    for statement in module.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if statement.name.startswith("test_"):
            own = [name for decorator in statement.decorator_list for name in _ids(decorator)]
            for name in [*of_module, *own]:
                yield name, statement.name


def _ids(expression: ast.expr) -> Iterator[str]:
    """The ids in a `pytest.mark.requirement(…)`, also one within a list or a parameter."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
            for argument in node.args:
                yield str(ast.literal_eval(argument))

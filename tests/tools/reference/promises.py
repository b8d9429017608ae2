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
what must survive what. A test's name is the sentence that it checks. `.ci/run` runs them for every change,
but for those that say "before a release": `.ci/full` runs these, and more cases of some others. A promise
that is kept only in part, or not yet, says so.

This page has no results, which are those of a machine and a commit. In a clone,

```console
$ uv run pytest -m requirement --junitxml=results.xml
```

runs all of these tests and writes the result of each to `results.xml`; `uv run pytest FILE -k NAME` runs one.
Without the programs that `.ci/run` installs first, some are skipped, and say why. A release's notes have the
summary of its `.ci/full`.
"""
_LATER = ", before a release"
_STATUS = {"done": "", "partly": " *(in part)*", "open": " *(not yet)*"}


def reliability_page() -> str:
    """The page: first the needs, then the hardening."""
    promises: dict[str, dict[str, str]] = tomllib.loads(
        (TESTS / "requirements.toml").read_text(encoding="utf-8")
    )
    proofs: dict[str, list[tuple[str, str, str]]] = {name: [] for name in promises}
    for path in sorted(TESTS.rglob("test_*.py")):
        for promise, test, when in _marked(ast.parse(path.read_text(encoding="utf-8"))):
            proofs[promise].append((path.relative_to(TESTS.parent).as_posix(), test, when))
    parts = [_INTRODUCTION]
    for title, prefix in (("What users suffer from", "NEED-"), ("What must survive what", "HARD-")):
        parts.append(f"\n## {title}\n")
        for name in [each for each in promises if each.startswith(prefix)]:
            promise = promises[name]
            parts.append(f"\n### {name}: {promise['promise']}{_STATUS[promise['status']]}\n\n")
            parts += [
                f"- {_sentence(test)} ({code(file)}{when})\n"
                for file, test, when in dict.fromkeys(proofs[name])
            ]
            if not proofs[name]:
                parts.append("No test names it yet.\n")
    return "".join(parts)


def _sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def _marked(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """The promises of a module's tests, by their own marks and by the module's, and when a test is run."""
    marks = [
        statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    ]
    of_module = [name for mark in marks for name in _ids(mark)]
    for statement in module.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if statement.name.startswith("test_"):
            own = [name for decorator in statement.decorator_list for name in _ids(decorator)]
            when = _LATER if any(map(_is_long, [*marks, *statement.decorator_list])) else ""
            for name in [*of_module, *own]:
                yield name, statement.name, when


def _is_long(mark: ast.expr) -> bool:
    """Does this keep the whole test for `.ci/full`, and not some of its parameters alone?"""
    each = mark.elts if isinstance(mark, ast.List | ast.Tuple) else [mark]
    return any(ast.unparse(one) == "pytest.mark.long" for one in each)


def _ids(expression: ast.expr) -> Iterator[str]:
    """The ids in a `pytest.mark.requirement(…)`, also one within a list or a parameter."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
            for argument in node.args:
                yield str(ast.literal_eval(argument))

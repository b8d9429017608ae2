"""Every code block of the documentation is of a kind that a test runs, or is output."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from fairlead.config.models import Config
from fairlead.config.validate import parse_config
from tests.conftest import Machine
from tests.docs.command_words import parse
from tests.docs.pages import Block, Page, all_pages, document

PAGES = all_pages()
KINDS = {"console", "python", "json", "jsonc", "yaml", "text"}
RUN_ELSEWHERE = {"README.md"}
"""Its programs are pieces, which have tests of their own: see `test_readme.py`."""
OTHER_WORDS = {
    "cd",
    "curl",
    "echo",
    "eval",
    "export",
    "ln",
    "mkdir",
    "pip",
    "pipx",
    "pytest",
    "python",
    "python3",
    "source",
    "ssh",
    "uv",
    "uvx",
}
"""Programs other than `fairlead` that commands on pages may begin with."""


def blocks(*languages: str, sessions: bool) -> list[Any]:
    return [
        pytest.param(page, block, id=f"{page.name}:{block.line}")
        for page in PAGES
        if page.is_session is sessions and not page.is_generated
        for block in page.blocks(*languages)
    ]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_block_says_what_it_is(page: Page) -> None:
    kinds = KINDS | {"", "sh"} if page.name == "README.md" else KINDS
    assert {block.language for block in page.blocks()} <= kinds


@pytest.mark.parametrize(
    ("page", "block"), [*blocks("console", sessions=False), *blocks("console", sessions=True)]
)
def test_commands_are_ones_that_the_command_line_takes(machine: Machine, page: Page, block: Block) -> None:
    lines = [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]
    assert lines or "> /" in block.text
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words and words[0] == "fairlead":
            parse(words[1 : words.index(">") if ">" in words else None])
        else:
            assert not words or Path(words[0]).name in OTHER_WORDS, line


@pytest.mark.parametrize(
    ("page", "block"), [*blocks("json", "jsonc", sessions=False), *blocks("json", "jsonc", sessions=True)]
)
def test_json_is_json_and_a_configuration_is_a_valid_one(page: Page, block: Block) -> None:
    if block.not_run:
        return
    found = document(block)
    if found.keys() <= {"$schema", *Config.model_fields}:
        parse_config(found)


@pytest.mark.parametrize(("page", "block"), blocks("yaml", sessions=True))
def test_commands_in_workflows_are_ones_that_the_command_line_takes(
    machine: Machine, page: Page, block: Block
) -> None:
    reader: Any = YAML(typ="safe", pure=True)
    reader.load(block.text)
    commands = re.findall(r"run: (?:uv run )?fairlead (.*)$", block.text, re.MULTILINE)
    assert commands
    for each in commands:
        parse(shlex.split(each))
    # A fresh machine has nothing that the workflow did not check out.
    for folder in re.findall(r"install \./(\S+)", block.text):
        assert re.search(rf"repository: \S+\n +path: {folder}$", block.text, re.MULTILINE), folder


@pytest.mark.requirement("HARD-88")
@pytest.mark.usefixtures("time_server")
@pytest.mark.parametrize(
    ("page", "block"),
    [each for each in blocks("python", sessions=False) if each.values[0].name not in RUN_ELSEWHERE]
    + [each for each in blocks("python", sessions=True) if each.values[1].title is None],
)
def test_a_program_runs_and_prints_what_it_says(
    machine: Machine, page: Page, block: Block, tmp_path: Path
) -> None:
    if block.not_run:
        compile(block.text, page.name, "exec")
        return
    program = tmp_path / "program.py"
    program.write_text(block.text)
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(program)],
        env=machine.env,
        cwd=machine.project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = re.findall(r"# → (.*)", block.text)
    assert not said or done.stdout.splitlines() == said


def test_a_command_that_is_not_there_would_be_noticed(machine: Machine) -> None:
    for words in (["gateway", "stat"], ["gateway", "start", "--login"], ["ad", "x"]):
        with pytest.raises(click.UsageError):
            parse(words)

"""The reason of a failure is found in what servers of many languages write to stderr."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.connection.diagnosis import MAX_EXCERPT, MAX_REASON, diagnose

SHAPES = tomllib.loads((Path(__file__).parent.parent / "data" / "stderr_shapes.toml").read_text())["shape"]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=[shape["name"] for shape in SHAPES])


@every_shape
def test_the_reason_is_found_wherever_a_program_puts_it(shape: dict[str, str]) -> None:
    found = diagnose(shape["said"].split("\n"))
    assert found.reason is not None
    assert found.reason.startswith(shape["reason"])
    assert len([line for line in found.excerpt if line != "…"]) <= MAX_EXCERPT
    assert not any(line.lstrip().startswith("at Module.step") for line in found.excerpt)


@every_shape
def test_the_reason_of_a_server_that_worked_is_found_after_what_it_logged_before(
    shape: dict[str, str],
) -> None:
    before = ["Error: a request failed an hour ago", *(f"request {number} done" for number in range(12))]
    found = diagnose([*before, *shape["said"].split("\n")], has_worked=True)
    assert found.reason != before[0]
    if "--option-1" not in shape["said"]:  # which is written by servers that do not start
        assert found.reason is not None
        assert found.reason.startswith(shape["reason"])


def test_of_many_failures_the_first_counts_at_the_start_and_the_last_later() -> None:
    said = ["Error: no database", "    at x", "retrying", "Error: gave up", "    at y"]
    assert diagnose(said).reason == "Error: no database"
    assert diagnose(said, has_worked=True).reason == "Error: gave up"


def test_where_nothing_looks_like_a_reason_the_last_lines_are_shown() -> None:
    found = diagnose([f"line {number}" for number in range(20)])
    assert found.reason is None
    assert found.excerpt == tuple(f"line {number}" for number in range(12, 20))


def test_a_single_line_is_not_said_twice() -> None:
    found = diagnose(["Error: no"])
    assert (found.reason, found.excerpt) == ("Error: no", ())


@given(st.lists(st.text(max_size=600), max_size=150), st.booleans())
def test_whatever_a_server_writes_the_diagnosis_is_bounded(lines: list[str], has_worked: bool) -> None:
    found = diagnose(lines, has_worked=has_worked)
    assert found.reason is None or len(found.reason) <= MAX_REASON
    assert len(found.excerpt) <= 2 * MAX_EXCERPT


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            (
                "(node:12) [DEP0040] DeprecationWarning: The `punycode` module is deprecated.\n"
                "(Use `node --trace-deprecation ...` to show where the warning was created)\n"
                "Please provide an API key"
            ),
            "Please provide an API key",
        ),
        ("first line: which folder" + "\n  --option X  something" * 30, "first line: which folder"),
        ("no folder given" + "\nusage line" * 30, "no folder given"),
        ("bye", "bye"),
        ("starting\nlistening", None),
        ("option one\noption two\noption three", None),
        ("WARNING: old\nINFO: new", None),
    ],
)
def test_a_line_without_a_word_of_failure_is_the_reason_where_nothing_else_can_be(
    said: str, reason: str | None
) -> None:
    assert diagnose(said.split("\n")).reason == reason

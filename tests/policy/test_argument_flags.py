"""Rules on arguments whose value or name a server reads in several ways: flags, arrays, conventions."""

import base64
from typing import Any

import pytest

from fairlead.catalog.schema.validate import fit_arguments
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.policy.arguments import match, read_arguments
from tests.policy.test_arguments import LOCAL, allows, narrowing

PATH = "/etc/passwd"
DEFINITION = (
    b"""{"name": "rm", "inputSchema": {"type": "object", "properties": {"force": {"type": "boolean"}}}}"""
)
TRUE: list[Any] = [
    True,
    1,
    1.0,
    "1",
    "true",
    "True",
    "TRUE",
    "yes",
    "Yes",
    "on",
    "y",
    "t",
    " true ",
    [True],
    ["on"],
]
FALSE: list[Any] = [False, 0, 0.0, "0", "False", "no", "OFF", "n", "f"]


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(("said", "values"), [("true", TRUE), ("false", FALSE)])
def test_a_flag_is_denied_in_every_form_that_is_let_through(said: str, values: list[Any]) -> None:
    entry = ToolEntry(key=ToolKey("x", "rm"), definition=DEFINITION)
    other = {"true": "false", "false": "true"}[said]
    for value in values:
        sent = fit_arguments(entry, {"force": value}).arguments
        for rule, expected in ((said, "yes"), (other, "no")):
            readings = read_arguments([{"force": rule}], sent, LOCAL)
            assert match({"force": rule}, readings, narrows=True) == expected, value


def test_a_rule_that_says_a_number_asks_about_a_flag_that_may_be_that() -> None:
    assert narrowing({"force": "1"}, {"force": True}) == "maybe"
    assert narrowing({"force": "1"}, {"force": 1}) == "yes"
    assert narrowing({"count": "1"}, {"count": 2}) == "no"


def test_readings_as_a_flag_widen_no_rule_that_allows() -> None:
    assert allows({"count": "1"}, {"count": 1})
    assert allows({"answer": "yes"}, {"answer": "yes"})
    assert not allows({"force": "false"}, {"force": 0})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "arguments",
    [
        {"options": {"path": {str(index): byte for index, byte in enumerate(PATH.encode())}}},
        {"options": {"path": {str(index): letter for index, letter in reversed([*enumerate(PATH)])}}},
        {
            "options": {
                "path": {"type": "Buffer", "data": {str(i): byte for i, byte in enumerate(PATH.encode())}}
            }
        },
        {"options": {"0": {"path": PATH}}},
        {"options": {"path": base64.b64encode(base64.b64encode(PATH.encode())).decode()}},
        {"options": {"path": f"base64:{base64.b64encode(PATH.encode()).decode()}"}},
        *(
            {"options": {key: PATH}}
            for key in ("path.0", "--path", "-path", "path=", "path:", "path;", "_path", "pa-th")
        ),
        *({"options": {key: PATH}} for key in ("@path", ":path", "path[0].1", "PATH:")),
    ],
)
def test_a_path_is_denied_however_its_name_or_bytes_are_written(arguments: dict[str, Any]) -> None:
    assert narrowing({"options.path": "/etc/**"}, arguments) != "no"
    safe: dict[str, Any] = {**arguments["options"], "path": "/srv/x"}
    if "path" not in arguments["options"] and "0" not in arguments["options"]:
        assert not allows({"options.path": "/srv/**"}, {"options": safe}), "a decoy next to it"


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize("name", ["file_path", "filePath", "file-path", "FilePath", "file path"])
@pytest.mark.parametrize(
    "written", ["file_path", "filePath", "file-path", "FilePath", "file path", "--file-path"]
)
def test_names_of_arguments_are_the_same_by_every_convention(name: str, written: str) -> None:
    assert narrowing({name: "/etc/**"}, {written: PATH}) == "yes"
    assert narrowing({name: "/etc/**"}, {name: "/srv/x"} | {written: PATH}) == "yes"
    assert narrowing({f"options.{name}": "/etc/**"}, {"options": f"{written}={PATH}"}) == "maybe"


def test_a_step_that_is_an_index_is_still_one() -> None:
    assert narrowing({"items.0.path": "/etc/**"}, {"items": [{"path": PATH}]}) == "yes"
    assert narrowing({"items.0.path": "/etc/**"}, {"items": {"0": {"path": PATH}}}) == "yes"
    assert narrowing({"items.0.path": "/etc/**"}, {"items": [{"path": "/srv"}, {"path": PATH}]}) == "no"
    assert narrowing({"path": "/etc/**"}, {"paths": PATH}) == "no"

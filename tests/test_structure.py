"""What keeps the source tree easy to find one's way in: sizes, names and imports have limits."""

import pytest

from tests.tools.house import MAX_LINES, Module, import_knots, read_modules, repeated_classes


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return read_modules()


def test_no_module_is_longer_than_a_reader_takes_in(modules: list[Module]) -> None:
    assert len(modules) > 100
    assert {module.name: module.lines for module in modules if module.lines > MAX_LINES} == {}


def test_no_two_classes_have_one_name(modules: list[Module]) -> None:
    assert repeated_classes(modules) == []


def test_no_modules_import_each_other_in_a_circle_not_even_for_type_checkers(modules: list[Module]) -> None:
    assert import_knots(modules) == []

from typing import Any

import pytest

from fairlead.policy.arguments import matches


@pytest.mark.parametrize(
    ("patterns", "arguments"),
    [
        ({"path": "/etc/**"}, {"path": "/etc/passwd"}),
        ({"path": "/etc/**"}, {"path": "/etc/../etc/passwd"}),
        ({"path": "/etc/**"}, {"path": "//etc/passwd"}),
        ({"path": "/etc/**"}, {"path": "/home/me/../../etc/passwd"}),
        ({"path": "/etc/**"}, {"path": "\\etc\\passwd"}),
        ({"path": "/etc/**"}, {"path": ["/tmp/a", "/etc/passwd"]}),
        ({"paths": "*.pem"}, {"paths": {"key": "secret.pem"}}),
        ({"options.force": "true"}, {"options": {"force": True}}),
        ({"count": "[5-9]"}, {"count": 7}),
        ({"a.b": "x"}, {"a.b": "x"}),
        ({"nothing": "null"}, {"nothing": None}),
    ],
)
def test_what_narrows_matches_in_any_reading(patterns: dict[str, str], arguments: dict[str, Any]) -> None:
    assert matches(patterns, arguments, narrows=True)


@pytest.mark.parametrize(
    ("patterns", "arguments"),
    [
        ({"path": "/etc/**"}, {}),
        ({"path": "/etc/**"}, {"path": "/home/me/etc/passwd"}),
        ({"path": "/etc/**", "mode": "w"}, {"path": "/etc/passwd", "mode": "r"}),
        ({"options.force": "true"}, {"options": "true"}),
        ({"list": "x"}, {"list": []}),
    ],
)
def test_what_does_not_fit_does_not_match(patterns: dict[str, str], arguments: dict[str, Any]) -> None:
    assert not matches(patterns, arguments, narrows=True)
    assert not matches(patterns, arguments, narrows=False)


@pytest.mark.parametrize(
    "value",
    [
        "/home/me/../../etc/passwd",
        ["/home/me/a", "/etc/passwd"],
        "//home/me/../etc",
        {"a": "/home/me/a", "b": "/etc/b"},
    ],
)
def test_what_allows_must_match_in_every_reading(value: Any) -> None:
    assert matches({"path": "/home/me/**"}, {"path": "/home/me/a"}, narrows=False)
    assert not matches({"path": "/home/me/**"}, {"path": value}, narrows=False)

"""Secrets inside longer values are masked by themselves."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from fairlead.config.secrets.inner_secrets import MAX_LENGTH, MAX_PARTS
from fairlead.config.secrets.masking import Masker
from fairlead.config.secrets.redaction import proxy_secrets, secret_values

PASSWORD = "S3cretPassw0rd99"
BASIC = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
HEADERS = json.dumps({"Authorization": f"Bearer {PASSWORD}", "Api-Version": "2022-06-28"})


def masker_for(entry: Mapping[str, Any], resolved: Mapping[str, Any] | None = None) -> Masker:
    """A masker that knows the secrets of an entry."""
    masker = Masker()
    masker.learn(*secret_values(dict(entry), dict(resolved or entry)))
    return masker


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    "value",
    [
        f"postgres://app:{PASSWORD}@db/x",
        f"jdbc:postgresql://db/x?user=app&password={PASSWORD}",
        f"Server=db;Uid=app;Password={PASSWORD};Database=x",
        f"AccountName=a;AccountKey={PASSWORD};EndpointSuffix=core",
        f'host=db password="{PASSWORD}"',
        f"https://{PASSWORD}@errors.example/2",
        f"https://api.example/mcp?api_key={PASSWORD}",
        f"https://api.example/mcp#token={PASSWORD}",
        f"Basic {BASIC}",
        f"me:{PASSWORD}",
        f"ApiKey {PASSWORD}",
        f'Token token="{PASSWORD}"',
        f" {PASSWORD}\n",
        HEADERS,
        json.dumps({"accounts": [{"name": "a", "secret": PASSWORD}]}),
        json.dumps({"db": f"mysql://app:{PASSWORD}@db/x"}),
        json.dumps({"outer": json.dumps({"client_secret": PASSWORD})}),
    ],
)
@pytest.mark.parametrize("name", ["API_TOKEN", "CONFIG"])
def test_the_secrets_inside_what_a_reference_stands_for_are_masked(name: str, value: str) -> None:
    entry = {"command": "x", "env": {name: "${SETTING}"}}
    masked = masker_for(entry, {"command": "x", "env": {name: value}}).mask_known(f"it was {PASSWORD}.")
    assert PASSWORD not in masked


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    "entry",
    [
        {"env": {"DATABASE_URL": f"postgres://app:{PASSWORD}@db/x"}},
        {"env": {"DATABASE_URL": f"postgres://app:{PASSWORD.replace('3', '%33')}@db/x"}},
        {"env": {"ERRORS_DSN": f"https://{PASSWORD}@errors.example/2"}},
        {"env": {"SETTINGS": json.dumps({"db": {"password": PASSWORD}})}},
        {"env": {"HEADERS": HEADERS}},
        {"args": [f"--db=postgres://app:{PASSWORD}@db/x"]},
        {"args": ["--db", f"postgres://app:{PASSWORD}@db/x"]},
        {"args": ["run", "-e", f"API_KEY={PASSWORD}", "image"]},
        {"args": ["run", f"--env=ACCESS_TOKEN={PASSWORD}", "image"]},
        {"args": ["--header", f"Authorization: Basic {BASIC}"]},
        {"args": ["--config", json.dumps({"apiKey": PASSWORD})]},
        {"headers_helper": ["print", f"--password={PASSWORD}"]},
        {"url": f"https://{PASSWORD}@api.example/mcp"},
        {"url": f"https://me:{PASSWORD}@api.example/mcp"},
        {"url": "https://api.example", "headers": {"Authorization": f"Basic {BASIC}"}},
        {"url": "https://api.example", "headers": {"Cookie": f"theme=dark; sid={PASSWORD}; lang=en"}},
        {"url": "https://api.example", "headers": {"X-Settings": f"region=eu; token={PASSWORD}"}},
    ],
)
def test_the_secrets_inside_a_literal_value_are_masked(entry: dict[str, Any]) -> None:
    assert PASSWORD not in masker_for(entry).mask_known(f"it was {PASSWORD}.")


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"env": {"DATABASE_URL": "postgres://postgres:postgres@localhost/postgres"}}, "owner: postgres"),
        ({"env": {"DATABASE_URL": "postgres://postgres@localhost:5432/app"}}, "owner: postgres"),
        ({"env": {"CONFIG": '{"auth": "disabled", "sort_key": "created_at"}'}}, "disabled created_at"),
        ({"env": {"CONFIG": '{"token_file": "/run/token", "key": "12345678"}'}}, "/run/token 12345678"),
        ({"args": ["--remote", "ssh://deploy@build.example/app"]}, "deploy@build.example"),
        ({"args": ["--auth=enabled", "--session", "reusable"]}, "--auth=enabled"),
        ({"url": "https://api.example/mcp?region=frankfurt"}, "frankfurt"),
        ({"url": "https://a.example", "headers": {"Cookie": "theme=contrast; size=12345678"}}, "contrast"),
    ],
)
def test_what_is_ordinary_inside_a_value_is_not_masked(entry: dict[str, Any], text: str) -> None:
    assert masker_for(entry).mask_known(text) == text


@pytest.mark.requirement("HARD-62")
def test_a_proxys_lone_key_is_masked() -> None:
    masker = Masker()
    masker.learn(*proxy_secrets({"HTTPS_PROXY": f"{PASSWORD}@proxy.example:3128"}))
    assert PASSWORD not in masker.mask_known(f"refused {PASSWORD}")


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize(
    "value",
    [
        json.dumps([{"token": f"{PASSWORD}{number}"} for number in range(2000)]),
        "[" * 30_000,
        json.dumps("x" * MAX_LENGTH),
        "a=" * 30_000,
        "a" * 60_000,
        f"k{' ' * 60_000}v",
        "http://" * 9_000,
        "basic " * 10_000,
        "://" * 20_000,
    ],
    ids=["members", "depth", "length", "pairs", "word", "blanks", "urls", "schemes", "slashes"],
)
def test_a_value_of_any_shape_gives_few_parts(value: str) -> None:
    found = {*secret_values({"env": {"A_TOKEN": value}}, {"env": {"A_TOKEN": value}})}
    assert len(found) <= 2 * MAX_PARTS + 2

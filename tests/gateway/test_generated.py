"""Generated definitions and results, sound and broken: clients get all that is sound, and nothing invalid."""

import itertools
import json
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pydantic_core
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import ValidationError

from fairlead.catalog.repair.protocol_versions import VERSIONS
from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.host.host import Host
from tests.fixtures.generated_messages import LISTS, EntryKind, Generated, answers, listings
from tests.gateway.generated_support import (
    Asked,
    GeneratedServer,
    Lists,
    Said,
    begun,
    identities,
    list_all,
    numbered,
    plain,
    requests,
    require_strict,
    with_plain_uris,
    written_again,
)
from tests.gateway.strict_client import check
from tests.gateway.support import HANDSHAKE, MODERN, Raw, serving
from tests.gateway.test_definitions import SCRIPTS, SDKS, needs_sdks, run

pytestmark = [pytest.mark.slow, pytest.mark.requirement("HARD-85")]

LATE = "has not been answered yet"
DIRECT = {"gateway": {"mode": "direct"}}
IS_FULL = bool(os.environ.get("FAIRLEAD_FULL"))
LISTINGS, ANSWERS = (150, 300) if IS_FULL else (9, 18)
"""How many examples are made: each is several definitions or results of every kind, for every version."""
GENERATED = settings(
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # each example takes a second, and its problems name the entries
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
STRUCTURED = VERSIONS[2:]
"""The versions with structured content."""
ENTRY = {"sharing": "shared", "trust": "trusted", "approval": "allow", "allow_tools": ["*"]}


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
def test_clients_list_every_sound_definition_and_nothing_invalid(tmp_path: Path, version: str) -> None:
    check_listings(tmp_path, version, LISTINGS, [])


@pytest.mark.requirement("HARD-87")
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
def test_clients_get_every_sound_result_and_nothing_invalid(tmp_path: Path, version: str) -> None:
    check_results(tmp_path, version, ANSWERS, [])


@needs_sdks
@pytest.mark.requirement("HARD-87")
def test_the_typescript_sdks_take_what_clients_get(tmp_path: Path) -> None:
    said: Said = []
    for version in (HANDSHAKE, MODERN):
        check_listings(tmp_path, version, LISTINGS // 3, said)
        check_results(tmp_path, version, ANSWERS // 3, said)
    file = tmp_path / "said.jsonl"
    file.write_text("".join(f"{written_again(each)}\n" for each in said), encoding="utf-8")
    script = (SCRIPTS / "schemas.mjs").read_text(encoding="utf-8")
    found = run(["node", "--input-type=module", "-", str(file)], cwd=SDKS, script=script)
    assert found["parsed"] > len(said) > 0
    assert not found["failed"], found["failed"]


PROMPT = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}
RESOURCE = {"contents": [{"uri": "x://r/0", "text": "hi"}]}
RESULT = {"content": [{"type": "text", "text": "hi"}]}
LINK = {"content": [{"type": "resource_link", "uri": "x://r/0", "name": "hi"}]}
EMBEDDED = {"content": [{"type": "resource", "resource": RESOURCE["contents"][0]}]}
DEEP_PLACES: list[tuple[str, dict[str, Any], list[tuple[Any, ...]]]] = [
    ("prompt", PROMPT, [("_meta",), ("messages", 0, "x"), ("messages", 0, "content", "_meta")]),
    ("resource", RESOURCE, [("_meta",), ("x",), ("contents", 0, "_meta"), ("contents", 0, "x")]),
    ("tool", RESULT, [("_meta",), ("x",), *(("content", 0, name) for name in ("_meta", "x", "annotations"))]),
    ("tool", LINK, [("content", 0, "_meta"), ("content", 0, "icons")]),
    ("tool", EMBEDDED, [("content", 0, "_meta"), ("content", 0, "resource", "_meta")]),
]


@pytest.mark.requirement("HARD-87")
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("depth", [150, 300, 600])
async def test_a_part_that_is_too_deep_for_clients_costs_only_itself(
    tmp_path: Path, version: str, depth: int
) -> None:
    """The parser of the Python SDK refuses what is nested 200 levels deep, and all that it stands in."""
    deep: Any = 1
    for _ in range(depth):
        deep = {"a": deep}
    async with asked(tmp_path, version, []) as ask:
        for kind, sound, places in DEEP_PLACES:
            for *path, last in places:
                value = json.loads(json.dumps(sound))
                parent = value
                for step in path:
                    parent = parent[step]
                parent[last] = deep
                said = {**value, **({"resultType": "complete"} if version == MODERN else {})}
                ask.server.answer_with([Generated(kind=kind, value=said, is_broken=True)])
                for each, request in ask.clients.items():
                    for method, params in requests(kind, 0):
                        answer = await request(method, **params)
                        assert "hi" in json.dumps(answer["result"]), (each, method, path, last, answer)
                        pydantic_core.from_json(json.dumps(answer))


def check_listings(folder: Path, version: str, examples: int, said: Said) -> None:
    # A server may get the port of one before it: a gateway that knew that one would list what it had.
    homes = (folder / str(number) for number in itertools.count())

    @settings(GENERATED, max_examples=examples)
    @given(listings(version))
    def holds(made: list[Generated]) -> None:
        anyio.run(check_listing, next(homes), version, said, made)

    holds()


def check_results(folder: Path, version: str, examples: int, said: Said) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(asked(folder, version, said)) as ask,
    ):

        @settings(GENERATED, max_examples=examples)
        @given(answers(version))
        def holds(made: list[Generated]) -> None:
            portal.call(check_answers, ask, made)

        holds()


@asynccontextmanager
async def asked(folder: Path, version: str, said: Said) -> AsyncGenerator[Asked]:
    """A gateway before a server that answers what a test wants, and a client of each version."""
    server = GeneratedServer(version)
    async with server.serving(), aiohttp.ClientSession() as http:
        entries: dict[str, Any] = {"c": {"url": server.url, **ENTRY}}
        async with serving(folder, config=DIRECT, seconds=600, **entries) as served:
            yield Asked(
                server=server,
                clients={
                    each: await begun(Raw(http, f"{served.url}/mcp", f"local#{number}"), each, said)
                    for number, each in enumerate(VERSIONS)
                },
            )


async def check_answers(ask: Asked, made: Sequence[Generated]) -> None:
    ask.server.answer_with(made)
    problems: list[Any] = []
    with anyio.fail_after(60):
        for version, request in ask.clients.items():
            for kind, number, each in numbered(made):
                for method, params in requests(kind, number):
                    answer = await request(method, **params)
                    require_strict(answer)
                    problems += [
                        (version, kind, *problem) for problem in wrong(version, kind, params, each, answer)
                    ]
    assert not problems, problems


def wrong(
    version: str, kind: str, params: dict[str, Any], each: Generated, answer: dict[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """What is wrong with the answer that a client got for a result."""
    if "error" in answer:
        if not each.is_broken or not answer["error"]["message"]:
            yield "refused", each.value, answer
        return
    result = answer["result"]
    try:
        check(kind, version, result)
    except (AssertionError, ValueError, ValidationError) as exc:
        yield "invalid", each.value, result, str(exc)[:300]
        return
    if params.get("name") == "c_give_typed" and "structuredContent" not in result and version in STRUCTURED:
        if not result.get("isError"):
            yield "promised", each.value, result
    elif not each.is_broken and version in (HANDSHAKE, MODERN):
        yield from (
            (name, result.get(name), value)
            for name, value in each.value.items()
            if not is_kept(name, result.get(name), value, version)
        )


def is_kept(name: str, got: Any, said: Any, version: str) -> bool:
    """Whether a field of a sound result arrived, with all that its version allows in it."""
    if name == "structuredContent" and version == HANDSHAKE and not is_object(said):
        return got is None  # its version has objects only: it is a text among the content
    if name == "content":
        got = got[: len(said)]
    if name == "_meta":  # the gateway adds its name
        got = {name: value for name, value in as_object(got).items() if name in said}
    return without_nulls(with_plain_uris(got)) == without_nulls(said) or (name == "isError" and not said)


def without_nulls(value: Any) -> Any:
    """A value without the fields that are null: the SDK leaves them out of what it sends."""
    if is_object(value):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if is_list(value) else value


async def check_listing(folder: Path, version: str, said: Said, made: Sequence[Generated]) -> None:
    server, good = GeneratedServer(version), GeneratedServer(HANDSHAKE)
    server.list_all(made)
    async with server.serving(), good.serving(), aiohttp.ClientSession() as http:
        entries: dict[str, Any] = {"c": {"url": server.url, **ENTRY}, "good": {"url": good.url, **ENTRY}}
        async with serving(folder, config=DIRECT, **entries) as served:
            problems: list[Any] = []
            first = await begun(Raw(http, f"{served.url}/mcp", "local#first"), MODERN, [])
            await first("tools/list")
            await all_lists_came(served.gateway.host, "c")
            for number, each in enumerate(VERSIONS):
                request = await begun(Raw(http, f"{served.url}/mcp", f"local#{number}"), each, said)
                found = await list_all(request, each)
                problems += [(each, *problem) for problem in lost(found, made, each)]
                if each == MODERN:
                    problems += unnamed(served.gateway.host.listing("c"), found, made)
                called = await request("tools/call", name="good_give", arguments={})
                assert called["result"]["content"][0]["text"] == "done"
            assert not problems, problems


async def all_lists_came(host: Host, server_id: str) -> None:
    """Wait until a server has answered every list: slow ones are announced later, and not waited for."""
    with anyio.fail_after(60):
        while (listing := host.listing(server_id)) is None or any(LATE in note for note in listing.notes):  # noqa: ASYNC110
            await anyio.sleep(0.05)


def listed_as(kind: EntryKind, entry: dict[str, Any]) -> str:
    """The identity that an entry of a client's list has at its server."""
    if kind == "tool":
        return entry["description"].partition("]")[0].partition("/")[2]
    return entry[LISTS[kind][2]].removeprefix("c_" if kind == "prompt" else "fairlead://server/c/")


def by_identity(kind: EntryKind, entries: list[Any]) -> dict[str, Any]:
    """The first entry of each identity."""
    return {listed_as(kind, entry): entry for entry in reversed(entries)}


def lost(found: Lists, made: Sequence[Generated], version: str) -> Iterator[tuple[Any, ...]]:
    """Sound entries that a client did not get, or not as they are."""
    for kind, every in identities(made).items():
        listed = by_identity(kind, found[kind])
        for each, identity, _ in every:
            if each.is_broken:
                continue
            entry = listed.get(identity or "")
            if entry is None:
                yield "missing", kind, each.value
            elif version in (HANDSHAKE, MODERN):  # the others have fewer fields
                yield from differences(kind, entry, each.value)


def differences(kind: EntryKind, entry: dict[str, Any], said: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Fields of an entry that are not what the server said."""
    for name, value in said.items():
        if name in (LISTS[kind][2], "_meta", "execution") or value in ({}, []):
            continue  # what clients know of `_meta` stays, and tasks are made by the gateway
        got = entry.get(name)
        if kind == "tool" and name == "description" and isinstance(got, str):
            got = got.partition("] ")[2]
        if got != value:
            yield "changed", kind, name, got, value


def unnamed(listing: Any, found: Lists, made: Sequence[Generated]) -> Iterator[tuple[Any, ...]]:
    """Broken entries that are left out, or listed as something else, and named nowhere."""
    assert listing is not None
    left_out = [(repair.kind, repair.name) for repair in listing.repairs if repair.reason is not None]
    named = {(repair.kind, plain(repair.name)) for repair in listing.repairs}
    for kind, every in identities(made).items():
        entries = [entry for entry in found[kind] if not is_of_others(kind, entry)]
        listed = by_identity(kind, entries)
        if len(entries) + len([each for each in left_out if each[0] == kind]) != len(every):
            yield "uncounted", kind, [each.value for each, _, _ in every], [*listed], left_out
        for each, identity, position in every:
            entry = listed.get(identity or "")
            if each.is_broken and entry and not {(kind, plain(identity)), (kind, position)} & named:
                # Only the icons that may be shown are passed on, and of all else what the protocol names.
                known = {name: each.value[name] for name in entry.keys() & each.value.keys() - {"icons"}}
                yield from differences(kind, plain(entry), common(plain(known), plain(entry)))


def common(value: Any, other: Any) -> Any:
    """A value with the fields alone that another one has as well."""
    if is_object(value) and is_object(other):
        return {name: common(value[name], other[name]) for name in value if name in other}
    if is_list(value) and is_list(other) and len(value) == len(other):
        return [common(*pair) for pair in zip(value, other, strict=True)]
    return value


def is_of_others(kind: EntryKind, entry: dict[str, Any]) -> bool:
    """Whether an entry is of another server, or of the gateway itself."""
    if kind == "tool":
        return not entry["name"].startswith("c_")
    return entry["name"] == "good_give" or entry.get("uriTemplate", "").startswith("case:")

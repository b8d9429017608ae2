"""No secret that a server writes into its definitions is stored, or shown by a process that knows it not."""

import base64
import json
import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest

from fairlead.config.paths import store_file
from fairlead.config.secrets.masking import SECRETS, Masker
from fairlead.errors import UnknownTool
from tests.conftest import Machine
from tests.host.support import hosting
from tests.host.test_hidden_text import Answers, server, tool

pytestmark = pytest.mark.requirement("HARD-62")

SECRET = "sk-LEAK/TEST+abc123XYZ789qq"
FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 at an offset": base64.b64encode(b"user:" + SECRET.encode()).decode(),
    "hex": SECRET.encode().hex(),
    "capital hex": SECRET.encode().hex().upper(),
    "percent": quote(SECRET, safe=""),
    "split by a hidden character": f"{SECRET[:8]}\u200b{SECRET[8:]}",
    "split by an escape sequence": f"{SECRET[:8]}\x1b[31m{SECRET[8:]}",
    "html": "".join(f"&#{ord(letter)};" for letter in SECRET),
}


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know no secret, as a process that has started no server."""
    for name, value in vars(Masker()).items():
        monkeypatch.setattr(SECRETS, name, value)


def leaking(*forms: str, **fields: Any) -> Answers:
    """The entry of a server that writes a secret of its environment wherever there is room for words."""
    tools: list[Answers] = [tool("plain")]
    resources: list[Answers] = []
    templates: list[Answers] = []
    prompts: list[Answers] = []
    for place, form in enumerate(forms):
        argument = {"type": "string", "description": form, "default": form, "enum": ["plain", form]}
        schema: Answers = {"type": "object", "description": form, "properties": {"a": argument}}
        meta = {"ui": {form: form}}
        tools += (
            tool(f"t{place}", title=form, description=f"says {form}", inputSchema=schema, _meta=meta),
            tool(f"named{place}", inputSchema={"type": "object", "properties": {form: {"type": "string"}}}),
            tool(f"broken{place}", inputSchema=form),
            tool(f"get_{form}"),
        )
        words: Answers = {"title": form, "description": form}
        resources += ({"uri": f"x:{place}", "name": form, **words}, {"uri": f"x:{form}", "name": "gone"})
        templates += ({"uriTemplate": f"y{place}:{{a}}", **words}, {"uriTemplate": f"z:{form}/{{a}}"})
        arguments = [{"name": "a", "description": form}]
        prompts += ({"name": f"p{place}", "arguments": arguments, **words}, {"name": form})
    entry = server(
        tools=tools,
        resources=resources,
        templates=[{"name": "template", **template} for template in templates],
        prompts=prompts,
    )
    return {**entry, "env": {"LEAKED": "${LEAKED}"}, **fields}


USABLE = sorted(["plain", *(f"{kind}{place}" for kind in ("t", "broken") for place in range(len(FORMS)))])


def secrets_in(said: str) -> list[str]:
    masker = Masker()
    masker.learn(SECRET)
    return [line for line in said.splitlines() if masker.mask_known(line) != line]


def stored_values(machine: Machine) -> str:
    with closing(sqlite3.connect(store_file(machine.env))) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        rows = [row for table in tables for row in database.execute(f"select * from {table}")]
    values = [value for row in rows for value in row]
    return "\n".join(
        value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values
    )


async def test_a_process_that_does_not_know_a_secret_shows_none_of_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = SECRET
    async with hosting(machine, s=leaking(*FORMS.values())) as host:
        await host.connect("s")
        said = json.dumps((await host.tools.for_openai()).definitions, ensure_ascii=False)
        assert secrets_in(said) == []
        assert sorted(listed.key.tool for listed in await host.tools.list()) == USABLE
    assert secrets_in(stored_values(machine)) == []
    forget(monkeypatch)
    async with hosting(machine, s=leaking(*FORMS.values())) as host:
        shown = [(await host.tools.for_openai()).definitions, [*map(str, host.status())]]
        shown += [
            (await getattr(host.tools, f"for_{name}")()).definitions for name in ("anthropic", "gemini")
        ]
        listing = host.listing("s")
        assert listing is not None
        shown += [[repr(each)] for each in (listing, listing.resources, listing.templates, listing.prompts)]
        assert secrets_in(json.dumps(shown, ensure_ascii=False)) == []
        assert sorted(listed.key.tool for listed in await host.tools.list()) == USABLE
        assert len(listing.resources) == len(listing.templates) == len(listing.prompts) == len(FORMS)


async def test_a_tool_that_was_pinned_with_a_secret_in_it_is_the_same_when_it_is_read_from_the_store(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = SECRET
    entry = leaking(*FORMS.values(), trust="untrusted", allow_tools=["*"])
    async with hosting(machine, s=entry) as host:
        await host.connect("s")
        assert sorted(listed.key.tool for listed in await host.tools.list()) == USABLE
    assert secrets_in(stored_values(machine)) == []
    forget(monkeypatch)
    async with hosting(machine, s=entry) as host:
        assert sorted(listed.key.tool for listed in await host.tools.list()) == USABLE
        await host.connect("s")
        assert sorted(listed.key.tool for listed in await host.tools.list()) == USABLE
    assert secrets_in(stored_values(machine)) == []


@pytest.mark.parametrize(
    ("secret", "name"),
    [
        ("AbC.dEf.0123456789", "get_AbC.dEf.0123456789"),
        ("AbC_dEf_0123456789", "AbC.dEf.0123456789"),
        ("AbCdEf0123456789", "".join(chr(ord(letter) + 0xFEE0) for letter in "AbCdEf0123456789")),
        ("AbCdEf0123456789", "AbC\u0301dEf0123456789"),
        ("AbCdEf0123456789", "AbCdEf\u200b0123456789"),
        ("AbCdEf0123456789", b"AbCdEf0123456789".hex()),
        ("AbCdEf0123456789", base64.b64encode(b"xAbCdEf0123456789").decode()),
    ],
)
async def test_a_tool_whose_public_name_would_hold_a_secret_is_rejected(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, secret: str, name: str
) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = secret
    entry = {**server(tools=[tool(name), tool("plain")]), "env": {"LEAKED": "${LEAKED}"}}
    async with hosting(machine, s=entry) as host:
        await host.connect("s")
        assert [listed.key.tool for listed in await host.tools.list()] == ["plain"]
        assert [listed.key.tool for listed in await host.tools_of("s")] == ["plain"]
        listing = host.listing("s")
        assert listing is not None
        assert any("its name holds a secret" in note for note in listing.notes)
        with pytest.raises(UnknownTool):
            await host.tools.call(name, {})


async def test_tools_of_a_server_have_titles_and_descriptions_that_are_cleaned_and_masked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = SECRET
    entry = leaking(*FORMS.values(), "\u202ehid\u200bden\x1b[31m")
    async with hosting(machine, s=entry) as host:
        await host.connect("s")
        found = await host.tools_of("s")
        said = [f"{listed.title} {listed.description}" for listed in found]
        assert secrets_in("\n".join(said)) == []
        assert all(text.isprintable() for text in said), said
        assert any("hidden" in text for text in said)


async def test_a_snapshot_of_an_earlier_release_is_not_read_and_the_server_is_asked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = SECRET
    async with hosting(machine, s=leaking(SECRET)) as host:
        await host.connect("s")
    with closing(sqlite3.connect(store_file(machine.env))) as database, database:
        ((value,),) = database.execute("select value from entry where namespace = 'catalog'").fetchall()
        old = json.loads(value)
        old.pop("format")
        old["tools"] = [tool("t", description=SECRET)]
        database.execute(
            "update entry set value = ? where namespace = 'catalog'", (json.dumps(old).encode(),)
        )
    forget(monkeypatch)
    async with hosting(machine, s=leaking(SECRET)) as host:
        assert host.listing("s") is None
        said = json.dumps((await host.tools.for_openai()).definitions, ensure_ascii=False)
        assert "says" in said
        assert secrets_in(said) == []
    assert secrets_in(stored_values(machine)) == []

"""The small parts that pages are made of."""

from importlib.resources import files

import anyio
import pytest

from fairlead.config.secrets.masking import SECRETS
from fairlead.web.app import STATIC
from fairlead.web.html import document, tag
from fairlead.web.layout import code_path, prose, table
from fairlead.web.live import ChangeSignal
from fairlead.web.page_request import own_path
from tests.host.test_stored_secrets import forget


@pytest.mark.requirement("HARD-54")
def test_whatever_is_not_html_is_text() -> None:
    inside = ["<b>", tag("i", "&"), None, 3, ("x", ["\"'"])]
    assert tag("p", inside).markup == "<p>&lt;b&gt;<i>&amp;</i>3x&quot;&#x27;</p>"
    assert tag("input", value='"><script>', disabled=True, checked=False).markup == (
        '<input value="&quot;&gt;&lt;script&gt;" disabled>'
    )
    assert tag("p", "a\u202eb\x1b", class_="x", aria_label="y").markup == (
        '<p class="x" aria-label="y">a⟨U+202E⟩b⟨U+001B⟩</p>'
    )
    assert document(tag("body")) == '<!doctype html>\n<html lang="en"><body></body></html>'


def test_what_stands_in_backticks_is_shown_as_programs_write_it() -> None:
    shown = tag("p", prose("run `fairlead <x>` now"))
    assert shown.markup == "<p>run <code>fairlead &lt;x&gt;</code> now</p>"
    assert tag("p", prose("a ` alone")).markup == "<p>a ` alone</p>"
    assert code_path("/a/b.json").markup == "<code><wbr>/a<wbr>/b.json</code>"


@pytest.mark.requirement("HARD-54")
def test_a_secret_is_masked_before_a_text_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    secret = "kq`7/vR2`xx/Lm9Qw4"
    SECRETS.learn(secret)
    for shown in (tag("p", prose(f"it said {secret}")), code_path(f"/home/{secret}/x")):
        assert "vR2" not in shown.markup
        assert "Lm9" not in shown.markup


def test_several_parts_of_a_cell_are_one_on_a_narrow_screen() -> None:
    shown = table("t", ("a", "b", "c", "d"), [("1", "x", ("y", tag("b", "z")), (None, []))]).markup
    assert 'data-column="b">x</td>' in shown
    assert 'data-column="c"><div>y<b>z</b></div></td>' in shown
    assert 'data-column="d"></td>' in shown


@pytest.mark.parametrize("address", ["javascript:alert(1)", "//evil.example", "data:text/html,x", " /", ""])
def test_no_page_leads_to_such_an_address(address: str) -> None:
    with pytest.raises(ValueError, match="no page leads"):
        tag("a", href=address)


@pytest.mark.parametrize(
    "text", ["", "x", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb"]
)
def test_forms_lead_back_to_this_site_alone(text: str) -> None:
    assert own_path(text, "/here") == "/here"
    assert own_path("/tools?q=a", "/here") == "/tools?q=a"


def test_what_browsers_load_is_small() -> None:
    folder = files("fairlead.web") / "static"
    sizes = {name: len((folder / name).read_bytes()) for name in STATIC}
    assert sum(sizes.values()) < 30_000
    assert len((folder / "live.js").read_text().splitlines()) < 150
    for name in STATIC:
        text = (folder / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text, "nothing is loaded from elsewhere"


async def test_many_changes_are_told_as_one() -> None:
    told = ChangeSignal()
    seen: list[bool] = []

    async def watch() -> None:
        async for changed in told.watch(0.5):
            seen.append(changed)
            if len(seen) == 2:
                told.close()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            for _ in range(100):
                told.note()
    assert seen == [True, False]

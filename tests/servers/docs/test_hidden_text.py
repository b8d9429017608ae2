"""Text in a page that people do not see, and text that only looks as if."""

import time

import pytest

from fairlead.servers.docs.html import is_hiding
from fairlead.servers.docs.pages import read_page

HIDDEN = [
    "display:none",
    "DISPLAY : NONE !important",
    "dis/**/play:none",
    "d\\69 splay: none",
    "display:n\\6fne",
    "display:none;display:none",
    "visibility:hidden",
    "visibility: collapse",
    "content-visibility: hidden",
    "font-size:0",
    "font-size: 0px !important",
    "font-size:0.01em",
    "font-size:/* x */0",
    "FONT-SIZE:1px",
    "font: 0/0 a",
    "opacity:0",
    "opacity: 0.0",
    "opacity:.01",
    "opacity:0%",
    "filter: opacity(0)",
    "position:absolute;left:-9999px",
    "position: fixed; top: -100em",
    "position:absolute;right:-5000px",
    "text-indent:-9999px",
    "margin-left:-9999px",
    "transform: scale(0)",
    "transform:scale(0, 0)",
    "transform: translateX(-9999px)",
    "transform:translate(-9999px,0)",
    "clip:rect(0,0,0,0)",
    "clip: rect(1px 1px 1px 1px)",
    "clip-path: inset(50%)",
    "clip-path:circle(0)",
    "width:0;overflow:hidden",
    "height: 1px; overflow: hidden",
    "max-height:0;overflow:hidden",
    "color:transparent",
    "color: rgba(0,0,0,0)",
    "color:#fff0",
    "color: rgb(0 0 0 / 0)",
    "color:white;background:#fff",
    "font-size:calc(0px)",
    "font-size: min(0px, 1em)",
    "font-size: clamp(0px, 1vw, 1px)",
    "--s:0;font-size:var(--s)",
    "font-size: var(--none, 0)",
    "opacity:calc(0)",
    "opacity: calc(1 - 1)",
    "--a:var(--b);--b:0;opacity:var(--a)",
    "opacity: 4e-3",
    "zoom:0",
    "position:absolute;left:calc(-9999px)",
    "position:absolute;left:calc(0px - 9999px)",
    "position:absolute;left:9999px",
    "position:absolute;inset:0 auto auto -9999px",
    "position:fixed;inset-block-start:-200vh",
    "margin:0 0 0 -9999px",
    "margin-inline-start:-9999px",
    "text-indent:9999px",
    "transform:translate(calc(-100% - 9999px))",
    "translate:0 -9999px",
    "transform:matrix(1,0,0,1,-9999,0)",
    "transform: matrix(0, 0, 0, 0, 0, 0)",
    "transform:scale(.001)",
    "scale: .01",
    "color:#000;-webkit-text-fill-color:transparent",
    "color: #000000; background-color: black",
    "color:#fefefe;background:#ffffff",
    "color: rgb(255 255 255); background: white",
    "color:hsl(0,0%,100%);background-color:#FFF",
    "filter: blur(20px)",
    "clip-path: inset(0 100% 0 0)",
    "clip-path:inset(60% 0 40%)",
    "clip-path: ellipse(0 0)",
    "block-size:0;overflow:clip",
    "max-inline-size:0;overflow:hidden",
    "height:0;overflow-y:hidden",
    "height:0;overflow:auto",
    "height:1px;contain:paint",
    "line-height:0;overflow:hidden",
    "text-indent:100%;white-space:nowrap;overflow:hidden",
    "transform:scale(1, 0)",
    "transform: rotateX(90deg)",
    "rotate: y 90deg",
    "transform:matrix3d(0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1)",
    "position:absolute;right:100vw",
    "position:absolute;left: 300%",
    "position:fixed;inset-inline-end:-9999px",
]
SEEN = [
    "font-size:0.9em",
    "font-size: 12px",
    "font: 12px/1.5 serif",
    "opacity:0.8",
    "opacity: 1",
    "position:relative;left:-1px",
    "left:-9999px",
    "text-indent:-1em",
    "margin-left:-20px",
    "transform: scale(0.9)",
    "transform:translateX(-50%)",
    "clip-path: inset(0)",
    "width:0",
    "width:100%;overflow:hidden",
    "color:#333;background:#fff",
    "color: rgba(0,0,0,0.8)",
    "display:block",
    "visibility:visible",
    "display:none;display:block",
    "color:inherit",
    "color:rgb(0,0,0)",
    "color: rgb(10 20 30 / 50%)",
    "width:100vw;margin-left:calc(50% - 50vw)",
    "position:absolute;left:calc(100% - 2rem)",
    "font-size:clamp(1rem, 2.5vw, 2rem)",
    "font-size:max(12px, 0.8em)",
    "font-size:calc(1rem + 0.5vw)",
    "--gap:4px;margin:var(--gap) auto",
    "opacity:var(--shade)",
    "opacity:calc(1 - 0.2)",
    "margin:0 auto 2rem -1rem",
    "transform:matrix(1,0,0,1,12,0)",
    "scale:1.5",
    "zoom:1",
    "color:#eee;background:#111",
    "color:#fff;background:url(x.png)",
    "color: rgb(200 0 0); background: rgb(255, 255, 255)",
    "filter: blur(1px)",
    "clip-path: inset(10% 0)",
    "height:100%;overflow:auto",
    "line-height:1;overflow:hidden",
    "text-indent:2em;overflow:hidden",
    "transform: matrix(0, 1, -1, 0, 0, 0)",
    "transform:rotate(90deg)",
    "transform:scale(-1, 1)",
    "position:absolute;left:100%",
    "",
]


@pytest.mark.requirement("HARD-63")
@pytest.mark.parametrize("style", HIDDEN)
def test_text_that_a_style_hides_is_dropped(style: str) -> None:
    assert is_hiding(style)
    page = read(f'<p>seen</p><div style="{style}">SECRET <b>more</b></div>')
    assert page == "seen"


@pytest.mark.requirement("HARD-63")
@pytest.mark.parametrize("style", SEEN)
def test_text_that_a_style_shows_is_kept(style: str) -> None:
    assert not is_hiding(style)
    assert "KEPT" in read(f'<p>seen</p><div style="{style}">KEPT</div>')


@pytest.mark.requirement("HARD-63")
@pytest.mark.parametrize(
    "body",
    [
        "<style>.x{display:none}</style><p class='a x'>SECRET</p>",
        "<style>#y { font-size : 0 }</style><p id=y>SECRET</p>",
        "<style>/* .q{} */ p.z, .w{opacity:0}</style><p class=z>SECRET</p>",
        "<style>em{position:absolute;left:-9999px}</style><em>SECRET</em>",
        "<p class=late>SECRET</p><style>.late{visibility:hidden!important}</style>",
        "<style>@layer x{.x{display:none}}</style><p class=x>SECRET</p>",
        "<style>@media screen{.x{opacity:0}}</style><p class=x>SECRET</p>",
        "<style>@supports (display:grid){#y{font-size:0}}</style><p id=y>SECRET</p>",
        "<style>div .x{display:none}</style><div><b><p class=x>SECRET</p></b></div>",
        "<style>main > div>p.x {opacity:0}</style><main>seen<div><p class='x y'>SECRET</p></div></main>",
        "<style>.a.x{display:none}</style><p class='b x a'>SECRET</p>",
        "<style>p#y.x{display:none}</style><p id=y class=x>SECRET</p>",
        "<style>.menu *{font-size:0}</style><div class=menu><p>SECRET</p></div>",
        "<style>.a>.b .c{opacity:0}</style><div class=a><ul class=b><li class=b><p class=c>SECRET</ul></div>",
        "<style>@media (min-width: 600px){.x{display:none}}</style><p class=x>SECRET</p>",
        "<style>@container (min-width:0){.x{display:none}}</style><p class=x>SECRET</p>",
        "<style>@scope (body){.x{display:none}}</style><p class=x>SECRET</p>",
        "<math><semantics><annotation>SECRET</annotation></semantics></math>",
        "<p hidden>SECRET</p>",
        "<div popover>SECRET</div>",
        "<datalist><option>SECRET</datalist>",
        "<progress value=1>SECRET</progress>",
        "<noframes>SECRET</noframes>",
        "<p aria-hidden=true>SECRET</p>",
        "<noscript>SECRET</noscript>",
        "<template>SECRET</template>",
        "<p title='SECRET'></p>",
        "<div style='font-size&#58;0'>SECRET</div>",
        "<!-- SECRET -->",
    ],
)
def test_text_hidden_by_rules_and_tags_is_dropped(body: str) -> None:
    assert "SECRET" not in read(f"<p>seen</p>{body}")


@pytest.mark.requirement("HARD-63")
@pytest.mark.parametrize(
    "body",
    [
        "<style>.x{display:block}</style><p class=x>KEPT</p>",
        "<style>@media print{.x{display:none}}</style><p class=x>KEPT</p>",
        "<style>.menu .x{display:none}</style><p class=x>KEPT</p>",
        "<style>@media screen and (max-width:40em){.x{display:none}}</style><p class=x>KEPT</p>",
        "<style>@layer x{.y{display:none}} @media print{.x{display:none}}</style><p class=x>KEPT</p>",
        "<style>.a.x{display:none}</style><p class=x>KEPT</p>",
        "<style>div > .x{display:none}</style><div><ul><li class=x>KEPT</li></ul></div>",
        "<style>.x div{display:none}</style><div class=x>KEPT</div>",
        "<style>.a > .b > .c{display:none}</style><div class=a><ul class=b><li><p class=c>KEPT</ul></div>",
        "<style>@media (min-width:3000px){.x{display:none}}</style><p class=x>KEPT</p>",
        "<style>p:hover{display:none} a[b]{display:none} , {display:none}</style><p>KEPT</p>",
        "<details><summary>more</summary>KEPT</details>",
    ],
)
def test_text_that_people_can_see_is_kept(body: str) -> None:
    assert "KEPT" in read(f"<p>seen</p>{body}")


M = 1_000_000


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize(
    "page",
    [
        "<h1>" * 190 + "<h1>x</h1>" * (M // 10),
        "<h1><h2><h3>" * 60 + "<p>x</p>" * (M // 8),
        "<blockquote>" * 190 + "<p>x</p>" * (M // 8),
        "<ul><li>" * 90 + "<p>x</p>" * (M // 8),
        ("<b><i>" * 90 + "x" + "</i></b>" * 90) * (M // 1_300),
        "<table><tr><td>a<td>" * 60 + "x" * M,
        "<p style='" + "/*" * (M // 2) + "'>x</p>",
        "<style>" + ".a{" * (M // 3) + "</style>x",
        "<style>" + "a" * M + "</style>x",
        "<p style='clip-path:polygon(" + "0" * 19_000 + "x'>x</p>",
        "<style>" + ".a{opacity:1}" * (M // 13) + "</style>x",
        "<style>"
        + "i i i i i .a{opacity:0}" * 5_000
        + "</style>"
        + "<i>" * 150
        + "<b class=a>x</b>" * (M // 20),
        "<style>" + "i * * * * b{opacity:0}" * 5_000 + "</style>" + "<i>" * 150 + "<b>x</b>" * (M // 20),
        "<style>" + ".b.a{opacity:0}" * 5_000 + "</style>" + "<i>" * 150 + "<b class=a>x</b>" * (M // 20),
        "<style>" + "a" * 999 + " " * (M // 2) + "{opacity:0}</style>x",
        "<p " + " ".join(f"a{n}=1" for n in range(M // 10)) + ">x</p>",
        "<" * M,
        "<!--" * (M // 4),
        "&amp;" * (M // 5),
    ],
    ids=range(19),
)
def test_no_page_costs_more_time_than_its_bound(page: str) -> None:
    started = time.thread_time()
    read(page)
    assert time.thread_time() - started < 8


def read(body: str) -> str:
    return read_page(body.encode(), "text/html", url="https://site.test/").text

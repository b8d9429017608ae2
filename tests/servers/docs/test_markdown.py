"""HTML as Markdown: what documentation is made of."""

from textwrap import dedent

import pytest

from fairlead.servers.docs.html import parse_html
from fairlead.servers.docs.markdown import to_markdown

URL = "https://docs.test/guide/loops.html"


def markdown(html: str, *, limit: int = 100_000) -> str:
    page = parse_html(html, URL)
    return to_markdown(page.main, page.base, limit)[0]


def test_a_page_of_documentation_keeps_all_it_says() -> None:
    html = """
    <head><title>Event loop &mdash; docs</title></head>
    <body>
    <nav><a href="/">Home</a></nav>
    <main>
      <h1>Event   loop<a class="headerlink" href="#event-loop">¶</a></h1>
      <p>The <em>loop</em> runs <code>tasks</code>. See <a href="tasks.html#run">tasks</a>,
         <a href="#below">below</a> and <a href="//other.test/x y">elsewhere</a>.</p>
      <h2>Methods <a href="#methods">#</a></h2>
      <dl class="py function">
        <dt><em>async</em> <code>asyncio.</code><code>run</code>(<em>main</em>)<a href="#run">¶</a></dt>
        <dd><p>Execute <strong>main</strong>.</p>
          <div class="highlight-python notranslate"><div class="highlight"><pre><span>import</span> asyncio

    run()
</pre></div></div>
        </dd>
        <dt>stop()</dt><dd>Stop.</dd>
      </dl>
      <ul><li>one</li><li>two<ul><li>nested</li></ul></li></ul>
      <ol start="3"><li>three</li><li><p>four</p><p>more</p></li></ol>
      <table><caption>Names</caption>
        <thead><tr><th>Name</th><th>Meaning</th></tr></thead>
        <tr><td>a|b</td><td>first <a href="/x">x</a></td></tr><tr><td>c</td></tr></table>
      <blockquote><p>said</p><p>twice</p></blockquote>
      <hr>
      <p>line<br>break <img src="x.png" alt="a picture"></p>
    </main>
    <footer>Copyright</footer>
    """
    assert markdown(html) == dedent("""\
        # Event loop

        The *loop* runs `tasks`. See [tasks](https://docs.test/guide/tasks.html#run), below and \
[elsewhere](https://other.test/x%20y).

        ## Methods

        - async asyncio.run(main)
          Execute **main**.

          ```python
          import asyncio

              run()
          ```
        - stop()
          Stop.

        - one
        - two
          - nested

        3. three
        4. four

           more

        Names

        | Name | Meaning |
        |---|---|
        | a\\|b | first [x](https://docs.test/x) |
        | c |  |

        > said
        >
        > twice

        ---

        line
        break ![a picture]""")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a<b> b </b>c<i></i>", "a **b** c"),
        ("<p><code>x</code> <b><code>y</code></b>", "`x` **`y`**"),
        ("<code><a href='/x'>X</a>()</code>", "[X](https://docs.test/x)()"),
        ("<a href='/x'><div><h3>Card</h3>words</div></a>after", "### Card\n\nwords\n\n<https://docs.test/x>\n\nafter"),
        ("<a href='javascript:x()'>y</a> <a>z</a> <a href='http://['>w</a>", "y z w"),
        ("<pre><code class='language-rust hljs'>let x;</code></pre>", "```rust\nlet x;\n```"),
        ("<pre class='lang-text'>a\r\nb</pre>", "```\na\nb\n```"),
        ("<pre>a<br>b</pre><pre> </pre>", "```\na\nb\n```"),
        ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
        ("<table><tr><td>1\n2<td><pre>a</pre></table>", "1 2\n\n```\na\n```"),
        ("<table><tr><td class=linenos>1<td><pre>a</pre></table>", "```\na\n```"),
        ("<table><tr><td><table><tr><td>a<td>b</table></table>", "| a | b |\n|---|---|"),
        ("<ul><ul><li>a</ul></ul>", "- a"),
        ("<ul><li></li><li>b</ul>", "- b"),
        ("<ol start=x><li>a</ol>", "1. a"),
        ("<p>a &amp; b &lt;c&gt; *d*", "a & b <c> *d*"),
        ("words <my-tag>in</my-tag> tags", "words in tags"),
        ("<h2></h2><p> </p>", ""),
        ("", ""),
        ("  ", ""),
    ],
)  # fmt: skip
def test_pieces(html: str, text: str) -> None:
    assert markdown(html) == text


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>x</script>",
        "<style>x</style>",
        "<nav>x</nav>",
        "<template>x</template>",
        "<svg><title>x</title></svg>",
        "<button>x</button>",
        "<div hidden>x</div>",
        "<div aria-hidden=true>x</div>",
        "<div style='color: red; display : none'>x</div>",
        "<div style='visibility:hidden'>x</div>",
        "<div role=navigation>x</div>",
        "<span class='a sr-only'>x</span>",
        "<!-- x -->",
        "<div hidden><p>x<p>x</div>",
    ],
)
def test_what_nobody_would_see_is_left_out(hidden: str) -> None:
    assert markdown(f"<main>before {hidden} after</main>").split() == ["before", "after"]


def test_what_is_there_to_be_opened_is_kept() -> None:
    html = "<main><div role=tabpanel hidden>pip</div><div hidden=until-found>conda</div>"
    assert markdown(html) == "pip\n\nconda"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>around<main>main</main>", "main"),
        ("<p>around<div role=main>main</div>", "main"),
        ("<p>around<article>main</article>", "main"),
        ("<article>one</article><article>two</article>", "one\n\ntwo"),
        ("<main> </main><p>elsewhere", "elsewhere"),
        ("<header>site</header><p>words<aside>ads</aside>", "words"),
        ("<header><h1>Title</h1></header><p>words", "# Title\n\nwords"),
        ("<main><header>of it</header><aside>a note</aside></main>", "of it\n\na note"),
    ],
)
def test_the_main_part_is_what_is_read(html: str, text: str) -> None:
    assert markdown(html) == text


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A\n title </title><h1>Heading</h1>", "A title"),
        ("<title></title><h1>A <b>heading</b></h1>", "A heading"),
        ("<svg><title>icon</title></svg><p>x", None),
        ("<title>" + "x" * 1000 + "</title>", "x" * 300),
    ],
)
def test_a_page_has_a_title(html: str, title: str | None) -> None:
    assert parse_html(html, URL).title == title


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("/other/", "https://docs.test/other/x"),
        ("https://cdn.test/y/", "https://cdn.test/y/x"),
        ("http://[", "https://docs.test/guide/x"),
    ],
)
def test_links_are_relative_to_what_the_page_says(base: str, link: str) -> None:
    assert markdown(f"<head><base href='{base}'></head><body><a href=x>y</a>") == f"[y]({link})"


def test_there_is_a_limit_to_everything() -> None:
    page = parse_html("<p>" + "words " * 100 + "<p>more", URL)
    text, whole = to_markdown(page.main, page.base, 50)
    assert (len(text), whole) == (50, False)
    many = parse_html("<a href=x>y</a>" * 1000, URL)
    assert to_markdown(many.main, many.base, 500) == ("", False)
    assert not parse_html("<div>" * 1000 + "x", URL).whole
    assert markdown("<div>" * 50 + "x") == "x"
    assert not parse_html("<br>" * 201_000, URL).whole


def test_deep_lists_do_not_march_off_to_the_right() -> None:
    lines = markdown("<ul><li>x" * 60 + "<br>y").splitlines()
    assert max(map(len, lines)) < 60

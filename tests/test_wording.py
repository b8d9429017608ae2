"""Messages and hints that are joined: no two marks of punctuation meet."""

import re
from pathlib import Path

import pytest

import fairlead
from fairlead.connection.failure_hints import hint_for_slow_start
from fairlead.errors import ServerError
from fairlead.wording import end_sentence, join_clauses, without_server

CLASH = re.compile(r"[?!.][;:]|[;:,][.?!;]|[!?]\.|(?<!\.)\.\.(?![./])")


@pytest.mark.parametrize(
    ("clauses", "said"),
    [
        (("a", "b"), "a; b"),
        (("did you mean `x`?", "run `y`"), "did you mean `x`? Run `y`"),
        (("It ended.", "`x` shows why"), "It ended. `x` shows why"),
        (("one;", "two"), "one; two"),
        (("loading …", "wait"), "loading … Wait"),
        (("a", None, "", "b?", None), "a; b?"),
        ((None,), ""),
    ],
)
def test_clauses_are_joined_as_a_sentence_has_them(clauses: tuple[str | None, ...], said: str) -> None:
    assert join_clauses(*clauses) == said
    assert not CLASH.search(said)


@pytest.mark.parametrize(("text", "said"), [("a", "a."), ("a.", "a."), ("a?", "a?"), ("a; ", "a.")])
def test_a_sentence_ends_once(text: str, said: str) -> None:
    assert end_sentence(text) == said


@pytest.mark.parametrize("noise", [["hello"], ["listening on http://127.0.0.1:80"], []])
@pytest.mark.parametrize("said", [["starting"], ["Password for ada: "], []])
def test_the_hint_of_a_slow_start_reads_well(noise: list[str], said: list[str]) -> None:
    assert not CLASH.search(hint_for_slow_start(stderr_lines=said, noise=noise))


def test_hints_are_joined_in_one_place() -> None:
    """A hint may end with a question mark, and so nothing else puts a mark behind one."""
    joined = re.compile(r"""hint\}[;.,]|; \{[a-z_.]*hint\}""")
    source = Path(fairlead.__file__).parent
    found = [
        f"{path.relative_to(source)}:{number}"
        for path in source.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if joined.search(line)
    ]
    assert found == []


def test_a_message_names_its_server_once() -> None:
    message = str(ServerError("files", str(ServerError("files", "it is away"))))
    assert message == "server `files`: it is away"
    assert without_server(message, "files") == "it is away"
    assert without_server(message, "notes") == message

"""Which files rules leave out."""

import time

import pytest

from fairlead.servers.repo.ignores import GlobInvalid, IgnoreFiles, IgnoreRules, glob_filter


@pytest.mark.parametrize(
    ("line", "path", "left_out"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/down/a.log", True),
        ("*.log", "a.log.txt", None),
        ("/a", "a", True),
        ("/a", "b/a", None),
        ("b/a", "b/a", True),
        ("b/a", "c/b/a", None),
        ("a/", "a", None),
        ("a/**", "a/b/c", True),
        ("a/**", "a", None),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/b/c", True),
        ("**/c", "c", True),
        ("**/b/c", "a/b/c", True),
        ("**/a/**/b/**/c", "x/a/y/b/z/c", True),
        ("**/a/**/b/**/c", "x/b/y/a/z/c", None),
        ("**", "anything/at/all", True),
        ("a*c", "abc", True),
        ("a*c", "a/c", None),
        ("a**c", "abbc", True),
        ("a*b*c*d", "a-b-b-c-d", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", None),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", None),
        ("[^ab].py", "c.py", True),
        ("[a-c].py", "b.py", True),
        ("[]-].py", "-.py", True),
        ("[a-].py", "-.py", True),
        ("*.{py,js}", "a.js", True),
        ("{a,b}/c", "b/c", True),
        (r"\#a", "#a", True),
        (r"\!a", "!a", True),
        (r"\*", "*", True),
        (r"\*", "a", None),
        ("#a", "#a", None),
        ("", "a", None),
        ("/", "a", None),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("!a", "a", False),
        ("[a", "[a", None),
        ("[z-a]", "z", None),
        ("{a", "{a", None),
        ("a}", "a}", None),
        ("{a,{b,c}}", "a", None),
        ("a\\", "a\\", None),
    ],
)
def test_a_rule_fits_a_file(line: str, path: str, left_out: bool | None) -> None:
    assert IgnoreRules([line]).verdict(path, is_folder=False) is left_out


@pytest.mark.parametrize(
    ("line", "fits"), [("a/", True), ("a", True), ("b/", None), ("a/**", None), ("*", True)]
)
def test_a_rule_fits_a_folder(line: str, fits: bool | None) -> None:
    assert IgnoreRules([line]).verdict("a", is_folder=True) is fits


def test_the_last_rule_that_fits_decides() -> None:
    rules = IgnoreRules(["*.log", "!keep.log", "/keep.log", "!a/keep.log"])
    assert rules.verdict("x.log", is_folder=False) is True
    assert rules.verdict("b/keep.log", is_folder=False) is False
    assert rules.verdict("keep.log", is_folder=False) is True
    assert rules.verdict("a/keep.log", is_folder=False) is False


def test_what_is_in_a_folder_that_is_left_out_is_left_out_too() -> None:
    rules = IgnoreRules(["a/", "!a/b.py"])
    assert rules.leave_out("a/b.py")
    assert not rules.leave_out("b/a")


def test_a_nearer_file_decides_and_a_stronger_kind_outdoes_it() -> None:
    above = IgnoreFiles().with_folder({".gitignore": IgnoreRules(["*.log", "/b.txt"])}, 0)
    below = above.with_folder({".gitignore": IgnoreRules(["!*.log", "/b.txt"])}, len("a/"))
    assert above.verdict("x.log", is_folder=False) is True
    assert below.verdict("a/x.log", is_folder=False) is False
    assert above.verdict("a/b.txt", is_folder=False) is None
    assert below.verdict("a/b.txt", is_folder=False) is True

    strong = IgnoreFiles().with_folder({".ignore": IgnoreRules(["x.log"])}, 0)
    assert (
        strong.with_folder({".gitignore": IgnoreRules(["!x.log"])}, 0).verdict("x.log", is_folder=False)
        is True
    )
    assert strong.with_folder({}, 0) is strong


def narrowed(*globs: str) -> IgnoreRules:
    return IgnoreRules(glob_filter(globs).lines)


@pytest.mark.parametrize(
    ("globs", "taken", "left_out"),
    [
        (["*.py"], ["a.py", "src/a.py"], ["a.js"]),
        (["src/**"], ["src/a.py", "src/b/c.js"], ["a.py", "lib/src/a.py"]),
        (["src"], ["src/a.py", "lib/src/b/a.py", "src"], ["a.py"]),
        (["src/"], ["src/a.py", "lib/src/a.py"], ["src", "a.py"]),
        (["/src"], ["src/a.py"], ["lib/src/a.py"]),
        (["./src/*.py"], ["src/a.py"], ["src/b/a.py"]),
        (["*.{py,js}"], ["a.py", "a.js"], ["a.c"]),
        (["!tests"], ["a.py"], ["tests/a.py", "src/tests/a.py"]),
        (["*.py", "!test_*"], ["a.py"], ["test_a.py", "a.js"]),
        (["!test_*", "*.py"], ["a.py", "test_a.py"], ["a.js"]),
        (["!#a", "!!b"], ["a", "b"], ["#a", "!b"]),
        ([], ["a", "b/c"], []),
    ],
)
def test_globs_narrow_a_search(globs: list[str], taken: list[str], left_out: list[str]) -> None:
    rules = narrowed(*globs)
    assert [path for path in taken if rules.leave_out(path)] == []
    assert [path for path in left_out if not rules.leave_out(path)] == []


@pytest.mark.parametrize(
    ("glob", "names_hidden"),
    [
        (".github/**", True),
        ("a/.b", True),
        ("{a,.b}/c", True),
        ("*.py", False),
        ("!.github", False),
        ("./a", False),
    ],
)
def test_a_glob_that_names_something_hidden_asks_for_it(glob: str, names_hidden: bool) -> None:
    assert glob_filter([glob]).names_hidden is names_hidden


@pytest.mark.parametrize(
    ("glob", "reason"),
    [
        ("[a", "`[` is not closed"),
        ("[z-a]", "`z-a` is no range"),
        ("{a", "`{` is not closed"),
        ("a}", "braces"),
        ("{a,{b,c}}", "braces"),
        ("a\\", "nothing after"),
        ("!", "empty"),
        ("/", "empty"),
        ("a\nb", "characters"),
        ("{a,b,c,d}" * 4, "too many"),
    ],
)
def test_what_is_no_glob_is_refused_with_the_reason(glob: str, reason: str) -> None:
    with pytest.raises(GlobInvalid, match=r".") as caught:
        glob_filter([glob])
    assert reason in str(caught.value)


def test_too_many_globs_are_refused() -> None:
    with pytest.raises(GlobInvalid, match="too many"):
        glob_filter(["{a,b,c,d,e,f,g,h}"] * 10)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("a*" * 90 + "b", "a" * 250),
        ("**/a/" * 40 + "b", "a/" * 200 + "c"),
        ("*" * 190 + "b", "a" * 250),
        ("[ab]*" * 40 + "c", "ab" * 120),
    ],
)
def test_no_glob_takes_long_to_try(glob: str, path: str) -> None:
    rules = IgnoreRules([glob])
    started = time.process_time()
    assert rules.verdict(path, is_folder=False) is None
    assert time.process_time() - started < 1

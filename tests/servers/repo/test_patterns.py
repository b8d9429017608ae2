"""The regular expressions of ripgrep, in Python."""

import pytest

from fairlead.servers.repo.patterns import PatternInvalid, line_pattern


def matches(query: str, line: str, *, is_sensitive: bool = True) -> bool:
    pattern = line_pattern(query, is_fixed=False, is_sensitive=is_sensitive)
    return pattern.expression.search(line) is not None


@pytest.mark.parametrize(
    ("query", "line", "expected"),
    [
        ("a++b", "aab", True),
        ("a{2}{2}$", "aaaa", True),
        ("a**", "", True),
        ("^*a", "a", True),
        (r"\x41\x{42}\u0043\u{44}\U00000045", "ABCDE", True),
        (r"\t\a", "\t\a", True),
        (r"\"\/\-\#", '"/-#', True),
        ("(?P<name>a)(?<other>b)", "ab", True),
        ("(?i)A", "a", True),
        ("((?i)A)B", "aB", True),
        ("((?i)A)B", "ab", False),
        ("(?i:A)B", "aB", True),
        ("(?i)a(?-i:B)", "Ab", False),
        ("(?s).(?-s:.)", "ab", True),
        ("(?m)^a", "b\na", True),
        ("x]}", "x]}", True),
        ("[]a]", "]", True),
        ("[^]a]", "]", False),
        ("[a-]", "-", True),
        (r"[\]\-]", "-", True),
        (r"[\x41-\x43]", "B", True),
        ("[[:alpha:]_]", "_", True),
        ("[[:punct:]]", "[", True),
        ("a|", "", True),
        ("()", "", True),
        (r"\B", "", True),
        ("é", "É", False),
    ],
)
def test_an_expression_means_what_it_means_to_ripgrep(query: str, line: str, expected: bool) -> None:
    assert matches(query, line) is expected


@pytest.mark.parametrize(
    "query", [r"a\sb", r"a[\s]b", r"a\Db", r"a\Wb", "a[^x]b", r"a[\x00-\x7f]b", "a[[:space:]]b", r"a[\n]b"]
)
def test_nothing_matches_the_end_of_a_line(query: str) -> None:
    assert not matches(query, "a\nb")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("(", "unclosed group"),
        ("a)", "unopened group"),
        ("[a", "unclosed character class"),
        ("[a-", "invalid range"),
        ("[z-a]", "bad character range"),
        (r"[a-\d]", "invalid range"),
        (r"[\q]", "unrecognized escape"),
        ("*a", "missing expression"),
        ("a{", "a brace as such"),
        ("a{3,2}", "min repeat greater"),
        ("a(?=b)", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        (r"a\nb", "within one line"),
        (r"a\x0ab", "within one line"),
        ("a\\", "incomplete escape"),
        (r"\q", "unrecognized escape"),
        (r"\x{d800}", "not a Unicode character"),
        (r"\pL", "without ripgrep"),
        (r"\A", "without ripgrep"),
        (r"\b{start}", "without ripgrep"),
        ("[a&&b]", "without ripgrep"),
        ("[a[b]]", "without ripgrep"),
        ("(?x)a", "the flag `x`"),
        ("(?-m)a", "the flag `m`"),
        ("a(?i)b", "at the start"),
        ("(?#a)", "unrecognized flag"),
        ("(?P=a)", "unrecognized flag"),
        ("a{99999999999}", "too large"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(query: str, reason: str) -> None:
    with pytest.raises(PatternInvalid) as caught:
        line_pattern(query, is_fixed=False, is_sensitive=True)
    assert reason in str(caught.value)


def test_an_expression_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(PatternInvalid, match="nested too deeply"):
        line_pattern("(" * 490 + "a" + ")*" * 490, is_fixed=False, is_sensitive=True)


@pytest.mark.parametrize(
    ("query", "literals"),
    [
        ("needle", ("needle",)),
        (r"\bneedle\w+\(self", ("needle",)),
        (r"a\.b+c", ("a.",)),
        ("foo|bar+", ("foo", "ba")),
        ("foo|b.", ()),
        ("(foo|bar)x", ("foo", "bar")),
        ("(foo|b)longer", ("longer",)),
        ("(foo)?", ()),
        ("(?i:foo)", ()),
        ("x", ()),
        (r"\d+", ()),
    ],
)
def test_what_every_match_has_in_it_is_known(query: str, literals: tuple[str, ...]) -> None:
    assert line_pattern(query, is_fixed=False, is_sensitive=True).literals == literals


@pytest.mark.parametrize(("query", "literals"), [("Straße", ("stra",)), ("(?i)Foo", ("foo",)), ("ÀÉ", ())])
def test_without_case_only_plain_letters_help(query: str, literals: tuple[str, ...]) -> None:
    assert line_pattern(query, is_fixed=False, is_sensitive=False).literals == literals


def test_a_fixed_query_means_itself() -> None:
    pattern = line_pattern("a(b*", is_fixed=True, is_sensitive=False)
    assert pattern.literals == ("a(b*",)
    assert pattern.expression.search("x A(B* y")
    assert not pattern.is_sensitive

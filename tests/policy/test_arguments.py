"""Rules on arguments: what a server could take an argument for decides, not how it is written."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fairlead.policy.arguments import MAX_VALUES, ArgumentMatch, PathContext, match, read_arguments
from fairlead.policy.path_spellings import MAX_ENTRIES

CWD = "/srv/deep/down/in/a/project"
LOCAL = PathContext(cwd=CWD, homes=("/home/me",))
REMOTE = PathContext(cwd=None, homes=("/home/me",))
ETC = {"path": "/etc/**"}


def narrowing(
    patterns: dict[str, str], arguments: dict[str, Any], context: PathContext = LOCAL
) -> ArgumentMatch:
    return match(patterns, read_arguments([patterns], arguments, context), narrows=True)


def allows(patterns: dict[str, str], arguments: dict[str, Any], context: PathContext = LOCAL) -> bool:
    return match(patterns, read_arguments([patterns], arguments, context), narrows=False) == "yes"


@pytest.mark.parametrize(
    ("patterns", "arguments"),
    [
        (ETC, {"path": "/etc/passwd"}),
        (ETC, {"path": "/etc/../etc/passwd"}),
        (ETC, {"path": "//etc/passwd"}),
        (ETC, {"path": "/home/me/../../etc/passwd"}),
        (ETC, {"path": "\\etc\\passwd"}),
        (ETC, {"path": ["/tmp/a", "/etc/passwd"]}),
        ({"paths": "*.pem"}, {"paths": {"key": "secret.pem"}}),
        ({"options.force": "true"}, {"options": {"force": True}}),
        ({"count": "[5-9]"}, {"count": 7}),
        ({"a.b": "x"}, {"a.b": "x"}),
        ({"nothing": "null"}, {"nothing": None}),
    ],
)
def test_what_narrows_matches_in_any_reading(patterns: dict[str, str], arguments: dict[str, Any]) -> None:
    assert narrowing(patterns, arguments) == "yes"


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "value",
    [
        "/etc",
        "/etc/",
        "/./etc/./passwd",
        "/etc//passwd",
        f"{'../' * 6}etc/passwd",
        f"a/b/{'../' * 8}etc/passwd",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
        "file://localhost/etc/passwd",
        "file://127.0.0.1/etc/passwd",
        "file:///%65tc/passwd",
        "file:\\\\\\etc\\passwd",
        "view-source:file:///etc/passwd",
        "file:///tmp/../etc/passwd?x#y",
        "file:///proc/self/root/etc/passwd",
        "%2fetc%2fpasswd",
        "%252fetc%252fpasswd",
        "%25252fetc/passwd",
        "/%65%74%63/passwd",
        "..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "~/../../etc/passwd",
        "~root/../etc/passwd",
        "$HOME/../../etc/passwd",
        "${HOME}/../../etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/1/root/etc/passwd",
        "/proc/thread-self/root/etc/passwd",
        "/proc/self/task/1/root/etc/passwd",
        "/proc/self/root/proc/1/root/etc/passwd",
        "/tmp/../proc/self/root/etc/passwd",
        "/dev/../etc/passwd",
        "  /etc/passwd\n",
        '"/etc/passwd"',
        "'/etc/passwd'",
        "/etc/passwd\0.txt",
        "/e\u200btc/passwd",
        "\uff0fetc\uff0fpasswd",
        "/\uff45\uff54\uff43/passwd",
        "/e\ttc/passwd",
        '["/tmp/a", "/etc/passwd"]',
        '{"any": {"/etc/passwd": 1}}',
        {"/etc/passwd": "content"},
        {"a": {"b": ["/etc/passwd"]}},
        [[["/etc/passwd"]]],
        [{"path": "file:///etc/passwd"}],
    ],
)
def test_a_path_is_below_a_denied_folder_however_it_is_written(value: Any) -> None:
    assert narrowing(ETC, {"path": value}) == "yes"
    assert not allows({"path": "/home/me/**"}, {"path": value})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "value",
    [
        "../etc/passwd",
        "../../x/../etc/passwd",
        "$SECRET_PLACE/passwd",
        "/${WHERE}/passwd",
        "/tmp/$(echo ..)/etc/passwd",
        "%SystemRoot%/passwd",
        "/e*/passwd",
        "/{etc,tmp}/passwd",
        "/e[t]c/passwd",
        "/*/passwd",
        "/tmp/*/../../etc/passwd",
        "/proc/self/fd/5",
        "/dev/fd/5",
        "/dev/stdin",
        "/proc/1/cwd/passwd",
        "cat /etc/passwd",
        "/tmp/a:/etc/passwd",
        "/tmp/a,/etc/passwd",
        "--file=/etc/passwd",
        "/tmp/a\n/etc/passwd",
        "@/etc/passwd,x=file:///etc/passwd",
        "/home/me/" + "a/../" * 5_000 + "../../etc/passwd",
        "a/../" * 4_000 + "../../../etc/passwd",
        "%61/../" * 4_000 + "../../../etc/passwd",
        "/a " * 300 + "/etc/passwd",
        "/a," * 300 + "/etc/passwd",
        "/proc/self/cwd/../../etc/passwd",
        "/proc/thread-self/cwd/../../etc/passwd",
        "/proc/self/fd/3/../../etc/passwd",
        "file://etc/passwd",
        "//localhost/etc/passwd",
        ["/", "etc", "passwd"],
        ["/etc", "passwd"],
        {"dir": "/etc", "name": "passwd"},
        {"folder": "etc", "file": "passwd"},
        "@/etc/passwd",
        "-f/etc/passwd",
        "--in/etc/passwd",
        "+/etc/passwd",
        "!/etc/passwd",
        "^/etc/passwd",
        "#/etc/passwd",
        "?/etc/passwd",
        "sftp://localhost/etc/passwd",
        "{/etc,/x}/passwd",
        "{/x,{/etc,/y}}/passwd",
        "**/etc/x",
        ["/tmp/a"] * (MAX_VALUES + 1),
    ],
)
def test_where_it_cannot_be_sure_a_narrowing_rule_may_match_and_an_allowing_one_does_not(value: Any) -> None:
    assert narrowing(ETC, {"path": value}) != "no"
    assert not allows({"path": "/home/me/**"}, {"path": value})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "arguments",
    [
        {"options.path": "/safe", "options": {"path": "/etc/passwd"}},
        {"options.path": "/etc/passwd", "options": {"path": "/safe"}},
        {"options": [{"path": "/safe"}, {"path": "/etc/passwd"}]},
        {"options": {"path": "/safe", "Path": "/etc/passwd"}},
        {"OPTIONS": {"path": "/etc/passwd"}, "options": {"path": "/safe"}},
        {"options": json.dumps({"path": "/etc/passwd"})},
        {"options": {"pa\u200bth": "/etc/passwd", "path": "/safe"}},
        {"options": {" path ": "/etc/passwd"}},
        {"options": {"path": {"path": "/etc/passwd"}}},
    ],
)
def test_a_decoy_beside_the_argument_hides_nothing(arguments: dict[str, Any]) -> None:
    assert narrowing({"options.path": "/etc/**"}, arguments) == "yes"
    assert not allows({"options.path": "/safe/**"}, arguments)


@pytest.mark.requirement("HARD-76")
def test_a_dotted_name_may_be_split_anywhere() -> None:
    rule = {"a.b.c": "/etc/**"}
    for arguments in (
        {"a.b": {"c": "/etc/x"}},
        {"a": {"b.c": "/etc/x"}},
        {"a.b.c": "/etc/x"},
        {"a": {"b": {"c": "/etc/x"}}},
    ):
        assert narrowing(rule, arguments) == "yes"
    assert narrowing(rule, {"a": {"b": "/etc/x"}}) == "no"


@pytest.mark.requirement("HARD-76")
def test_links_are_followed_on_both_sides(tmp_path: Path) -> None:
    secret, project = tmp_path / "secret", tmp_path / "project"
    secret.mkdir()
    project.mkdir()
    (secret / "key.pem").write_text("key")
    (project / "link").symlink_to(secret)
    (project / "notes.txt").symlink_to(secret / "key.pem")
    (tmp_path / "alias").symlink_to(secret)
    local = PathContext(cwd=str(project), homes=())
    for glob in (f"{secret}/**", f"{tmp_path}/alias/**"):
        for path in (
            "link/key.pem",
            f"{project}/link/key.pem",
            "./link/../link/key.pem",
            "notes.txt",
            str(secret),
        ):
            assert narrowing({"path": glob}, {"path": path}, local) == "yes", (glob, path)
    assert narrowing({"path": "*.pem"}, {"path": "notes.txt"}, local) == "yes"
    assert narrowing({"path": "**/secret/**"}, {"path": "link/new"}, local) == "yes"
    assert not allows({"path": f"{project}/**"}, {"path": f"{project}/link/key.pem"}, local)
    assert allows({"path": f"{project}/**"}, {"path": f"{project}/new.txt"}, local)


@pytest.mark.requirement("HARD-76")
def test_a_link_below_a_folder_that_is_left_again_counts_as_the_system_resolves_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "jump").symlink_to(tmp_path / "a" / "b")
    written = f"{tmp_path}/jump/../target"  # a/target to the system, target to who only drops `..`
    assert narrowing({"path": f"{tmp_path}/a/**"}, {"path": written}) == "yes"
    assert narrowing({"path": f"{tmp_path}/target"}, {"path": written}) == "yes"


@pytest.mark.requirement("HARD-76")
def test_a_rule_may_be_written_with_a_tilde_or_as_a_file_url() -> None:
    for glob in ("~/.ssh/**", "file:///home/me/.ssh/**", "/home/me/.ssh/**"):
        for path in (
            "~/.ssh/id",
            "/home/me/.ssh/id",
            "file:///home/me/.ssh/id",
            "$HOME/.ssh/id",
            "~/x/../.ssh",
        ):
            assert narrowing({"path": glob}, {"path": path}) == "yes", (glob, path)


def test_a_relative_path_means_something_only_where_the_working_directory_is_known() -> None:
    assert narrowing(ETC, {"path": "passwd"}, PathContext(cwd="/etc", homes=())) == "yes"
    assert narrowing(ETC, {"path": "passwd"}, LOCAL) == "no"
    assert narrowing(ETC, {"path": "passwd"}, REMOTE) == "maybe"
    assert narrowing(ETC, {"path": "/home/me/x"}, REMOTE) == "no"


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "url",
    [
        "http://internal.example/x",
        "HTTP://INTERNAL.example/x",
        "http://user:pw@internal.example/x",
        "http://internal.example:80/x",
        "http://internal.example./x",
        "http:\\\\internal.example\\x",
        "http://internal.example/a/../x",
        "http://internal.example",
        "http:///internal.example/x",
        "http://\uff49nternal.example/x",
        "http://%69nternal.example/x",
        " http://internal.example/x",
        "ht\ntp://internal.example/x",
    ],
)
def test_a_url_is_below_a_denied_one_however_it_is_written(url: str) -> None:
    assert narrowing({"url": "http://internal.example/**"}, {"url": url}) == "yes"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x", "http://2130706433/x", "http://0x7f.1/x", "http://[::ffff:127.0.0.1]/x"]
)
def test_an_address_is_the_same_in_every_notation(url: str) -> None:
    assert narrowing({"url": "http://127.0.0.1/**"}, {"url": url}) == "yes"


@pytest.mark.parametrize(
    ("patterns", "arguments"),
    [
        (ETC, {}),
        (ETC, {"path": "/home/me/etc/passwd"}),
        (ETC, {"path": "etc/passwd"}),
        (ETC, {"path": "/etcetera/x"}),
        (ETC, {"path": "/tmp/*.txt"}),
        ({"path": "/etc/**", "mode": "w"}, {"path": "/etc/passwd", "mode": "r"}),
        ({"options.force": "true"}, {"options": "true"}),
        ({"list": "x"}, {"list": []}),
        ({"sql": "*DROP*"}, {"sql": "select * from t where a = '$x' and b like '%x%'"}),
        ({"branch": "release/*"}, {"branch": "release"}),
        ({"branch": "main"}, {"branch": "maintenance"}),
        ({"url": "http://internal.example/**"}, {"url": "http://internal.example.org/x"}),
    ],
)
def test_what_does_not_fit_does_not_match(patterns: dict[str, str], arguments: dict[str, Any]) -> None:
    assert narrowing(patterns, arguments) == "no"
    assert not allows(patterns, arguments)


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
    assert allows({"path": "/home/me/**"}, {"path": "/home/me/a"})
    assert not allows({"path": "/home/me/**"}, {"path": value})


@pytest.mark.parametrize(
    ("patterns", "arguments"),
    [
        ({"branch": "feature/*"}, {"branch": "feature/x"}),
        ({"path": "*.md"}, {"path": "docs/a.md"}),
        ({"path": "/home/me/**"}, {"path": "/home/me/a b, (c).txt"}),
        ({"n": "7"}, {"n": 7}),
        ({"url": "https://example.org/**"}, {"url": "https://example.org/a/b?c=d"}),
    ],
)
def test_plain_arguments_are_allowed_as_before(patterns: dict[str, str], arguments: dict[str, Any]) -> None:
    assert allows(patterns, arguments)


def test_hostile_values_are_read_in_bounded_time() -> None:
    deep: Any = "/etc/passwd"
    for _ in range(5_000):
        deep = [deep]
    nested = "%25" * 5_000 + "2fetc"
    for value in (
        deep,
        nested,
        "~" * 100_000,
        "file:" * 50_000,
        "/" * 1_000_000,
        "[" * 200_000,
        "a," * 100_000,
    ):
        narrowing(ETC, {"path": value})
        assert not allows({"path": "/home/me/**"}, {"path": value})
    assert narrowing(ETC, {"path": deep}) == "maybe"


def test_names_of_users_that_do_not_exist_expand_to_nothing() -> None:
    assert os.path.expanduser("~no-such-user-here") == "~no-such-user-here"
    assert narrowing(ETC, {"path": "~no-such-user-here/passwd"}) == "no"


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "value", ["{/etc,/x}/passwd", ["/etc", "passwd"], {"d": "/etc", "n": "passwd"}, "**/passwd"]
)
def test_a_rule_about_one_file_holds_for_pieces_and_wildcards(value: Any) -> None:
    assert narrowing({"path": "/etc/passwd"}, {"path": value}) != "no"


@pytest.mark.requirement("HARD-76")
def test_wildcards_are_followed_through_links(tmp_path: Path) -> None:
    secret, project = tmp_path / "secret", tmp_path / "project"
    secret.mkdir()
    project.mkdir()
    (secret / "key").write_text("key")
    (project / "lnk1").symlink_to(secret)
    local = PathContext(cwd=str(project), homes=())
    for value in ("l*1/key", "./l?k1/key", f"{project}/l*1/key", "{lnk1,x}/key", "l[n]k1/key", "*/key"):
        assert narrowing({"path": f"{secret}/**"}, {"path": value}, local) == "yes", value


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize("glob", ["secrets/**", "./secrets/**", "secrets/key", "./x/../secrets/key"])
@pytest.mark.parametrize(
    "value",
    [
        "secrets/key",
        "./secrets/key",
        f"{CWD}/secrets/key",
        f"file://{CWD}/secrets/key",
        "../project/secrets/key",
        "x/../secrets//key",
    ],
)
def test_a_relative_rule_means_the_file_however_it_is_named(glob: str, value: str) -> None:
    assert narrowing({"path": glob}, {"path": value}) == "yes"
    assert narrowing({"path": glob}, {"path": f"{CWD}/other/key"}) == "no"


@pytest.mark.requirement("HARD-76")
def test_arguments_inside_json_texts_and_lists_are_found() -> None:
    inner = json.dumps({"path": "/etc/passwd"})
    for value in (json.dumps(inner), f"\ufeff{inner}", f"  {inner}"):
        assert narrowing({"options.path": "/etc/**"}, {"options": value}) == "yes"
    assert narrowing({"paths.0": "/etc/**"}, {"paths": ["/etc/passwd", "/tmp"]}) == "yes"
    assert narrowing({"paths.1": "/etc/**"}, {"paths": ["/etc/passwd", "/tmp"]}) == "no"


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "url",
    [
        "http:169.254.169.254/x",
        "//169.254.169.254/x",
        "169.254.169.254/x",
        "url:http://169.254.169.254/x",
        "see http://169.254.169.254/x",
        "<http://169.254.169.254/x>",
        "http://example.com\\@169.254.169.254/x",
        "http://[::169.254.169.254]/x",
        "http://[64:ff9b::a9fe:a9fe]/x",
        "http://[::ffff:a9fe:a9fe]/x",
        f"http://{2852039166 + 2**32}/x",
        "http://2852039166/x",
    ],
)
def test_a_rule_about_an_address_holds_in_every_notation(url: str) -> None:
    assert narrowing({"url": "http://169.254.169.254/**"}, {"url": url}) != "no"
    assert not allows({"url": "https://example.com/**"}, {"url": url})


@pytest.mark.parametrize(
    "value", ["http://x%00y/", "http://[::1/", "http://x:99999999/", "http://\ud800/", "\0"]
)
def test_what_no_parser_takes_is_no_error(value: str) -> None:
    narrowing({"path": "/etc/**", "url": "http://x/**"}, {"path": value, "url": value})


@pytest.mark.parametrize(
    "arguments",
    [
        {"options": '{"path":"/etc/passwd","path":"/safe"}'},
        {"options": '{"path":"/safe","path":"/etc/passwd"}'},
        {"options": '[{"path":"/etc/passwd","x":1,"path":"/safe"}]'},
        {"options[path]": "/etc/passwd"},
        {"options['path']": "/etc/passwd"},
        {"options/path": "/etc/passwd"},
        {"/options/path": "/etc/passwd"},
        {"$.options.path": "/etc/passwd"},
        {"options.path[]": "/etc/passwd"},
        {"options[0][path]": "/etc/passwd"},
        {"options": {"path[0]": "/etc/passwd"}},
        {"options[]": {"/path": "/etc/passwd"}},
    ],
)
def test_repeated_names_and_names_as_forms_write_them_count(arguments: dict[str, Any]) -> None:
    assert narrowing({"options.path": "/etc/**"}, arguments) == "yes"
    assert not allows({"options.path": "/safe"}, arguments)


@pytest.mark.parametrize(
    "text", ["{path:'/etc/passwd'}", '{"path":"/etc/passwd",}', ' [{"path":"/etc/passwd"} x', "{'path':1}"]
)
def test_a_text_that_only_a_lenient_parser_reads_is_a_doubt(text: str) -> None:
    assert narrowing({"options.path": "/etc/**"}, {"options": text}) == "maybe"
    assert narrowing({"options.path": "/etc/**"}, {"options": "a plain text"}) == "no"


def test_wildcards_look_at_a_limited_part_of_the_file_system_and_the_rest_is_in_doubt(
    tmp_path: Path,
) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a").symlink_to("/etc/passwd")
    assert narrowing(ETC, {"path": f"{tmp_path}/few/?"}) == "yes"
    assert narrowing(ETC, {"path": f"{tmp_path}/few/b*"}) == "no"
    for folder in range(8):
        (tmp_path / "many" / str(folder)).mkdir(parents=True)
        for number in range(MAX_ENTRIES // 8):
            (tmp_path / "many" / str(folder) / str(number)).touch()
    assert narrowing(ETC, {"path": f"{tmp_path}/many/0/x*"}) == "no"
    assert narrowing(ETC, {"path": f"{tmp_path}/many/*/*/x"}) == "maybe"

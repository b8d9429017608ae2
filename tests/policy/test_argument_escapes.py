"""Rules on arguments: escapes and encodings that some decoder reads as a denied path."""

from typing import Any

import pytest

from tests.policy.test_arguments import ETC, allows, narrowing


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "value",
    [
        r"\u002fetc/passwd",
        r"\u002Fetc\u002Fpasswd",
        r"\\u002fetc/passwd",
        r"\\\\u002fetc/passwd",
        "\\" * 64 + "u002fetc/passwd",
        r"\U0000002fetc/passwd",
        r"\u{2f}etc/passwd",
        r"\u{00002f}etc/passwd",
        r"\x{2f}etc/passwd",
        r"\x2fetc\x2fpasswd",
        r"/\u0065tc/passwd",
        r"/e\x74c/passwd",
        r"\057etc/passwd",
        r"\57etc\57passwd",
        r"/et\143/passwd",
        r"/e\tc/passwd",
        r"\/etc\/passwd",
        r"%5cu002fetc/passwd",
        "&#47;etc/passwd",
        "&#47etc/passwd",
        "&#0000047;etc/passwd",
        f"&#{'0' * 5000}47;etc/passwd",
        "&#x2f;etc&#X2F;passwd",
        "&sol;etc&sol;passwd",
        "&amp;#47;etc/passwd",
        f"&{'amp;' * 40}#47;etc/passwd",
        "&#37;2fetc/passwd",
        "%26%2347%3betc/passwd",
        "/&#101;tc/passwd",
        "%c0%afetc%c0%afpasswd",
        "%c0%2fetc/passwd",
        "%e0%80%afetc/passwd",
        "%f0%80%80%afetc/passwd",
        "%25c0%25afetc/passwd",
        "%c1%9cetc/passwd",
        f"{'..%c0%af' * 6}etc/passwd",
        f"{'%c0%ae%c0%ae/' * 6}etc/passwd",
        "%u002fetc/passwd",
        "%uff0fetc/passwd",
        "%25u002fetc/passwd",
        "%ef%bc%8fetc/passwd",
        "\u2215etc\u2215passwd",
        "\u2044etc/passwd",
        "\u29f8etc/passwd",
        "\uff3cetc\uff3cpasswd",
        f"{chr(0x2025)}/../../../../../etc/passwd",
        "=2Fetc=2Fpasswd",
        "/=65tc/passwd",
        "+AC8-etc+AC8-passwd",
        "L2V0Yy9wYXNzd2Q=",
        "L2V0Yy9wYXNzd2Q",
        "data:text/plain;base64,L2V0Yy9wYXNzd2Q=",
        "file:%2f%2f%2fetc/passwd",
        "file%3a///etc/passwd",
        "file&colon;///etc/passwd",
        r"file:\u002f\u002f\u002fetc/passwd",
        r"fi\x6ce:///etc/passwd",
        "file:////etc/passwd",
        "file:///etc%c0%afpasswd",
        "jar:file:///etc/passwd!/x",
        {r"\u002fetc/passwd": "content"},
        [["&#47;etc/passwd"]],
    ],
)
def test_a_path_that_some_decoder_reads_below_a_denied_folder_is_denied(value: Any) -> None:
    assert narrowing(ETC, {"path": value}) == "yes"
    assert not allows({"path": "/home/me/**"}, {"path": value})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "value",
    [
        r"$'\x2fetc/passwd'",
        "vscode-file://vscode-app/etc/passwd",
        "sqlite:////etc/passwd",
        "custom://anything/etc/passwd",
        "%" + "25" * 90 + "2fetc/passwd",
        "/a b&amp;c%20d=20\\te\u2215f%2541+AC8-\tg'",
    ],
)
def test_an_escape_that_cannot_be_followed_to_its_end_is_a_doubt(value: str) -> None:
    assert narrowing(ETC, {"path": value}) == "maybe"
    assert not allows({"path": "/home/me/**"}, {"path": value})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize("name", ["%70ath", r"p\u0061th", "&#112;ath", "\uff50ath", "P%41TH"])
def test_the_name_of_an_argument_is_known_in_every_spelling(name: str) -> None:
    assert narrowing(ETC, {name: "/etc/passwd"}) == "yes"


@pytest.mark.parametrize(
    ("glob", "value"),
    [
        ("/home/me/**", "/home/me/a&b.txt"),
        ("/home/me/**", "/home/me/a=20b.txt"),
        ("/home/me/**", "/home/me/100%.txt"),
        ("/home/me/**", "/home/me/c++/x.h"),
        ("https://example.org/*", "https://example.org/a?b=20&copy=1"),
    ],
)
def test_what_only_looks_like_an_escape_is_allowed_as_before(glob: str, value: str) -> None:
    assert allows({"path": glob}, {"path": value})


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "value",
    [
        "\\" * 16_000,
        "&#" + "9" * 16_000,
        "&#x" + "f" * 16_000,
        "&amp;" * 3_200,
        "+" + "A" * 16_000,
        "\\u{" * 5_000,
        "\ud83d%41",
        r"\ud83d",
        "&#xd800;/x",
        "+AAA",
        "L2V0Yy9wYXNzd2\u212a=",
        "data:text/plain;base64,\u017f2V0Yy9wYXNzd2Q=",
        ["/a b&amp;c%20d=20\\te\u2215" + str(number) for number in range(3_000)],
    ],
)
def test_hostile_escapes_are_no_error_and_allow_nothing(value: Any) -> None:
    assert not allows({"path": "/home/me/**"}, {"path": value})

import re

import pytest
from benchmarks.languages import QUESTIONS, TOOLS, documents
from hypothesis import given
from hypothesis import strategies as st

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.search import search
from fairlead.catalog.search.thesaurus import FAMILIES, RELATED
from fairlead.catalog.search.tokenize import STOP_WORDS, pieces, squash, stem, terms
from fairlead.catalog.search.topics import TOPICS
from tests.catalog.tools import document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listPullRequests", ["list", "pull", "request"]),
        ("list_pull-requests", ["list", "pull", "request"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("the URLs of it", ["url"]),
        ("GitHub", ["git", "hub", "github"]),
        ("github", ["github"]),
        ("ec2", ["ec", "2", "ec2"]),
        ("café CAFE", ["cafe", "cafe"]),
        ("ｆｕｌｌ　ｗｉｄｔｈ", ["full", "width"]),  # noqa: RUF001 - full-width on purpose
        ("please help me", []),
        ("", []),
        ("⚙️ !?", []),
    ],
)
def test_a_text_is_the_terms_it_can_be_found_by(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_text_without_spaces_is_found_by_pairs_of_characters() -> None:
    assert terms("北京天气") == ["北京", "京天", "天气"]
    assert terms("図") == ["図"]
    assert terms("用Python查询") == ["用", "python", "查询"]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("créerFichier", "créer un fichier"),
        ("СоздатьФайл", "создать файл"),
        ("δημιουργίαΑρχείου", "αρχείου"),
        ("größeÄndern", "größe ändern"),
    ],
)
def test_camel_case_is_split_in_any_letters(name: str, query: str) -> None:
    assert {*terms(name)} >= {term for term in terms(query) if term != "un"}
    assert {*terms(name)} >= {*terms(name.casefold())}


@pytest.mark.parametrize(("query", "found"), [("館", ["a"]), ("本", ["b"]), ("天", ["c"]), ("ロ", [])])
def test_one_character_finds_the_longer_words_that_have_it(query: str, found: list[str]) -> None:
    texts = {"a": "図書館を検索", "b": "日本語の辞書", "c": "天気予報"}
    index = Index.build([document(name, name, text) for name, text in texts.items()])
    assert [hit.key.server_id for hit in search(index, query)] == found


def test_forms_of_one_word_are_one_term() -> None:
    for forms in (
        "calculate calculates calculating calculated calculation calculator",
        "analyze analysis analytics analyses",
        "convert converting conversion",
        "repo repos repository repositories",
        "verify verifies verification",
    ):
        assert len(set(terms(forms))) == 1, forms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("билеты", "билета"),
        ("ёлка", "елка"),
        ("الطَّقس", "الطقس"),
        ("prévisions", "previsions"),
        ("Übersetzt", "ubersetzt"),
        ("\uff30\uff24\uff26", "pdf"),
        ("ışık", "isik"),  # noqa: RUF001
        ("đường", "duong"),
        ("ŁÓDŹ", "lodz"),
        ("αρχεία", "αρχείου"),
        ("फ़ाइलें", "फ़ाइल"),
        ("שָׁלוֹם", "שלום"),
        ("\u06a9\u062a\u0627\u0628\u06cc", "\u0643\u062a\u0627\u0628\u064a"),
        ("Wet\u00adter", "Wetter"),
    ],
)
def test_words_of_other_languages_are_found_in_other_forms(one: str, other: str) -> None:
    assert terms(one) == terms(other) != []


@pytest.mark.parametrize("language", TOOLS)
def test_tools_are_found_in_their_own_language(language: str) -> None:
    index = Index.build(documents(language))
    for query, expected in QUESTIONS[language].items():
        assert search(index, query)[0].key.tool == expected, query


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("PDFs", "PDF"),
        ("pdfs", "pdf"),
        ("CSVs", "csv"),
        ("list PRs", "list PR"),
        ("VMs", "vm"),
        ("PPTs", "presentation"),
        ("powerpoints", "presentation"),
        ("XLSs", "spreadsheets"),
        ("DOCX", "document"),
    ],
)
def test_several_of_an_abbreviation_are_one_term_with_it(many: str, one: str) -> None:
    assert terms(many) == terms(one)


@pytest.mark.parametrize("word", ["css", "dns", "sms", "gps", "tls", "rss"])
def test_an_abbreviation_that_ends_as_a_plural_does_is_none(word: str) -> None:
    assert terms(word) == terms(word.upper()) == [word]


def test_news_is_not_new() -> None:
    assert terms("news") != terms("new")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"),
        ("ties", "tie"),
        ("cries", "cri"),
        ("gas", "gas"),
        ("gaps", "gap"),
        ("agreed", "agre"),
        ("hopping", "hop"),
        ("hoping", "hope"),
        ("adding", "add"),
        ("sing", "sing"),
        ("happy", "happi"),
        ("say", "say"),
        ("relational", "relat"),
        ("quickly", "quick"),
        ("geology", "geolog"),
        ("hopefulness", "hope"),
        ("formative", "format"),
        ("adoption", "adopt"),
        ("controlling", "control"),
        ("generally", "general"),
        ("youth", "youth"),
        ("by", "by"),
        ("héros", "héros"),
    ],
)
def test_a_stem_follows_the_rules_of_snowballs_english_stemmer(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", max_size=30))
def test_every_word_has_a_stem_that_is_hardly_longer(word: str) -> None:
    assert len(stem(word)) <= len(word) + 1
    assert bool(stem(word)) == bool(word)


@given(st.text(max_size=300))
def test_every_text_has_terms_without_blanks_or_capitals(text: str) -> None:
    for term in terms(text):
        assert term
        assert not re.search(r"\s", term)
        assert term == term.casefold()


def test_a_word_keeps_the_signs_that_are_no_letters() -> None:
    assert pieces("दिन_दान ที่อยู่") == ["दिन", "दान", "ที่อยู่"]
    assert squash("दिन") != squash("दान")
    assert terms("दिन") != terms("दान")


def test_a_hebrew_word_is_found_without_the_words_written_with_it() -> None:
    assert set(terms("תיקייה")) <= set(terms("מהתיקייה"))
    assert set(terms("הודעה")) & set(terms("ההודעות"))


def test_a_name_is_one_however_it_is_written() -> None:
    names = ("find_symbol", "findSymbol", "Find-Symbol", "find symbol", "FIND.SYMBOL", "ｆｉｎｄ symbol")  # noqa: RUF001
    assert {squash(name) for name in names} == {"findsymbol"}


def test_a_name_falls_into_its_words() -> None:
    assert pieces("mcp__fs__readFile2") == ["mcp", "fs", "read", "file", "2"]
    assert pieces("список_файлов") == ["список", "файлов"]


def test_one_endless_word_is_cut_up_rather_than_kept() -> None:
    assert max(map(len, terms("x" * 100_000))) <= 64


def test_the_words_of_the_thesaurus_are_plain_and_of_one_family() -> None:
    topics = [word for group in TOPICS for words in group for word in words]
    words = {*FAMILIES, *FAMILIES.values(), *(word for group in RELATED for word in group), *topics}
    assert all(re.fullmatch("[a-z0-9]+", word) for word in words)
    assert not FAMILIES.keys() & set(FAMILIES.values())
    assert not STOP_WORDS & words, "no query has them"
    assert all(heads and members for heads, members in TOPICS)

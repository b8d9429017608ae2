import logging
import subprocess
import sys
from functools import cache

import pytest

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.search import search
from fairlead.catalog.search.vectors import Encoder, ToolVectors
from tests.catalog.tools import TOOLS, document


@cache
def encoder() -> Encoder:
    return Encoder.load()


def vectors(index: Index) -> ToolVectors:
    return ToolVectors.build(encoder(), index, TOOLS)


def test_texts_that_mean_nearly_the_same_are_near() -> None:
    physician, doctor, carpet = encoder().encode(["see a physician", "visit a doctor", "clean the carpet"])
    assert physician @ doctor > physician @ carpet


def test_a_text_without_tokens_is_near_nothing() -> None:
    assert not encoder().encode([""]).any()


def test_a_text_is_its_words_however_they_are_spaced() -> None:
    plain, spaced = encoder().encode(
        ["Read the contents of a file.", "  Read the\n\n\tcontents of a  file. "]
    )
    assert (plain == spaced).all()


def test_no_more_are_near_than_were_asked_for() -> None:
    compared = vectors(Index.build(TOOLS)).compare("read a file")
    every = compared.nearest(len(TOOLS), -1.0)
    assert sorted(every) == [*range(len(TOOLS))]
    nearest = compared.nearest(3, -1.0)
    assert sorted(compared.of(nearest)) == sorted(compared.of(every))[-3:]
    assert compared.nearest(3, 1.1) == []


def test_a_tool_is_found_without_a_word_in_common() -> None:
    tools = [
        document("desk", "book_physician", "Arrange to see a physician."),
        document("desk", "clean_carpet", "Have the carpet cleaned."),
    ]
    index = Index.build(tools)
    meaning = ToolVectors.build(encoder(), index, tools)
    query = "vacuum the rug"
    assert search(index, query) == ()
    [first, *_] = search(index, query, meaning=meaning)
    assert first.key.tool == "clean_carpet"
    assert first.why.likeness is not None
    assert "likeness" in str(first.why)
    assert search(index, "quarterly tax report", meaning=meaning) == ()


@pytest.mark.requirement("NEED-11")
def test_a_name_comes_first_whatever_is_near() -> None:
    index = Index.build(TOOLS)
    for tool in TOOLS:
        assert search(index, tool.name, meaning=vectors(index))[0].key == tool.key


def test_only_the_tools_of_one_server_where_that_is_asked_for() -> None:
    index = Index.build(TOOLS)
    hits = search(index, "storm warnings", server="fs", meaning=vectors(index))
    assert {hit.key.server_id for hit in hits} <= {"fs"}


def test_selected_names_are_not_compared() -> None:
    index = Index.build(TOOLS)
    [hit] = search(index, "select:read_file", meaning=vectors(index))
    assert (hit.key.tool, hit.why.likeness) == ("read_file", None)


def test_renewed_vectors_are_those_of_a_new_index() -> None:
    index = Index.build(TOOLS)
    anew = [document("weather", "tide_table", "High and low water at the coast.")]
    later = index.replace("weather", anew)
    renewed = vectors(index).renew(later, anew)
    rebuilt = ToolVectors.build(encoder(), later, [*TOOLS, *anew])
    for query in ("ebb and flood", "a file", "storms"):
        found = [(hit.key, hit.score) for hit in search(later, query, meaning=renewed)]
        assert found == [(hit.key, hit.score) for hit in search(later, query, meaning=rebuilt)]


def test_an_empty_index_can_be_searched() -> None:
    assert search(Index(), "anything", meaning=vectors(Index())) == ()


def test_loading_leaves_the_logging_of_the_process_alone() -> None:
    handlers = [*logging.getLogger().handlers]
    Encoder.load()
    assert logging.getLogger().handlers == handlers
    assert "wordllama" not in sys.modules


@pytest.mark.parametrize("missing", ["numpy", "tokenizers", "safetensors"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from fairlead.errors import FairleadError\n"
        "try:\n    import fairlead.catalog.search.vectors\n"
        "except FairleadError as error:\n    print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "fairlead[search]" in done.stdout

"""Fuzz targets without a fuzzer: over their corpora, and over random changes of these for a moment."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.exam.targets import NAMES, load, seeds

MAX_CHANGES = 4


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_is_small_and_holds(name: str) -> None:
    files = seeds(name)
    assert files
    assert all(file.stat().st_size <= 1_000 for file in files)
    check = load(name)
    for file in files:
        _check(check, file)


def _check(check: object, file: Path) -> None:
    assert callable(check)
    try:
        check(file.read_bytes())
    except BaseException as exc:
        exc.add_note(f"with {file}")
        raise


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_seed_holds(name: str) -> None:
    check = load(name)
    examples = [file.read_bytes() for file in seeds(name)]

    @settings(
        max_examples=150,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        check(data.draw(_changed(examples), label="input"))

    run()


@st.composite
def _changed(draw: st.DrawFn, examples: list[bytes]) -> bytes:
    """A seed with a few parts of it replaced by bytes, or by parts of other seeds."""
    text = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(0, MAX_CHANGES))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 8)))
        other = draw(st.sampled_from(examples))
        at = draw(st.integers(0, len(other)))
        put = draw(st.one_of(st.binary(max_size=4), st.just(other[at : at + draw(st.integers(1, 40))])))
        text = text[:start] + put + text[end:]
    return text

"""The postings of a term side by side, as bytes: what `array_sums` takes in without looking at each."""

from array import array
from collections.abc import Collection, Mapping
from typing import NamedTuple


class Columns(NamedTuple):
    """The postings of a term, in numbers of 64 bits."""

    slots: bytes
    scores: bytes
    champions: bytes
    """The slots of the tools that the term brings up by itself."""
    length: int


def in_columns(posting: Mapping[int, float], champions: Collection[int]) -> Columns:
    """The postings of one term."""
    return Columns(
        slots=array("q", posting).tobytes(),
        scores=array("d", posting.values()).tobytes(),
        champions=array("q", champions).tobytes(),
        length=len(posting),
    )

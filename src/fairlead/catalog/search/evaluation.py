"""Evaluation of search quality: queries with known answers, and the rank of the answers among the hits.

Both come from files with one JSON object per line, gzipped or not. Tools: `id`, `name`, and where there is
any `server`, `server_desc`, `description`, `input_schema`. Queries: `id`, `query`, and `gold`, a list of
groups of ids; one id of each group has to be found. A session has `queries` in place of `query`: its searches
in a row.
"""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlead.catalog.search.index import SearchDocument
from fairlead.catalog.tools import ToolKey
from fairlead.errors import ConfigInvalid, ConfigUnreadable, Problem

RECALL_AT = 5
GAIN_AT = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchQuestion:
    """A query, and its expected result: one tool of each group."""

    question_id: str
    text: str
    gold: tuple[frozenset[str], ...]
    searches: tuple[str, ...] = ()
    """The searches of a session in a row; the text alone where there is one."""

    @property
    def is_session(self) -> bool:
        """Whether it has several searches."""
        return len(self.searches) > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """Means over some queries, each from 0 to 1."""

    questions: int
    recall: float
    """Recall: share of the groups found among the first five hits."""
    reciprocal_rank: float
    """Mean reciprocal rank of the first hit in a group."""
    gain: float
    """NDCG of the first ten hits."""


def measure(questions: Iterable[SearchQuestion], find: Callable[[str], Sequence[str]]) -> Quality:
    """Evaluate all queries. `find` returns the ids it finds for a text, best first."""
    rows = [judge(find(question.text), question.gold) for question in questions]
    if not rows:
        return Quality(questions=0, recall=0.0, reciprocal_rank=0.0, gain=0.0)
    recall, reciprocal_rank, gain = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    return Quality(questions=len(rows), recall=recall, reciprocal_rank=reciprocal_rank, gain=gain)


def judge(found: Sequence[str], gold: Sequence[frozenset[str]]) -> tuple[float, float, float]:
    """Recall, reciprocal rank and gain of one list of ids. A second id of a group counts for nothing."""
    open_groups = list(gold)
    answered_at: list[int] = []
    for place, tool_id in enumerate(found[:GAIN_AT], start=1):
        answered = [group for group in open_groups if tool_id in group]
        open_groups = [group for group in open_groups if tool_id not in group]
        answered_at += [place] * len(answered)
    best = sum(1 / log2(place + 1) for place in range(1, min(len(gold), GAIN_AT) + 1))
    return (
        sum(place <= RECALL_AT for place in answered_at) / len(gold),
        1 / answered_at[0] if answered_at else 0.0,
        sum(1 / log2(place + 1) for place in set(answered_at)) / best,
    )


class _ExpectedTool(msgspec.Struct):
    id: str
    name: str
    server: str = ""
    server_desc: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Question(msgspec.Struct):
    id: str
    gold: list[list[str]]
    query: str = ""
    queries: list[str] = []


def read_tools(path: Path) -> list[SearchDocument]:
    """Tools in a file, with their ids as the names in their keys."""
    return [
        SearchDocument(
            # A tool without a server gets one of its own, without a description.
            key=ToolKey(tool.server or tool.id, tool.id),
            name=tool.name,
            description=tool.description or "",
            input_schema=tool.input_schema or {},
            server=tool.server or "-",
            server_description=tool.server_desc or "",
        )
        for tool in _read(path, _ExpectedTool)
    ]


def read_questions(path: Path) -> list[SearchQuestion]:
    """Queries in a file. Those without an answer are left out."""
    return [
        SearchQuestion(
            question_id=line.id,
            text=line.query or " ".join(line.queries),
            gold=tuple(map(frozenset, filter(None, line.gold))),
            searches=tuple(line.queries) or (line.query,),
        )
        for line in _read(path, _Question)
        if any(line.gold) and (line.query or line.queries)
    ]


LineT = TypeVar("LineT")


def _read(path: Path, kind: type[LineT]) -> Iterator[LineT]:
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    except (OSError, EOFError, zlib.error) as exc:
        reason = (isinstance(exc, OSError) and exc.strerror) or exc
        raise ConfigUnreadable(f"cannot read `{path}`: {reason}", hint="check the path") from exc
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(lines, start=1):
        # Editors begin files with a mark of the byte order, and end parts of them with blank lines.
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise ConfigInvalid(Problem(message=str(exc), file=str(path), line=number)) from exc

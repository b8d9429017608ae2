"""How well and how fast tools are found, side by side with simpler ways to search.

    uv run --extra search python -m benchmarks.search [--data DIR] [--quick] [PART …]

DIR has a folder per set of questions, with `tools.jsonl` and `queries.jsonl` in it, in the form that
`fairlead.catalog.search.evaluation` describes, and a large catalog, `*tools.jsonl.gz`, for the rest. Without
it, a small set of our own is used, with 50 tools: that everything works is all that its numbers say.

How good a search is can only be told from sets nobody looked at while making it, and only in comparison: what
is easy in one set is hard in another. So quality has no goal here, but the simpler ways beside it.
"""

import argparse
import dataclasses
import gc
import json
import math
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec.structs import replace

from benchmarks.languages import QUESTIONS
from benchmarks.languages import documents as language_documents
from benchmarks.measuring import ROOT, Cost, Goal, begin_part, leave_out, resident, show, slowness
from fairlead.catalog.catalog import Catalog, CatalogPart
from fairlead.catalog.search import score as ranking
from fairlead.catalog.search.evaluation import Quality, SearchQuestion, measure, read_questions, read_tools
from fairlead.catalog.search.index import Index, SearchDocument, tool_texts
from fairlead.catalog.search.memory import CurrentMemory, PastQueries, ToolMemory
from fairlead.catalog.search.score import SemanticIndex
from fairlead.catalog.search.search import SearchHit, search
from fairlead.catalog.search.tokenize import STOP_WORDS, pieces, squash, stem
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.errors import FairleadError
from fairlead.host.model.search_exam import measure_answers, remember_questions
from fairlead.host.search_memory import FRESH_SECONDS, SearchMemory
from fairlead.store.async_store import AsyncStore

MEGABYTE = 1024 * 1024
OWN = ROOT / "benchmarks" / "questions"
"""Tools and questions written for this project."""
Thing = TypeVar("Thing")
Find = Callable[[str], Sequence[str]]

Ask = Callable[[str], object]

OURS, OURS_IN_ARRAYS, OURS_DENSE = "ours", "ours, in arrays", "ours, by meaning too"
CODEX_LIKE = "codex-like"
OURS_REMEMBERING = "ours, with 10,000 past queries"
MOST_MS = {OURS: 2, OURS_REMEMBERING: 2, OURS_IN_ARRAYS: 1, OURS_DENSE: 2}
"""Of CPU, for nineteen of twenty queries, where goals were set (see `slowness`)."""


# ── what we compare with ──


class FlatBM25:
    """BM25 over one bag of words per tool."""

    def __init__(
        self, documents: Sequence[SearchDocument], split: Callable[[str], list[str]], *, k1: float
    ) -> None:
        self._split = split
        self._ids = [document.key.tool for document in documents]
        bags = [split(" ".join([*_flat(document)])) for document in documents]
        usual = sum(map(len, bags)) / len(bags)
        postings: dict[str, dict[int, float]] = {}
        for number, bag in enumerate(bags):
            length = 0.25 + 0.75 * len(bag) / usual
            for word, count in Counter(bag).items():
                postings.setdefault(word, {})[number] = count * (k1 + 1) / (count + k1 * length)
        self._postings = postings

    def find(self, text: str) -> list[str]:
        """The ids of the first ten."""
        scores: Counter[int] = Counter()
        for word in self._split(text):
            posting = self._postings.get(word, {})
            rarity = math.log(1 + (len(self._ids) - len(posting) + 0.5) / (len(posting) + 0.5))
            for number, score in posting.items():
                scores[number] += rarity * score  # pyright: ignore[reportArgumentType] - a Counter of floats
        best = sorted(scores, key=lambda number: (-scores[number], number))[:10]
        return [self._ids[number] for number in best]


def _flat(document: SearchDocument) -> Iterable[str]:
    return (text for _, text in tool_texts(document))


def plain_words(text: str) -> list[str]:
    """Words as they are: the way of fastmcp's search transform."""
    return [word for word in re.split(r"[\W_]+", text.lower()) if len(word) > 1]


def stemmed_words(text: str) -> list[str]:
    """Words of camelCase too, stemmed and without stop words: the way of Codex's tool search."""
    spread = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()
    return [stem(word) for word in re.split(r"[\W_]+", spread) if word and word not in STOP_WORDS]


def with_servers(documents: Iterable[SearchDocument]) -> list[SearchDocument]:
    """The documents with what is said about the server in the description."""
    return [
        replace(
            document, description=f"{document.description} {document.server} {document.server_description}"
        )
        for document in documents
    ]


# ── ours ──


@cache
def encoder() -> object | None:
    """What the extra brings, where it is installed."""
    try:
        from fairlead.catalog.search.vectors import Encoder
    except FairleadError as missing:
        leave_out("search by meaning", f"{missing}: {missing.hint}")
        return None
    return Encoder.load()


def meaning_of(index: Index, documents: Sequence[SearchDocument]) -> SemanticIndex | None:
    """The tools' vectors."""
    from fairlead.catalog.search.vectors import Encoder, ToolVectors

    loaded = encoder()
    return ToolVectors.build(loaded, index, documents) if isinstance(loaded, Encoder) else None


def ids(index: Index, meaning: SemanticIndex | None, text: str) -> list[str]:
    """The ids of our first ten."""
    return [hit.key.tool for hit in search(index, text, limit=10, meaning=meaning)]


def ways(documents: Sequence[SearchDocument]) -> dict[str, Find]:
    """Every way to search these tools."""
    index = Index.build(documents)
    found: dict[str, Find] = {
        "fastmcp-like": FlatBM25(documents, plain_words, k1=1.5).find,
        CODEX_LIKE: FlatBM25(with_servers(documents), stemmed_words, k1=1.2).find,
        OURS: partial(ids, index, None),
    }
    if encoder() is not None:
        found[OURS_DENSE] = partial(ids, index, meaning_of(index, documents))
    return found


# ── parts ──


def quality(data: Path, *, quick: bool) -> None:
    """Questions with known answers."""
    results: dict[str, list[Quality]] = {}
    sets = sorted(path.parent for path in data.glob("*/queries.jsonl"))
    for folder in sets:
        questions = read_questions(folder / "queries.jsonl")[: 100 if quick else None]
        for name, find in ways(read_tools(folder / "tools.jsonl")).items():
            results.setdefault(name, []).append(measure(questions, find))
    for title, pick in (("Recall of the first 5, %", _recall), ("NDCG of the first 10, %", _gain)):
        rows: list[tuple[object, ...]] = []
        for name, found in results.items():
            values = [100 * pick(result) for result in found]
            rows.append((name, *values, f"{statistics.mean(values):.1f}"))
        show(title, ("way", *(folder.name for folder in sets), "mean"), rows)


def _recall(result: Quality) -> float:
    return result.recall


def _gain(result: Quality) -> float:
    return result.gain


def known(data: Path, *, quick: bool) -> None:
    """Tools of the large catalog, asked for by name: as it is written, and as words."""
    documents = large(data)
    names = {document.key.tool: document.name for document in documents}
    asked = _some(sorted(set(names.values())), 20 if quick else 2)
    rows: list[tuple[object, ...]] = []
    for way, find in ways(documents).items():
        exact = sum(_first(find, name, names) == name for name in asked) / len(asked)
        words = [name for name in asked if pieces(name)]
        as_words = sum(
            squash(_first(find, " ".join(pieces(name)), names)) == squash(name) for name in words
        ) / len(words)
        goals = tuple(
            Goal(value=100 * share, at_least=99.5, unit=" %", label=label)
            for share, label in ((exact, "name"), (as_words, "as words"))
        )
        rows.append((way, 100 * exact, 100 * as_words, goals if way == OURS else None))
    title = f"Asked for by name, first hit, % of {len(asked):,} names among {len(documents):,} tools"
    show(title, ("way", "name", "as words", "goal"), rows)


def _some(things: Sequence[Thing], every: int) -> Sequence[Thing]:
    """One of so many; of a few things more of them."""
    return things[:: max(1, min(every, len(things) // 10))]


def _first(find: Find, text: str, names: dict[str, str]) -> str:
    found = find(text)
    return names[found[0]] if found else ""


def speed(data: Path, *, quick: bool) -> None:
    """CPU of this process per query, among the tools of the large catalog."""
    documents = large(data)
    index = Index.build(documents)
    every = 20 if quick else 4
    queries: dict[str, list[str]] = {
        "names as words": [" ".join(pieces(document.name)) for document in _some(documents, every * 10)]
    }
    for path in sorted(data.glob("*/queries.jsonl")):
        queries[path.parent.name] = [question.text for question in _some(read_questions(path), every)]
    asks: dict[str, Ask] = {OURS: partial(search_from, 10**9, index, None)}
    asks[OURS_REMEMBERING] = partial(search_from, 10**9, index, None, memory=_much_memory(documents))
    if encoder() is not None:
        asks[OURS_IN_ARRAYS] = partial(search_from, 0, index, None)
        asks[OURS_DENSE] = partial(search_from, 0, index, meaning_of(index, documents))
        _same_hits(asks[OURS], asks[OURS_IN_ARRAYS], [text for texts in queries.values() for text in texts])
    asks[CODEX_LIKE] = FlatBM25(with_servers(documents), stemmed_words, k1=1.2).find
    gc.collect()
    taken = {name: _taken(asks, texts, rounds=3 if quick else 5) for name, texts in queries.items()}
    taken["all of these"] = {way: [took for each in taken.values() for took in each[way]] for way in asks}
    factor = slowness()
    rows: list[tuple[object, ...]] = []
    for name, ways in taken.items():
        for way, costs in ways.items():
            most = _most([cost.cpu for cost in costs])
            goal = None
            if way in MOST_MS:
                goal = Goal(value=most, at_most=MOST_MS[way], unit=" ms", factor=factor, label="p95")
            middle = statistics.median(cost.cpu for cost in costs)
            rows.append((f"{name}: {way}", middle, most, _most([cost.wall for cost in costs]), goal))
    columns = ("what", "p50", "p95", "p95 wall", "goal")
    show(f"CPU ms per query among {len(documents):,} tools", columns, rows)
    usual = _most([cost.cpu for cost in taken["all of these"][OURS]])
    for way in asks:
        ratio = _most([cost.cpu for cost in taken["all of these"][way]]) / usual
        print(f"p95 of {way} is {ratio:.2f} times that of {OURS}")


def search_from(
    arrays_from: int,
    index: Index,
    meaning: SemanticIndex | None,
    text: str,
    *,
    memory: CurrentMemory | None = None,
) -> tuple[SearchHit, ...]:
    """Our hits, with arrays if there are so many tools."""
    ranking.MANY_TOOLS = arrays_from
    return search(index, text, meaning=meaning, memory=memory)


def _much_memory(documents: Sequence[SearchDocument]) -> CurrentMemory:
    """A memory of ten thousand queries, each made of what a tool says it does."""
    remembered: list[ToolMemory] = []
    for document in documents[:10_000]:
        found = ToolMemory(
            principal="",
            server_id=document.key.server_id,
            tool=document.key.tool,
            definition_digest="",
            queries=[],
        )
        found.add([f"{' '.join(pieces(document.name))} {document.description}"[:80]], "one", 1.0)
        remembered.append(found)
    return CurrentMemory(PastQueries(remembered), lambda key, digest: True)


def _same_hits(one: Ask, other: Ask, texts: Sequence[str]) -> None:
    different = [text for text in texts if one(text) != other(text)]
    print(f"with and without arrays, {len(texts) - len(different):,} of {len(texts):,} queries find the same")
    if different:
        raise SystemExit(f"not the same: {different[0]!r}")


def _taken(asks: Mapping[str, Ask], texts: Sequence[str], *, rounds: int) -> dict[str, list[Cost]]:
    """What each query takes each way, in ms: the median of rounds in which all ways take turns."""
    taken: dict[str, list[list[Cost]]] = {way: [[] for _ in texts] for way in asks}
    for _ in range(rounds):
        for number, text in enumerate(texts):
            for way, ask in asks.items():
                taken[way][number].append(_least(ask, text))
    return {way: [_middle(costs) for costs in each] for way, each in taken.items()}


def _least(ask: Ask, text: str) -> Cost:
    """The best of three: what else runs here is not ours."""
    cpus: list[float] = []
    walls: list[float] = []
    for _ in range(3):
        cpu, wall = time.process_time(), time.perf_counter()
        ask(text)
        cpus.append(1000 * (time.process_time() - cpu))
        walls.append(1000 * (time.perf_counter() - wall))
    return Cost(cpu=min(cpus), wall=min(walls))


def _middle(costs: Sequence[Cost]) -> Cost:
    return Cost(
        cpu=statistics.median(cost.cpu for cost in costs), wall=statistics.median(cost.wall for cost in costs)
    )


def _most(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def build(data: Path, *, quick: bool) -> None:
    """What the index of the large catalog costs to make, to change and to keep."""
    documents = large(data)
    factor = slowness()
    gc.collect()
    held, started = resident(), time.process_time()
    index = Index.build(documents)
    took, held = time.process_time() - started, resident() - held
    servers: dict[str, list[SearchDocument]] = {}
    for document in documents:
        servers.setdefault(document.key.server_id, []).append(document)
    largest, usual = (sorted(servers.values(), key=len)[place] for place in (-1, len(servers) // 2))
    rows: list[tuple[object, ...]] = [
        (
            f"build, {len(documents):,} tools",
            took * 1000,
            Goal(value=took, at_most=1.5, unit=" s", factor=factor),
        ),
        ("memory held, MB", held / MEGABYTE, None),
    ]
    for title, group in (("the largest server", largest), ("a usual server", usual)):
        changed = [replace(document, description=f"{document.description} Anew.") for document in group]
        update = _median_of(lambda changed=changed: index.replace(changed[0].key.server_id, changed), quick)
        goal = Goal(value=update, at_most=20, unit=" ms", factor=factor)
        rows.append((f"all {len(group)} tools of {title} changed", update, goal))
    columns = [index.columns(term) for term in index.postings]
    size = sum(len(each.slots) + len(each.scores) + len(each.champions) for each in columns)
    rows.append(("memory held in arrays once all terms were asked for, MB", size / MEGABYTE, None))
    same = _median_of(lambda: index.replace(usual[0].key.server_id, usual), quick)
    rows.append(("the same listing again", same, None))
    if encoder() is not None:
        started = time.process_time()
        meaning_of(index, documents)
        rows.append(("vectors of all tools", (time.process_time() - started) * 1000, None))
    show("The index, CPU ms", ("what", "CPU ms", "goal"), rows)


def _median_of(work: Callable[[], object], quick: bool) -> float:  # noqa: FBT001 - how often
    taken: list[float] = []
    for _ in range(3 if quick else 11):
        started = time.process_time()
        work()
        taken.append((time.process_time() - started) * 1000)
    return statistics.median(taken)


@cache
def large(data: Path) -> list[SearchDocument]:
    """The large catalog; all tools that there are, where there is none."""
    paths = sorted(data.glob("*tools.jsonl.gz")) or sorted(data.glob("*/tools.jsonl"))
    return [document for path in paths for document in read_tools(path)]


# ── what a model sees ──


def catalog_from(documents: Sequence[SearchDocument]) -> tuple[Catalog, dict[str, ToolKey]]:
    """The tools as a host has them, and their keys by their ids in the set."""
    keys: dict[str, ToolKey] = {}
    servers: dict[str, list[ToolEntry]] = {}
    descriptions: dict[str, str] = {}
    for number, document in enumerate(documents):
        # A tool without a server has one of its own here, whose name says nothing.
        server = f"-{number}" if document.server == "-" else document.key.server_id
        key = ToolKey(server, document.name)
        if any(entry.key == key for entry in servers.get(server, ())):
            key = ToolKey(f"{server}~{number}", document.name)
        keys[document.key.tool] = key
        schema = {**document.input_schema, "type": "object"}
        definition = {"name": key.tool, "description": document.description, "inputSchema": schema}
        entry = ToolEntry(
            key=key, definition=json.dumps(definition).encode(), description=document.description
        )
        servers.setdefault(key.server_id, []).append(entry)
        descriptions[key.server_id] = document.server_description
    parts = [
        CatalogPart(server_id=name, tools=tuple(tools), description=descriptions[name])
        for name, tools in servers.items()
    ]
    return Catalog(parts), keys


def _sessions_of(folder: Path) -> list[SearchQuestion]:
    """Recorded sessions where the set has them; else its questions about several tools, step by step."""
    if (folder / "sessions.jsonl").exists():
        return read_questions(folder / "sessions.jsonl")
    several = [each for each in read_questions(folder / "queries.jsonl") if len(each.gold) > 1]
    return [dataclasses.replace(each, searches=_steps(each.text)) for each in several]


def _steps(text: str) -> tuple[str, ...]:
    parts = re.split(r"(?<=[.!?])\s+|;\s+|\n|,? (?:and )?(?:then|also|finally)\b", text)
    steps = tuple(part.strip() for part in parts if len(part.split()) > 2)
    return steps[:6] or (text,)


def sessions(data: Path, *, quick: bool) -> None:
    """Tasks of several searches: what their answers show, as the meta-tool prints them, and their tokens."""
    rows: list[tuple[object, ...]] = []
    for folder in sorted(path.parent for path in data.glob("*/queries.jsonl")):
        played = _sessions_of(folder)[: 100 if quick else None]
        if not played:
            continue
        catalog, keys = catalog_from(read_tools(folder / "tools.jsonl"))
        for way in (OURS, OURS_DENSE) if encoder() is not None else (OURS,):
            found = measure_answers(catalog, played, keys.get, by_meaning=way == OURS_DENSE)
            rows.append(
                (
                    f"{folder.name}: {way}",
                    found.searches / max(1, found.sessions),
                    100 * found.signatures,
                    100 * found.names,
                    found.tokens,
                    Goal(value=found.tokens, at_most=750, unit=" tokens"),
                )
            )
    columns = ("set", "searches", "signatures", "with names", "tokens per answer", "goal")
    show("Sessions: recall over all answers, %", columns, rows)


def memory(data: Path, *, quick: bool) -> None:
    """The second half of the questions, without a memory and with the first half as the past."""
    rows: list[tuple[object, ...]] = []
    sets = sorted(path.parent for path in data.glob("*/queries.jsonl"))
    results: dict[str, list[float]] = {}
    for folder in sets:
        questions = read_questions(folder / "queries.jsonl")[: 200 if quick else None]
        first, second = questions[: len(questions) // 2], questions[len(questions) // 2 :]
        catalog, keys = catalog_from(read_tools(folder / "tools.jsonl"))
        names = {key: name for name, key in keys.items()}
        past = remember_questions(catalog, first, keys.get)
        for way in (OURS, OURS_DENSE) if encoder() is not None else (OURS,):
            for title, given in (("", None), (", with memory", past)):
                find = partial(catalog.find, limit=5, by_meaning=way == OURS_DENSE, past=given)
                recall = measure(second, partial(_ids_found, find, names)).recall
                results.setdefault(f"{way}{title}", []).append(100 * recall)
    rows += [(way, *values, f"{statistics.mean(values):.1f}") for way, values in results.items()]
    columns = ("way", *(folder.name for folder in sets), "mean")
    show("Recall of the first 5, second half of the questions, %", columns, rows)


def recall(data: Path, *, quick: bool) -> None:
    """CPU of reading a memory of ten thousand queries: first, after a call, and after half a minute."""
    anyio.run(_recall_costs, 3 if quick else 11)


async def _recall_costs(rounds: int) -> None:
    now = [1_000_000_000.0]
    taken: dict[str, list[float]] = {}

    async def take(what: str, work: Awaitable[object]) -> None:
        started = time.process_time()
        await work
        taken.setdefault(what, []).append(1000 * (time.process_time() - started))

    with tempfile.TemporaryDirectory() as folder:
        async with AsyncStore.open(Path(folder) / "store.db") as store:
            filled = SearchMemory(store, lambda: now[0])
            tools = [ToolEntry(key=ToolKey(f"s{at % 50}", f"t{at}"), definition=b"{}") for at in range(1_000)]
            for at, entry in enumerate(tools):
                texts = [f"{word} item{at} of kind{at % 97} {each}" for each, word in enumerate(_VERBS)]
                await filled.remember("ada", entry, texts, "one")
            for number in range(rounds):
                memory = SearchMemory(store, lambda: now[0])
                await take("first", memory.recall("ada"))
                await take("again", memory.recall("ada"))
                await take(
                    "a call", memory.remember("ada", tools[number], ["send what is new"], f"s{number}")
                )
                await take("after a call", memory.recall("ada"))
                now[0] += FRESH_SECONDS
                await take("after half a minute", memory.recall("ada"))
    rows: list[tuple[object, ...]] = [
        (what, statistics.median(costs), max(costs)) for what, costs in taken.items()
    ]
    show("CPU ms of a memory of 10,000 queries", ("what", "p50", "most"), rows)


_VERBS = ("list", "send", "read", "open", "close", "rename", "find", "print", "copy", "move")


def _ids_found(
    find: Callable[[str], Sequence[SearchHit]], names: Mapping[ToolKey, str], text: str
) -> list[str]:
    return [names[hit.key] for hit in find(text)]


def languages(data: Path, *, quick: bool) -> None:
    """Tools and questions in several languages, of our own."""
    rows: list[tuple[object, ...]] = []
    for language, questions in QUESTIONS.items():
        index = Index.build(language_documents(language))
        first = [search(index, text, limit=1) for text in questions]
        right = sum(
            bool(hits) and hits[0].key.tool == gold
            for hits, gold in zip(first, questions.values(), strict=True)
        )
        rows.append((language, len(questions), 100 * right / len(questions)))
    show("Languages: the right tool first, %", ("language", "questions", "first"), rows)


PARTS = {
    "build": build,
    "quality": quality,
    "known": known,
    "speed": speed,
    "sessions": sessions,
    "memory": memory,
    "recall": recall,
    "languages": languages,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=OWN, help="the folder with the sets; ours if not given")
    parser.add_argument("--quick", action="store_true", help="a short run: fewer questions and rounds")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        begin_part(PARTS[part])
        PARTS[part](arguments.data, quick=arguments.quick)

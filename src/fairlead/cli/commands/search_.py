"""`fairlead search`.

Measure the search on the user's own questions, over their own tools.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from fairlead.actions.context import ActionContext
from fairlead.actions.known_catalog import KnownCatalog, read_catalog
from fairlead.actions.searches import embed_queries, forget_searches, read_past_queries, read_past_questions
from fairlead.catalog.catalog import CatalogTool
from fairlead.catalog.search.evaluation import (
    GAIN_AT,
    RECALL_AT,
    SearchQuestion,
    judge,
    measure,
    read_questions,
)
from fairlead.catalog.search.memory import PastQueries
from fairlead.catalog.search.score import SemanticIndex
from fairlead.catalog.search.search import MOST_HITS, SearchHit
from fairlead.catalog.signatures import signature
from fairlead.catalog.tools import ToolKey
from fairlead.cli.catalogs import ask_unknown, bundle_option, warn_of_absent
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedServer
from fairlead.errors import ConfigError
from fairlead.host.model.explain import find_tool_keys
from fairlead.host.model.search_exam import measure_answers, remember_questions
from fairlead.policy.tool_names import means_key
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    on_one_line,
    print_data,
    print_json,
    print_notices,
    print_table,
    printable,
    say,
    warn,
)

PAST = "past"
"""In place of a file of questions: the searches that are remembered, and what they led to."""
_EMBEDDINGS_HINT = "see that it runs at `search.embeddings.url`; the extra `search` has to be installed"


def evaluate(  # noqa: PLR0913 - what the searches go by, named
    context: ActionContext,
    found: KnownCatalog,
    asked: list[SearchQuestion],
    server_id: str | None,
    past: PastQueries,
    *,
    explain: bool,
    as_json: bool,
) -> None:
    """Ask questions, and show how many of the right tools the search brings, and how soon."""
    questions = [_resolve_gold_keys(found, question) for question in asked]
    by_meaning = found.selection.search == "meaning"
    queries = [text for question in questions for text in (question.text, *question.searches)]
    meanings = _compare_by_model(context, found, [*dict.fromkeys(queries)])

    def find(text: str, past: PastQueries | None = past) -> list[str]:
        hits = found.catalog.find(
            text,
            server=server_id,
            limit=GAIN_AT,
            by_meaning=by_meaning,
            past=past,
            meaning=meanings.get(text),
        )
        return [str(hit.key) for hit in hits]

    quality = measure(questions, find)
    shares = {
        f"recall@{RECALL_AT}": quality.recall,
        "mrr": quality.reciprocal_rank,
        f"ndcg@{GAIN_AT}": quality.gain,
        **_measure_memory(found, questions, find),
    }
    keys = {str(tool.key): tool.key for tool in found.catalog.tools}
    answers = measure_answers(
        found.catalog,
        questions,
        keys.get,
        server=server_id,
        by_meaning=by_meaning,
        past=past,
        meanings=meanings,
    )
    shares |= {"shown as signature": answers.signatures, "shown or named": answers.names}
    failed = [question for question in questions if judge(find(question.text), question.gold)[0] < 1]
    if as_json:
        shown = [
            {"id": question.question_id, "query": question.text, "found": find(question.text)[:RECALL_AT]}
            for question in failed
        ]
        named = {name.replace(" ", "_"): value for name, value in shares.items()}
        tokens = {"tokens_per_answer": round(answers.tokens)}
        print_json({"questions": quality.questions, **named, **tokens, "failed": shown})
        return
    rows = [(name, f"{100 * value:5.1f} %") for name, value in shares.items()]
    print_table(("measure", "value"), [*rows, ("tokens per answer", f"{answers.tokens:5.0f}")])
    say(f"\n{quality.questions} questions over {len(found.catalog)} tools; {len(failed)} miss a tool")
    if explain and failed:
        print_data("")
        print_table(
            ("question", "wanted", "found"),
            [_question_row(question, find(question.text)) for question in failed],
        )


def _read_asked(context: ActionContext, wanted: str) -> list[SearchQuestion]:
    """The questions of a file, or what agents searched for and what that led to."""
    if wanted == PAST:
        if not (questions := read_past_questions(context)):
            raise ConfigError(
                "no search is remembered", hint="agents' searches are, unless `search.memory` is off"
            )
        return questions
    if not (questions := read_questions(Path(wanted))):
        raise ConfigError(f"{wanted} has no question with an answer", hint="run `fairlead search --help`")
    return questions


def _compare_by_model(
    context: ActionContext, found: KnownCatalog, queries: list[str]
) -> Mapping[str, SemanticIndex]:
    """What the model of `search.embeddings` compares, if one is configured; says so where it is away."""
    if found.selection.embeddings is None or not len(found.catalog):
        return {}
    from fairlead.terminal.host_run import run_async

    meanings = run_async(partial(embed_queries, context, found, queries))
    if len(meanings) < len(queries):
        warn("the model of `search.embeddings` gave no vectors: the search is by words", _EMBEDDINGS_HINT)
    return meanings


def _measure_memory(
    found: KnownCatalog,
    questions: list[SearchQuestion],
    find: Callable[[str, PastQueries | None], list[str]],
) -> dict[str, float]:
    """Recall of the second half of the questions, without a memory and with the first half as the past."""
    first, second = questions[: len(questions) // 2], questions[len(questions) // 2 :]
    if not first:
        return {}
    keys = {str(tool.key): tool.key for tool in found.catalog.tools}
    memory = remember_questions(found.catalog, first, keys.get)
    return {
        "second half without memory": measure(second, lambda text: find(text, None)).recall,
        "second half with memory": measure(second, lambda text: find(text, memory)).recall,
    }


def _question_row(question: SearchQuestion, found: list[str]) -> tuple[str, ...]:
    missed = [group for group in question.gold if group.isdisjoint(found[:RECALL_AT])]
    wanted = "; ".join(" or ".join(sorted(group)) for group in missed)
    return on_one_line(question.text), wanted, ", ".join(found[:RECALL_AT])


def _resolve_gold_keys(found: KnownCatalog, question: SearchQuestion) -> SearchQuestion:
    """The question with its answers as keys, however they are written there."""
    return replace(question, gold=tuple(_keys(found, question, group) for group in question.gold))


def _keys(found: KnownCatalog, question: SearchQuestion, group: frozenset[str]) -> frozenset[str]:
    keys = frozenset(str(key) for name in group for key in find_tool_keys(name, found.catalog.names))
    if not keys:
        named = ", ".join(sorted(group))
        warn(f"question `{question.question_id}`: agents have no tool {named}", "it counts as not found")
    return keys or group


@click.command("search")
@click.argument("words", nargs=-1)
@click.option("--server", "server_id", metavar="ID", help="Only this server's tools.")
@bundle_option
@click.option(
    "--limit", type=click.IntRange(1, 50), default=5, show_default=True, help="How many to show at most."
)
@click.option(
    "--why",
    "--explain",
    "explain",
    is_flag=True,
    help="Say which of your words brought each tool, how much each counts, and what past searches moved.",
)
@click.option("--forget", is_flag=True, help="Forget which tools past searches led to.")
@click.option(
    "--eval",
    "questions",
    metavar="FILE|past",
    help="Measure the search on questions of your own, or on what agents searched for; with --why, show"
    " those it fails.",
)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    words: tuple[str, ...],
    server_id: str | None,
    bundle: str | None,
    limit: int,
    *,
    explain: bool,
    forget: bool,
    questions: str | None,
    as_json: bool,
) -> int:
    """Find tools by what they do, or by name, as an agent finds them.

    Only tools that agents may use are found. Servers without a snapshot are listed now; unavailable ones
    are named.

    \b
    Examples:
      fairlead search create an issue
      fairlead search "what time is it in Tokyo" --why
      fairlead search rename --server files --limit 10
      fairlead search select:read_file,write_file
      fairlead search --eval questions.jsonl --why
      fairlead search --eval past
      fairlead search --forget

    What an agent calls after a search is remembered, and found sooner by its next searches; `search.memory`
    in your fairlead.json turns that off.

    A file for --eval has a question on each line, or a session with its `queries` in a row. Its `gold` has a
    list for each tool that is needed, of those that would do:

    \b
      {"id": "1", "query": "when is noon in Tokyo", "gold": [["time.convert_time"]]}
    """
    if [bool(words), questions is not None, forget].count(True) != 1:
        raise click.UsageError("say what to search for, name a file with `--eval`, or `--forget`", ctx)
    loaded = load(ctx)
    context = action_context(ctx, loaded)
    if forget:
        return _forget(context, as_json=as_json)
    asked = _read_asked(context, questions) if questions is not None else []
    found = read_catalog(loaded, bundle)
    past = read_past_queries(context)
    servers = [found.server(server_id)] if server_id else found.chosen
    found = ask_unknown(found, servers)
    complete = all(server.server_id in found.listings for server in servers)
    if questions is not None:
        if questions == PAST:  # a search that remembers its very question finds anything
            past = PastQueries()
        evaluate(context, found, asked, server_id, past, explain=explain, as_json=as_json)
        warn_of_absent(found, servers)
        return Exit.OK if complete else Exit.NOT_READY
    by_meaning = found.selection.search == "meaning"
    text = " ".join(words)
    meaning = _compare_by_model(context, found, [text]).get(text)
    find = partial(found.catalog.find, text, server=server_id, by_meaning=by_meaning, meaning=meaning)
    hits = find(limit=limit, past=past)
    # As it would be without a memory: what moved is said.
    before = {hit.key: place for place, hit in enumerate(find(limit=MOST_HITS), start=1)} if len(past) else {}
    if as_json:
        print_json(
            {
                "tools": [_as_json(found, hit, before.get(hit.key)) for hit in hits],
                "unavailable": _reasons_for_absence(found, servers),
            }
        )
    else:
        _show(found, hits, before, explain=explain)
        if explain:
            _say_what_left(hits, before, limit)
        _say_what_is_hidden(found, text, found_none=not hits)
        warn_of_absent(found, servers)
    return Exit.OK if complete else Exit.NOT_READY


def _forget(context: ActionContext, *, as_json: bool) -> int:
    count, notices = forget_searches(context)
    print_notices(notices)
    if as_json:
        print_json({"forgotten": count})
    queries = "1 query" if count == 1 else f"{count} queries"
    say(f"forgot what {queries} led to" if count else "no search is remembered")
    return Exit.OK


def _reasons_for_absence(found: KnownCatalog, servers: list[LoadedServer]) -> dict[str, str]:
    absences = {server.server_id: found.absence(server.server_id) for server in servers}
    return {server_id: absence.reason for server_id, absence in absences.items() if absence is not None}


def _show(
    found: KnownCatalog, hits: tuple[SearchHit, ...], before: Mapping[ToolKey, int], *, explain: bool
) -> None:
    if hits:
        last = "why" if explain else "description"
        rows = [
            _row(found, hit, _describe_move(hit, place, before), explain=explain)
            for place, hit in enumerate(hits, start=1)
        ]
        print_table(("score", "tool", last), rows)
        return
    say(
        "nothing fits among the tools that agents may use"
        if len(found.catalog)
        else "there are no tools that agents may use"
    )


def _say_what_is_hidden(found: KnownCatalog, wanted: str, *, found_none: bool) -> None:
    """Say that a tool of that name is there, if not for agents; where nothing fits, that others are."""
    named = [key for key in found.catalog.hidden if means_key(wanted, key)]
    for key in named:
        say(f"\nhint: {printable(_render_key(key))} is not for agents; `fairlead explain tool` says why")
    if found.catalog.hidden and found_none and not named:
        say("\nhint: `fairlead tools` shows what there is besides, and what agents may use")


def _describe_move(hit: SearchHit, place: int, before: Mapping[ToolKey, int]) -> str:
    """The effect of memory on a hit's rank, if there is one."""
    was = before.get(hit.key)
    if not before or was == place:
        return ""
    if hit.why.remembered is None:  # others took its place, or left it
        return f"; without past searches at place {was}" if was is not None else ""
    return f"; past searches moved it from place {was}" if was is not None else "; past searches found it"


def _say_what_left(hits: tuple[SearchHit, ...], before: Mapping[ToolKey, int], limit: int) -> None:
    """Name the tools that would be shown without past searches."""
    shown = {key for hit in hits for key in (hit.key, *hit.twins)}
    left = [key for key, place in before.items() if place <= limit and key not in shown]
    if left:
        say(f"\nwithout past searches also: {', '.join(printable(_render_key(key)) for key in left)}")


def _row(found: KnownCatalog, hit: SearchHit, moved: str, *, explain: bool) -> tuple[str, ...]:
    entry = _tool(found, hit).entry
    last = f"{_describe_reason(hit)}{moved}" if explain else on_one_line(entry.description or entry.title)
    return f"{hit.score:.2f}", hit.key.qualified, last


def _render_key(key: ToolKey) -> str:
    return key.qualified


def _describe_reason(hit: SearchHit) -> str:
    twins = f"; the same as {', '.join(map(_render_key, hit.twins))}" if hit.twins else ""
    return f"{hit.why}{twins}"


def _as_json(found: KnownCatalog, hit: SearchHit, before: int | None) -> dict[str, Any]:
    tool = _tool(found, hit)
    return {
        "server": hit.key.server_id,
        "tool": hit.key.shown_tool,
        "qualified": hit.key.qualified,
        "name": tool.name,
        "score": round(hit.score, 4),
        "signature": signature(tool.entry, found.catalog.display_name(tool.key)),
        "description": tool.entry.description,
        "why": {
            "name": hit.why.name,
            "terms": {term: round(score, 4) for term, score in hit.why.terms},
            "likeness": hit.why.likeness,
            "remembered": None
            if hit.why.remembered is None
            else {
                "query": hit.why.remembered[0],
                "match": round(hit.why.remembered[1], 4),
                "place_without": before,
            },
        },
        "twins": [{"server": twin.server_id, "tool": twin.shown_tool} for twin in hit.twins],
    }


def _tool(found: KnownCatalog, hit: SearchHit) -> CatalogTool:
    tool = found.catalog.of(hit.key)
    assert tool is not None  # the index is made from the catalog
    return tool

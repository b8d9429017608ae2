"""Measure the search on somebody's own questions, over their own tools."""

from dataclasses import replace
from pathlib import Path

from fairlead.catalog.evaluation import GAIN_AT, RECALL_AT, Question, judge, measure, read_questions
from fairlead.cli.known import Known
from fairlead.cli.offered import on_one_line
from fairlead.cli.output import print_data, print_json, print_table, say, warn
from fairlead.errors import ConfigError
from fairlead.host.explain import tools_called


def evaluate(found: Known, file: Path, server_id: str | None, *, explain: bool, as_json: bool) -> None:
    """Ask the questions of a file, and show how many of the right tools the search brings, and how soon."""
    questions = [_translated(found, question) for question in read_questions(file)]
    if not questions:
        raise ConfigError(f"{file} has no question with an answer", hint="run `fairlead search --help`")

    def find(text: str) -> list[str]:
        by_meaning = found.selection.search == "meaning"
        hits = found.catalog.find(text, server=server_id, limit=GAIN_AT, by_meaning=by_meaning)
        return [str(hit.key) for hit in hits]

    quality = measure(questions, find)
    measured = {
        f"recall@{RECALL_AT}": quality.recall,
        "mrr": quality.reciprocal_rank,
        f"ndcg@{GAIN_AT}": quality.gain,
    }
    failed = [question for question in questions if judge(find(question.text), question.gold)[0] < 1]
    if as_json:
        shown = [
            {"id": question.question_id, "query": question.text, "found": find(question.text)[:RECALL_AT]}
            for question in failed
        ]
        print_json({"questions": quality.questions, **measured, "failed": shown})
        return
    rows = [(name, f"{100 * value:5.1f} %") for name, value in measured.items()]
    print_table(("measure", "value"), rows)
    say(f"\n{quality.questions} questions over {len(found.catalog)} tools; {len(failed)} miss a tool")
    if explain and failed:
        print_data("")
        print_table(
            ("question", "wanted", "found"), [_row(question, find(question.text)) for question in failed]
        )


def _row(question: Question, found: list[str]) -> tuple[str, ...]:
    missed = [group for group in question.gold if group.isdisjoint(found[:RECALL_AT])]
    wanted = "; ".join(" or ".join(sorted(group)) for group in missed)
    return on_one_line(question.text), wanted, ", ".join(found[:RECALL_AT])


def _translated(found: Known, question: Question) -> Question:
    """The question with its answers as keys, however they are written there."""
    return replace(question, gold=tuple(_keys(found, question, group) for group in question.gold))


def _keys(found: Known, question: Question, group: frozenset[str]) -> frozenset[str]:
    keys = frozenset(str(key) for name in group for key in tools_called(name, found.catalog.names))
    if not keys:
        named = ", ".join(sorted(group))
        warn(f"question `{question.question_id}`: agents have no tool {named}", "it counts as not found")
    return keys or group

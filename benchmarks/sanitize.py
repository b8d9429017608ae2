"""What it costs to look for hidden text, and to take it out: 100 KB of several kinds, in milliseconds.

uv run python -m benchmarks.sanitize
"""

import json
import time
from collections.abc import Callable

from benchmarks.measuring import Goal, show
from fairlead.catalog.sanitize.cleaner import clean_literals_steps
from fairlead.catalog.sanitize.slices import finish
from fairlead.catalog.sanitize.text import clean, suspicious

SIZE = 100_000
ROUNDS = 30
ENGLISH = "The quick brown fox jumps over the lazy dog.\n\tThen it left for 'good'. "

ORDINARY = {
    "ASCII": ENGLISH,
    "English, curly quotes": ENGLISH + "It said “hello” — and left. ",
    "French": "Déjà vu à la crème, près de la forêt. ",
    "Russian": "Быстрая коричневая лиса прыгает через собаку. ",
    "Chinese and Japanese": "快速的棕色狐狸跳过懒狗。\n日本語のテキスト、こんにちは。",
    "English with emoji": ENGLISH + "Done 😀 ",
}
HOSTILE = {
    "Windows line ends": ENGLISH.replace("\n", "\r\n"),
    "Persian with joiners": "می\u200cخواهم کتاب\u200cها را ببینم. ",  # noqa: RUF001
    "one hidden in 80": ENGLISH + "\u200b",
    "colours": f"\x1b[31m{ENGLISH}\x1b[0m",
    "hidden only": "\u200b",
}


def sized(piece: str) -> str:
    """The piece again and again, up to 100 KB of UTF-8."""
    return (piece * (SIZE // len(piece.encode()) + 1)).encode()[:SIZE].decode(errors="ignore")


def best(work: Callable[[], object]) -> float:
    """The least time it takes, in milliseconds: what other processes add is not its own."""
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times) * 1e3


def clean_json(raw: bytes) -> bytes:
    """Clean the strings of a JSON document, as the gate does, without a pause."""
    return finish(clean_literals_steps(raw))


def row(name: str, piece: str) -> tuple[object, ...]:
    text = sized(piece)
    raw = json.dumps({"text": text}, ensure_ascii=False).encode()
    escaped = json.dumps({"text": text[: len(text) * SIZE // len(json.dumps(text))]}).encode()
    costs = [best(lambda: clean(text)), *(best(lambda it=it: clean_json(it)) for it in (raw, escaped))]
    goal = Goal(value=costs[0], at_most=0.3, unit=" ms", label="text:") if name in ORDINARY else ""
    return (name, *(f"{cost:.3f}" for cost in costs), goal)


def main() -> None:
    columns = ("kind", "text", "JSON", "escaped JSON", "goal")
    show("100 KB of ordinary text, ms", columns, [row(*item) for item in ORDINARY.items()])
    show("100 KB with something to look at, ms", columns, [row(*item) for item in HOSTILE.items()])
    description = sized(ENGLISH)[:500]
    cleaning, advising = best(lambda: clean(description)), best(lambda: suspicious(description))
    print(f"\n500 characters: clean {cleaning * 1e3:.2f} µs, suspicious {advising * 1e3:.0f} µs")


if __name__ == "__main__":
    main()

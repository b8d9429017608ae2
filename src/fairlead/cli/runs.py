"""What people are told of a model's run."""

from typing import Final

from fairlead.cli.output import printable
from fairlead.loop.events import Outcome, ToolReturned

ENDINGS: Final[dict[Outcome, str | None]] = {
    "finished": None,
    "needs_a_person": (
        "what the model called last needs a login, a consent or an approval, and no one could be asked:"
        " the hint above says what settles it"
    ),
    "gave_up": "the model gave up",
    "cut_off": "the model's answer was cut off; `max_output_tokens` of `model` is its length",
    "max_steps": "stopped before the model was done; `--max-steps` is how often it is asked",
    "max_tokens": "stopped before the model was done: it has used its `--max-tokens`",
    "cancelled": "ended, as you wanted",
}
"""How a run ended, where that is worth saying."""


def returned(event: ToolReturned) -> str:
    """A call that is over, in a line."""
    line = f"  {printable(event.tool)}  {event.seconds:.2f} s"
    if not event.result.is_error:
        return line
    first = next((line for line in event.result.text.splitlines() if line.strip()), "")
    hint = f"\n    hint: {printable(event.hint)}" if event.hint and event.hint not in first else ""
    return f"{line}  failed: {printable(first[:200])}{hint}"

"""Events of a run, in the order in which they happen. The last is always `Finished`.

Unlike the events of a host these carry content: the model's text, arguments and results.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.bounded_repr import BoundedRepr
from fairlead.catalog.results import ToolResult

RunOutcome = Literal[
    "finished", "needs_a_person", "gave_up", "cut_off", "max_steps", "max_tokens", "cancelled"
]
"""How a run ended.

- `finished`: the model gave its answer.
- `needs_a_person`: it gave up on what it called last, for want of a login, a consent or an approval.
- `gave_up`: it refused, or said nothing.
- `cut_off`: its answer is longer than it may be.
- `max_steps`, `max_tokens`: the limit was reached, and it wanted to go on.
- `cancelled`: the user ended the run instead of approving a call.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token usage. Tokens that a provider had in its cache are part of the input."""

    input_tokens: int = 0
    """Tokens that the model read."""
    output_tokens: int = 0
    """Tokens that it wrote."""
    cached_tokens: int = 0
    """Tokens of the input that the provider had in its cache."""

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TextDelta(BoundedRepr):
    """Another part of the model's text."""

    text: str
    """The part."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class StepRetried(BoundedRepr):
    """The step is requested again after so many seconds. What the model said in it does not count."""

    reason: str
    """Why the request failed."""
    seconds: float
    """How long until the next attempt."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ToolCalled(BoundedRepr):
    """The model calls a tool."""

    call_id: str
    """The id that the model gave the call."""
    tool: str
    """`server/tool`, for display."""
    name: str
    """The name that the model called."""
    arguments: dict[str, Any] | None = field(repr=False)
    """None where they are no JSON object."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ToolReturned(BoundedRepr):
    """A call ended. The model reads its outcome, failures included."""

    call_id: str
    """The id of the call."""
    tool: str
    """`server/tool`, for display."""
    seconds: float
    """How long the call took."""
    result: ToolResult = field(repr=False)
    """What the model reads."""
    error: str | None = None
    """The code of the error, if the call failed, such as `call_denied`."""
    hint: str | None = None
    """What the user can do about the error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFinished:
    """The model answered, and its calls returned."""

    step: int
    """The number of the step, from 1."""
    usage: Usage
    """The tokens of this step."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunFinished(BoundedRepr):
    """The run is over. `text` is what the model said last, `usage` is of all steps."""

    text: str
    """What the model said last."""
    outcome: RunOutcome
    """Why the run ended."""
    steps: int
    """The number of steps."""
    usage: Usage
    """The tokens of all steps."""


RunEvent = TextDelta | StepRetried | ToolCalled | ToolReturned | StepFinished | RunFinished

"""What a model's API says is wrong, in words that say what to do about it."""

from typing import Final

from fairlead.catalog import gate
from fairlead.config.redact import redact_url
from fairlead.errors import ModelFailed
from fairlead.loop.dialect import ChatModel, Complaint, complaint_in

_PASSING_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_PASSING_KINDS: Final = ("overloaded", "server_error", "api_error", "rate_limit", "timeout", "unavailable")
_UNPAID: Final = ("insufficient_quota", "billing")
_TOO_LONG: Final = (
    "context_length",
    "context length",
    "context size",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
)
_MAX_WORDS = 300


class Passing(Exception):
    """Something went wrong that may be over soon. `midway`: the answer had begun."""

    def __init__(
        self,
        message: str,
        *,
        seconds: float | None = None,
        midway: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.seconds = seconds
        """How long to wait, if the API said so."""
        self.midway = midway
        self.hint = hint


def refused(status: int, body: bytes, model: ChatModel, *, named: str, wait: float | None) -> Exception:
    """What an answer means that is none."""
    complaint = complaint_in(body) or Complaint("", "")
    words = f"HTTP {status}{_words(complaint)}"
    if _says(complaint, _UNPAID):
        return ModelFailed(f"{named}: {words}", hint="look at what your account with the provider may use")
    if status in _PASSING_STATUSES:
        return Passing(words, seconds=wait, hint="try again later, or choose another model")
    if status == 413 or _says(complaint, _TOO_LONG):
        return _too_long(named, words)
    return ModelFailed(f"{named}: {words}", hint=_hint(status, model))


def judged(complaint: Complaint, named: str) -> Exception:
    """What it means that an API complains in the middle of its answer."""
    words = f"it gave up{_words(complaint)}"
    if _says(complaint, _TOO_LONG):
        return _too_long(named, words)
    if complaint.kind.startswith(_PASSING_KINDS):
        return Passing(words, midway=True)
    return ModelFailed(f"{named}: {words}")


def _too_long(named: str, words: str) -> ModelFailed:
    hint = "let it see less: fewer tools with a bundle, smaller results with `max_result_bytes`"
    return ModelFailed(f"{named}: the conversation is too long for it: {words}", hint=hint)


def _hint(status: int, model: ChatModel) -> str | None:
    match status:
        case 401 | 403 if model.api_key is None:
            return f"it wants an API key: {model.key_from}"
        case 401 | 403:
            return f"is the key right? It comes from {model.key_from}"
        case 404 if model.base_url:
            where = redact_url(model.base_url)
            return f"does it know the model `{model.name}`? Is {where} right? Most end in `/v1`"
        case 404:
            return f"does the provider have a model `{model.name}`?"
        case _ if 300 <= status < 400:
            return "it leads elsewhere, and a key is not sent there: give that address as `base_url`"
        case _:
            return None


def _says(complaint: Complaint, signs: tuple[str, ...]) -> bool:
    said = f"{complaint.kind} {complaint}".lower()
    return any(sign in said for sign in signs)


def _words(complaint: Complaint) -> str:
    """What the API says, fit to be shown."""
    words = " ".join(gate.error_text(complaint).split())[:_MAX_WORDS]
    return f": {words}" if words else ""

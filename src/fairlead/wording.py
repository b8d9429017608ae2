"""Joining of messages and hints, so that no two marks of punctuation meet."""

_ENDS = (".", "!", "?", "…")


def join_clauses(*clauses: str | None) -> str:
    """Join what is said, such as a message and its hint: with `; `, or as sentences after one that ended.

    Args:
        clauses: The texts; None and empty ones are left out.
    """
    said = ""
    for clause in clauses:
        text = (clause or "").strip()
        if not text:
            continue
        if not said:
            said = text
        elif said.endswith(_ENDS):
            said = f"{said} {text[:1].upper()}{text[1:]}"
        else:
            said = f"{said.rstrip(';:,')}; {text}"
    return said


def end_sentence(text: str) -> str:
    """A text that ends as a sentence does, whatever it ended with before."""
    text = text.rstrip()
    return text if text.endswith(_ENDS) else f"{text.rstrip(';:,')}."

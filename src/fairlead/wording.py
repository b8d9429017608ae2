"""Parts of messages: clauses and hints joined, and the server that an error is about."""

_ENDS = (".", "!", "?", "…")


def join_clauses(*clauses: str | None) -> str:
    """Join what is said, such as a message and its hint: with `; `, or as sentences after one that ended.

    Args:
        clauses: The texts; None and empty ones are left out.
    """
    joined = ""
    for clause in clauses:
        text = (clause or "").strip()
        if not text:
            continue
        if not joined:
            joined = text
        elif joined.endswith(_ENDS):
            joined = f"{joined} {text[:1].upper()}{text[1:]}"
        else:
            joined = f"{joined.rstrip(';:,')}; {text}"
    return joined


def end_sentence(text: str) -> str:
    """A text that ends like a sentence: with a full stop, where it ends with no other mark."""
    text = text.rstrip()
    return text if text.endswith(_ENDS) else f"{text.rstrip(';:,')}."


def name_server(server_id: str) -> str:
    """The beginning of a message about a server, which names it."""
    return f"server `{server_id}`: "


def without_server(message: str, server_id: str) -> str:
    """A message about a server without its beginning, for a place that names the server already."""
    return message.removeprefix(name_server(server_id))

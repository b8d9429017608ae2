"""Syntax of references to secrets in each format, and its conversion. Nothing is resolved here."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fairlead.config.secrets.references import SecretReference, references, split

Piece = str | SecretReference
"""Literal text, or a reference to something outside the file."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NotExpressible(Exception):
    """The other format has no equivalent. The message is the predicate of a sentence about the field."""


@dataclass(frozen=True, slots=True)
class ReferenceSyntax:
    """A format's syntax of references, converted to ours and back."""

    read: Callable[[str], str]
    write: Callable[[str], str]


def build_syntax(
    pattern: str,
    meaning: Callable[[re.Match[str]], Piece | None],
    say: Callable[[SecretReference], str | None],
) -> ReferenceSyntax:
    """Build a syntax from the pattern it expands.

    `meaning` is None where a match stays literal, `say` where the format cannot express a reference.
    """
    token = re.compile(pattern, re.ASCII)

    def pieces(text: str) -> Iterator[Piece]:
        end = 0
        for match in token.finditer(text):
            piece = meaning(match)
            if piece is not None:
                yield text[end : match.start()]
                yield piece
                end = match.end()
        yield text[end:]

    def write(text: str) -> str:
        wanted = _our_pieces(text)
        words = "".join(
            piece if isinstance(piece, str) else _require_expressible(piece, say(piece)) for piece in wanted
        )
        # No format has an escape, so the only proof that a literal stays one is to parse it back.
        if join_literals(pieces(words)) != wanted:
            raise NotExpressible("has literal text that would be taken for a reference there")
        return words

    return ReferenceSyntax(read=lambda text: in_our_words(pieces(text)), write=write)


def in_our_words(pieces: Iterable[Piece]) -> str:
    """Write pieces as one of our strings. Raises `NotExpressible` where our syntax cannot hold them."""
    wanted = join_literals(pieces)
    text = "".join(piece.replace("${", "$${") if isinstance(piece, str) else str(piece) for piece in wanted)
    try:
        fits = join_literals(split(text)) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise NotExpressible("has a reference that is not supported here")
    return text


def variable(name: str, default: str | None = None) -> Piece | None:
    """Reference to an environment variable; one with an impossible name is its default, or nothing."""
    return SecretReference(kind="env", name=name, default=default) if _IDENTIFIER.fullmatch(name) else default


def plain_variable_name(text: str, *, before: str = "") -> str | None:
    """Name of the variable, if the text is `before` and a plain `${NAME}`."""
    found = references(text)
    if len(found) == 1 and found[0].kind == "env" and text == f"{before}${{{found[0].name}}}":
        return found[0].name
    return None


def _our_pieces(text: str) -> list[Piece]:
    try:
        return join_literals(split(text))
    except ValueError as exc:
        raise NotExpressible(f"is malformed: {exc}") from None


def join_literals(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring literals and drop empty ones, so that equal meanings compare equal."""
    result: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and result and isinstance(result[-1], str):
            result[-1] += piece
        elif piece != "":
            result.append(piece)
    return result


def _require_expressible(reference: SecretReference, words: str | None) -> str:
    if words is None:
        shown = reference if reference.default is None else f"${{{reference.name}:-…}}"
        raise NotExpressible(f"refers to `{shown}`, which has no equivalent there")
    return words


def _shell_words(reference: SecretReference) -> str | None:
    return str(reference) if reference.kind == "env" else None


def _parse_braced(match: re.Match[str]) -> Piece | None:
    name, with_default, default = match[1].partition(":-")
    return variable(name, default if with_default else None)


def _parse_braced_or_bare(match: re.Match[str]) -> Piece | None:
    bare, name, default = match.groups()
    return variable(bare or name, default)


def _curly(match: re.Match[str]) -> Piece | None:
    return variable(match[2]) if match[1] == "env" else SecretReference(kind="file", name=match[2])


def _curly_words(reference: SecretReference) -> str | None:
    if reference.kind == "keyring" or reference.default is not None:
        return None
    return f"{{{reference.kind}:{reference.name}}}"


def render_env_reference(reference: SecretReference) -> str | None:
    """Reference in the editors' syntax: `${env:NAME}`."""
    return f"${{env:{reference.name}}}" if reference.kind == "env" and reference.default is None else None


def editor_style(
    variables: Callable[[str], Piece | None],
    say: Callable[[SecretReference], str | None] = render_env_reference,
) -> ReferenceSyntax:
    """Build a syntax of `${env:NAME}` and the variables that `variables` resolves between `${` and `}`."""

    def parse_reference(match: re.Match[str]) -> Piece | None:
        kind, colon, name = match[1].partition(":")
        return variable(name.strip()) if colon and kind == "env" else variables(match[1])

    return build_syntax(r"\$\{([^}]+)\}", parse_reference, say)


AS_OURS = ReferenceSyntax(read=str, write=str)
"""Our own syntax."""
LITERAL = build_syntax(r"(?!)", lambda _: None, lambda _: None)
"""Nothing is expanded: `${…}` is text."""
BRACED = build_syntax(r"\$\{([^}]+)\}", _parse_braced, _shell_words)
"""`${NAME}` and `${NAME:-default}`."""
SHELL = build_syntax(r"\$(?:(\w+)|\{([^}]+?)(?::-([^}]*))?\})", _parse_braced_or_bare, _shell_words)
"""`$NAME`, `${NAME}` and `${NAME:-default}`."""
CURLY = build_syntax(r"\{(env|file):([^}]+)\}", _curly, _curly_words)
"""`{env:NAME}` and `{file:path}`."""
PREFIXED = editor_style(lambda _: None)
"""`${env:NAME}` and nothing else."""

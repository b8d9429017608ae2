"""Commands for people to paste into a shell, as hints print them. Apart, since every layer has hints."""

import shlex
from collections.abc import Sequence


def command_line(verb: str, *operands: str, options: Sequence[str] = ()) -> str:
    """A command to paste into a shell: quoted, and with no operand that would be taken for an option."""
    is_odd = any(operand.startswith("-") for operand in operands)
    words = [*options, "--", *operands] if is_odd else [*operands, *options]
    return " ".join(["fairlead", *verb.split(), *map(shlex.quote, words)])

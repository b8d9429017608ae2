"""Shell commands as hints print them. A module of its own, since every layer has hints."""

import shlex
from collections.abc import Sequence


def command_line(verb: str, *operands: str, options: Sequence[str] = ()) -> str:
    """Command to paste into a shell: quoted, and with no operand that could be taken for an option."""
    is_odd = any(operand.startswith("-") for operand in operands)
    words = [*options, "--", *operands] if is_odd else [*operands, *options]
    return " ".join(["fairlead", *verb.split(), *map(shlex.quote, words)])

"""Shell commands as hints print them. A module of its own, since every layer has hints."""

import shlex
from collections.abc import Sequence

from fairlead.config.untyped import as_object


def command_line(verb: str, *operands: str, options: Sequence[str] = ()) -> str:
    """Command to paste into a shell: quoted, and with no operand that could be taken for an option."""
    is_odd = any(operand.startswith("-") for operand in operands)
    words = [*options, "--", *operands] if is_odd else [*operands, *options]
    return " ".join(["fairlead", *verb.split(), *map(shlex.quote, words)])


def extra_hint(extra: str) -> str:
    """Hint that installs an extra of this program, from where the program itself came.

    A clone is named by its folder: under the program's name alone, an index may have nothing, or a stranger's
    package.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = as_object(json.loads(distribution("fairlead").read_text("direct_url.json") or "{}"))
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    place = unquote(urlsplit(url).path) if url.startswith("file:") else url
    if as_object(origin.get("dir_info")).get("editable"):
        command = f"uv sync --inexact --project {shlex.quote(place)} --extra {extra}"
    else:
        command = (
            f"pip install {shlex.quote(f'{place}[{extra}]')}" if place else f"pip install 'fairlead[{extra}]'"
        )
    return f"install the extra `fairlead[{extra}]`: `{command}`"

"""Shell commands as hints print them. A module of its own, since every layer has hints."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.config.untyped import as_list, as_object


def command_line(verb: str, *operands: str, options: Sequence[str] = ()) -> str:
    """Command to paste into a shell: quoted, and with no operand that could be taken for an option."""
    is_odd = any(operand.startswith("-") for operand in operands)
    words = [*options, "--", *operands] if is_odd else [*operands, *options]
    return " ".join(["fairlead", *verb.split(), *map(shlex.quote, words)])


def extra_hint(extra: str) -> str:
    """Hint that installs an extra of this program, from where the program itself came, as it was installed.

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
        command = _install_command(place, extra, Path(sys.prefix))
    return f"install the extra `fairlead[{extra}]`: `{command}`"


def _install_command(place: str, extra: str, environment: Path) -> str:
    """Command that installs the program anew with one more extra.

    Args:
        place: Where it came from; empty for the package index.
        extra: The extra.
        environment: Where it is installed. A tool's own environment has no pip, or none that people see.
    """
    import tomllib

    try:
        receipt = tomllib.loads((environment / "uv-receipt.toml").read_text())
    except (OSError, ValueError):
        receipt = {}
    extras = {extra}
    for each in as_list(as_object(receipt.get("tool")).get("requirements")):
        requirement = as_object(each)
        extras |= {*as_list(requirement.get("extras"))} if requirement.get("name") == "fairlead" else set()
    what = f"{place or 'fairlead'}[{','.join(sorted(map(str, extras)))}]"
    quoted = shlex.quote(what) if place else f"'{what}'"
    if receipt:
        return f"uv tool install {quoted}"
    if (environment / "pipx_metadata.json").exists():
        return f"pipx install --force {quoted}"
    return f"pip install {quoted}"

"""The reference of the library: signatures and docstrings of all public names."""

import ast
import copy
import functools
import importlib
import re
from collections.abc import Collection, Iterator

import fairlead
from fairlead import errors
from tests.tools.reference.markdown import code, table
from tests.tools.reference.sources import (
    Found,
    Function,
    annotated_names,
    docstring_of,
    find,
    own_names,
    signature,
)

PACKAGES = ("fairlead", "fairlead.adapters", "fairlead.testing")

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields):\n((?:    .*\n?|\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\*{0,2}\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_KINDS = {"error": "Errors", "event": "Events", "class": "Classes", "function": "Functions", "type": "Types"}


_LIBRARY = """# Python API: fairlead

Every public name of `fairlead`, with its fields, methods and parameters; those of `Config` are in the
[configuration reference](configuration.md). What is not here or in [`fairlead.adapters`](adapters.md) and
[`fairlead.testing`](testing.md) may change without notice. [The library](../library.md) shows them at work;
errors are [on a page of their own](errors.md), and so are [events](events.md).
"""
_ADAPTERS = """# Python API: fairlead.adapters

Tools in the form that each model provider and framework takes. `host.tools.for_openai()` and its siblings use
these; [how to embed Fairlead](../how-to/embed.md).
"""
_TESTING = """# Python API: fairlead.testing

What tests of agents and servers need; [how to test an agent](../how-to/test-an-agent.md).
"""


def library_page() -> str:
    """The page of `fairlead`."""
    return _page("fairlead", _LIBRARY)


def adapters_page() -> str:
    """The page of `fairlead.adapters`."""
    return _page("fairlead.adapters", _ADAPTERS)


def testing_page() -> str:
    """The page of `fairlead.testing`."""
    return _page("fairlead.testing", _TESTING)


@functools.cache
def public_names() -> frozenset[str]:
    """All names of the public packages."""
    return frozenset(name for package in PACKAGES for name in importlib.import_module(package).__all__)


def private_types(found: Found, node: ast.AST) -> set[str]:
    """The types of Fairlead's own that a definition names in its annotations and that are not public."""
    own = own_names(found.module)
    return {name for name in annotated_names(node) if name in own} - public_names()


def is_shown(found: Found, node: ast.stmt) -> bool:
    """Whether a field or method of a public class is for users: documented, and of public types alone.

    A method that a class with a synchronous counterpart does not have there is for Fairlead alone, too.
    """
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return not name.startswith("_") and not private_types(found, node.annotation)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            marks = {ast.unparse(mark) for mark in node.decorator_list}
            if name.startswith("_") or not ast.get_docstring(node) or marks & {"overload", "override"}:
                return False
            counterpart = getattr(fairlead, f"Sync{found.name}", None)
            is_own = counterpart is not None and name not in (*dir(counterpart), "aclose", "open")
            return not is_own and not private_types(found, without_private_options(found, node))
        case _:
            return False


def shown_class(found: Found) -> ast.ClassDef:
    """A public class with those of its fields and methods that are for users."""
    assert isinstance(found.node, ast.ClassDef)
    shown = copy.copy(found.node)
    shown.body = []
    is_hidden = False
    for each in found.node.body:
        if isinstance(each, ast.Expr) and is_hidden:  # the documentation of a field that is not shown
            continue
        is_member = isinstance(each, ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef)
        is_hidden = is_member and not is_shown(found, each)
        if is_hidden:
            continue
        is_function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        shown.body.append(without_private_options(found, each) if is_function else each)
    return shown


def without_private_options(found: Found, node: Function) -> Function:
    """A function without the parameters that have a default and a type that is not public."""
    shown = copy.deepcopy(node)
    given = shown.args
    pairs = [*zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    kept = [(each, default) for each, default in pairs if default is None or not private_types(found, each)]
    given.kwonlyargs, given.kw_defaults = [each for each, _ in kept], [default for _, default in kept]
    return shown


def _page(package: str, introduction: str) -> str:
    names: list[str] = sorted(importlib.import_module(package).__all__, key=str.lower)
    parts = [introduction]
    sections: dict[str, list[Found]] = {kind: [] for kind in _KINDS}
    for name in names:
        found = find(package, name)
        sections[_kind(found)].append(found)
    for kind in ("class", "function", "type"):
        if sections[kind]:
            parts.append(f"\n## {_KINDS[kind]}\n")
            for found in sections[kind]:
                parts += _documented(found)
    return "".join(parts)


def _kind(found: Found) -> str:
    if isinstance(found.node, ast.ClassDef):
        if found.module == "fairlead.errors":
            return "error" if issubclass(getattr(errors, found.name), Exception) else "class"
        return "event" if found.module == "fairlead.events" else "class"
    if isinstance(found.node, ast.FunctionDef | ast.AsyncFunctionDef):
        return "function"
    return "event" if found.name == "Event" else "type"


def _documented(found: Found) -> Iterator[str]:
    yield f"\n### {found.name}\n\n"
    match found.node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield f"```text\n{signature(without_private_options(found, found.node))}\n```\n\n"
            yield prose(found.documentation)
        case ast.ClassDef():
            shown = shown_class(found)
            yield prose(found.documentation)
            yield from _fields(shown)
            yield from _methods(shown)
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            yield f"```text\n{ast.unparse(value)}\n```\n"
            yield prose(found.documentation) if found.documentation else ""
        case _:
            raise AssertionError(found)


def class_fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of every public field and property."""
    said = _arguments_of(ast.get_docstring(node) or "")
    for index, each in enumerate(node.body):
        match each:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                default, described = _default(each.value)
                meaning = docstring_of(node.body, index) or described or said.get(name, "")
                yield name, ast.unparse(each.annotation), default, meaning
            case ast.FunctionDef(name=name) if not name.startswith("_") and _is_property(each):
                yield (
                    name,
                    ast.unparse(each.returns) if each.returns else "",
                    "",
                    ast.get_docstring(each) or "",
                )
            case _:
                pass


def _default(value: ast.expr | None) -> tuple[str, str]:
    """The default of a field, and the description that pydantic has of it."""
    match value:
        case None:
            return "", ""
        case ast.Call(func=ast.Name(id="field" | "Field"), keywords=keywords):
            given = {word.arg: word.value for word in keywords}
            described = given.get("description")
            meaning = ast.literal_eval(described) if described else ""
            return (ast.unparse(given["default"]) if "default" in given else ""), str(meaning)
        case _:
            return ast.unparse(value), ""


def _arguments_of(documentation: str) -> dict[str, str]:
    """What a docstring says of the arguments, by name."""
    sections: dict[str, str] = dict(_SECTION.findall(documentation))
    return {name: _one_line(text) for name, text in _ENTRY.findall(sections.get("Args", ""))}


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(each).endswith("property") for each in node.decorator_list)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    rows = [
        (code(name), code(kind) if kind else "", code(default) if default else "", meaning)
        for name, kind, default, meaning in class_fields(node)
    ]
    if rows:
        yield "\n" + table(("attribute", "type", "default", "meaning"), rows)


def _methods(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or _is_property(each):
            continue
        if each.name.startswith("_") or not (text := ast.get_docstring(each)):
            continue
        if any(ast.unparse(mark) in ("overload", "override") for mark in each.decorator_list):
            continue
        taken = {argument.arg for argument in ast.walk(each.args) if isinstance(argument, ast.arg)}
        shown = prose(text, taken)
        yield f"\n#### {node.name}.{each.name}\n\n```text\n{signature(each)}\n```\n\n{shown}"


def prose(text: str, arguments: Collection[str] | None = None) -> str:
    """A docstring as Markdown: its sections become lists, that of the arguments with those alone."""

    def listed(section: re.Match[str]) -> str:
        return _listed(section, arguments)

    return _SECTION.sub(listed, text.strip() + "\n").rstrip() + "\n"


def _listed(section: re.Match[str], arguments: Collection[str] | None) -> str:
    title, body = section[1], section[2]
    if title in ("Args", "Raises"):
        entries = [
            f"- {code(name)}: {_one_line(said)}"
            for name, said in _ENTRY.findall(body)
            if title == "Raises" or arguments is None or name.lstrip("*") in arguments
        ]
        return f"**{'Arguments' if title == 'Args' else title}**\n\n" + "\n".join(entries) + "\n\n"
    return f"**{title}** {_one_line(body)}\n\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())

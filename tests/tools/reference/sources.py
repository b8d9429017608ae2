"""What the source says of a public name: its signature, fields and docstrings, the same on every Python."""

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Found:
    """A definition in the source, and where."""

    name: str
    module: str
    node: ast.stmt
    documentation: str


def find(package: str, name: str) -> Found:
    """Find the definition of a name that a package exports, in whichever module it is made."""
    value = getattr(importlib.import_module(package), name)
    for module in _candidates(package, name, value):
        body = module_tree(module).body
        for index, node in enumerate(body):
            if _name_of(node) == name:
                return Found(name=name, module=module, node=node, documentation=docstring_of(body, index))
    raise LookupError(f"no source of {package}.{name} was found")


def _candidates(package: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value) or inspect.isfunction(value):
        yield value.__module__
        return
    for statement in ast.walk(module_tree(package)):  # a type made of others does not know where it is from
        if isinstance(statement, ast.ImportFrom) and name in {alias.name for alias in statement.names}:
            yield statement.module or ""


@functools.cache
def module_tree(module: str) -> ast.Module:
    """The source of a module."""
    importlib.import_module(module)
    path = sys.modules[module].__file__
    assert path is not None
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def docstring_of(body: list[ast.stmt], index: int) -> str:
    """The documentation of a statement: its own docstring, or the one that follows a field."""
    node = body[index]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ast.get_docstring(node) or ""
    following = body[index + 1] if index + 1 < len(body) else None
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""


def _name_of(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return None


def own_names(module: str) -> set[str]:
    """The names of a module that it defines, or imports from Fairlead."""
    names = {name for node in module_tree(module).body if (name := _name_of(node)) is not None}
    for node in ast.walk(module_tree(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairlead"):
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not re.fullmatch(r"_?[A-Z]\w*T|[PRT]", name)}  # type variables


def annotated_names(node: ast.AST | None) -> Iterator[str]:
    """The names in an annotation, or in the parameters and the result of a function; of strings as well."""
    match node:
        case (
            ast.FunctionDef(args=arguments, returns=returns)
            | ast.AsyncFunctionDef(args=arguments, returns=returns)
        ):
            for each in ast.walk(arguments):
                if isinstance(each, ast.arg):
                    yield from annotated_names(each)
            yield from annotated_names(returns)
        case ast.arg(annotation=annotation):
            yield from annotated_names(annotation)
        case ast.AST():
            for each in ast.walk(node):
                if isinstance(each, ast.Name):
                    yield each.id
                elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield from re.findall(r"[A-Za-z_]\w*", each.value)
        case None:
            return


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A function as it is called: without `self`, with types and defaults; a long one over several lines."""
    arguments = node.args
    first = [*arguments.posonlyargs, *arguments.args][:1]
    if first and first[0].arg in ("self", "cls"):
        (arguments.posonlyargs or arguments.args).pop(0)
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    shown = f"{word} {node.name}({ast.unparse(arguments)}){returned}"
    if len(shown) <= 100:
        return shown
    lines = "".join(f"    {each},\n" for each in _each(arguments))
    return f"{word} {node.name}(\n{lines}){returned}"


def _each(arguments: ast.arguments) -> Iterator[str]:
    """Every argument, as it stands in a signature."""
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = len(plain) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [*([None] * missing), *arguments.defaults]
    for index, (argument, default) in enumerate(zip(plain, defaults, strict=True), start=1):
        yield _shown(argument, default)
        if arguments.posonlyargs and index == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{_shown(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _shown(argument, default)
    if arguments.kwarg:
        yield f"**{_shown(arguments.kwarg, None)}"


def _shown(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}={ast.unparse(default)}"

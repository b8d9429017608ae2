"""Print how readable the source tree is, in numbers: `python -m tests.tools.house [--places]`.

Sizes of modules, names that occur more than once, docstrings, comments, and words that a stranger would not
guess. Nothing fails here; the numbers are for comparing one state of the tree with another.
"""

import ast
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "fairlead"
MAX_LINES = 600
RIDDLES = re.compile(r"\b(?:nobody|somebody|whoever|anybody|everybody|whatever)\b", re.IGNORECASE)
PRIVATE_WORDS = re.compile(
    r"\b(?:era|errand|unsaid|beside|hand(?:ed)? over|gatekeep\w*|told|asked)\b", re.IGNORECASE
)
SECTIONS = re.compile(r"^(?:Args|Returns|Raises):$", re.MULTILINE)
PARTICIPLE = re.compile(
    r"_*(?!(?:need|feed|seed|embed|succeed|proceed|exceed)(?:_|$))"
    r"(?:[a-z0-9]+ed|told|said|made|found|given|kept|sent|begun|known|shown|asking|telling|saying)(?:_\w+)?"
)
"""A function's name whose first word is a participle, where a verb should be."""


class Module:
    """One file of the source tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ".".join(("fairlead", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.lines = self.text.count("\n")

    def imports(self) -> Iterator[str]:
        """The modules it imports, and names in them, which may be modules."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def definitions(self) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
        """Its classes and functions, methods included."""
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def comment_lines(self) -> int:
        """How many of its lines have a comment."""
        with self.path.open("rb") as file:
            return sum(token.type == tokenize.COMMENT for token in tokenize.tokenize(file.readline))


def report(modules: list[Module]) -> Iterator[tuple[str, object]]:
    """What is measured, and what it is."""
    sizes = [module.lines for module in modules if module.lines > 1]
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        for imported in module.imports():
            importers[imported].add(module.name)
    files = Counter(module.path.name for module in modules if module.path.name != "__init__.py")
    definitions = [node for module in modules for node in module.definitions()]
    functions = [node for node in definitions if not isinstance(node, ast.ClassDef)]
    docstrings = [text for node in definitions if (text := ast.get_docstring(node))]
    total = sum(module.lines for module in modules)

    yield "modules", len(modules)
    yield "lines", total
    yield "median lines of a module", statistics.median(sizes)
    yield f"modules over {MAX_LINES} lines", _names(m.name for m in modules if m.lines > MAX_LINES)
    yield "modules with at most one importer", sum(len(importers[m.name]) <= 1 for m in modules)
    knots = import_knots(modules)
    yield "modules in import knots, type-only included", sum(map(len, knots))
    yield "largest import knot, type-only included", _names(iter(knots[0] if knots else ()))
    yield "file names in several packages", sum(count > 1 for count in files.values())
    yield "class names that occur twice or more", len(repeated_classes(modules))
    yield "functions", len(functions)
    yield "functions named by a participle", sum(map(_is_participle, functions))
    yield (
        "docstrings of one line",
        f"{_share(sum(chr(10) not in text for text in docstrings), len(docstrings))}",
    )
    yield (
        "docstrings with sections",
        sum("Args:" in t or "Returns:" in t or "Raises:" in t for t in docstrings),
    )
    yield "lines with a comment", _share(sum(module.comment_lines() for module in modules), total)
    yield "lines with nobody, somebody, whoever …", sum(_lines_with(RIDDLES, m.text) for m in modules)
    yield "lines with private words", sum(_lines_with(PRIVATE_WORDS, m.text) for m in modules)


def repeated_classes(modules: list[Module]) -> list[str]:
    """The names that several classes have."""
    definitions = (node for module in modules for node in module.definitions())
    classes = Counter(node.name for node in definitions if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in classes.items() if count > 1)


def read_modules() -> list[Module]:
    """All modules of the source tree."""
    return [Module(path) for path in sorted(ROOT.rglob("*.py"))]


def import_knots(modules: list[Module]) -> list[list[str]]:
    """The modules that import each other in a circle, largest circle first. Every import counts.

    These are the strongly connected components (Tarjan) of more than one module; imports for type checkers
    and imports inside of functions are edges like all others.
    """
    names = {module.name for module in modules}
    edges = {module.name: sorted({*module.imports()} & names - {module.name}) for module in modules}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    knots: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        path.append(name)
        for imported in edges[name]:
            if imported not in order:
                visit(imported)
            if imported in path:
                lowest[name] = min(lowest[name], lowest[imported])
        if lowest[name] == order[name]:
            at = path.index(name)
            knot, path[at:] = sorted(path[at:]), []
            if len(knot) > 1:
                knots.append(knot)

    for name in edges:
        if name not in order:
            visit(name)
    return sorted(knots, key=len, reverse=True)


def places(modules: list[Module]) -> Iterator[str]:
    """Where the names and words are that the report counts, as `path:line: text`."""
    for module in modules:
        path = module.path.relative_to(ROOT.parents[1])
        for node in module.definitions():
            if not isinstance(node, ast.ClassDef) and _is_participle(node):
                yield f"{path}:{node.lineno}: def {node.name}"
        for number, line in enumerate(module.text.splitlines(), 1):
            if RIDDLES.search(line) or PRIVATE_WORDS.search(line):
                yield f"{path}:{number}: {line.strip()}"


def _is_participle(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a function is named by a participle. Properties are attributes, which may be adjectives."""
    decorators = (ast.unparse(decorator) for decorator in node.decorator_list)
    is_property = any("property" in name for name in decorators)
    return not is_property and PARTICIPLE.fullmatch(node.name) is not None


def _names(found: Iterator[str]) -> str:
    names = sorted(found)
    return f"{len(names)}: {', '.join(names)}" if names else "0"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _lines_with(pattern: re.Pattern[str], text: str) -> int:
    return sum(pattern.search(line) is not None for line in text.splitlines())


def main() -> None:
    """Print the report, or with `--places` where each counted name and word is."""
    modules = read_modules()
    if "--places" in sys.argv[1:]:
        print(*places(modules), sep="\n")  # noqa: T201 - this is a report
        return
    for what, value in report(modules):
        print(f"{what:<45} {value}")  # noqa: T201 - this is a report


if __name__ == "__main__":
    main()

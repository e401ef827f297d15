"""What a Python program imports, as its syntax tree says: needed when it starts, or only in some case."""

import ast
from collections.abc import Iterable, Iterator

from skillyard.core.values import lazy_pattern

#: What ends a program whose import failed.
_ENDS = lazy_pattern(r"\b(?:sys\.exit|os\._exit|exit|quit)\(")


def find_imports(content: bytes) -> tuple[set[tuple[int, str]], set[tuple[int, str]]]:
    """Return the imports that are run at the start, and all of them: dots in front, and the name.

    Nothing of a program that cannot be parsed."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return set(), set()
    return set(_needed(tree.body)), {name for node in ast.walk(tree) for name in _imported(node)}


def _imported(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what a statement imports: how many dots a name has in front, and the name."""
    if isinstance(node, ast.Import):
        yield from ((0, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if module:
            yield node.level, module
        yield from ((node.level, f"{module}.{each.name}".lstrip(".")) for each in node.names if each.name != "*")


def _needed(body: Iterable[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Yield what is imported when these statements are run."""
    for node in body:
        yield from _imported(node)
        if isinstance(node, ast.If) and not ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _needed((*node.body, *node.orelse))
        elif isinstance(node, ast.With) or (isinstance(node, ast.Try) and not any(map(_goes_on, node.handlers))):
            yield from _needed(node.body)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a failed import is caught here, and the program goes on."""
    caught = "Exception" if handler.type is None else ast.unparse(handler.type)
    if not any(name in caught for name in ("ImportError", "ModuleNotFoundError", "Exception")):
        return False
    ends = any(isinstance(each, ast.Raise) or _ENDS.search(ast.unparse(each)) for each in handler.body)
    return not ends

"""What a Python file imports and calls, from its syntax tree: a comment is no call, an alias no hiding place.

A call is known by the full name of what is called, and by all that its arguments mention, also through names that were
assigned in the file. Not covered: `getattr` with a computed name, and anything across files.
"""

import ast
import warnings
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

#: A call with more than this in its arguments is data.
_MAX_NODES = 2_000
_DEPTH = 3


class PythonCall(NamedTuple):
    name: str
    line: int
    column: int
    mentions: frozenset[str]
    literals: tuple[str, ...]
    arguments: tuple[str, ...]


class PythonProgram:
    """All imports (name, line, column), and the calls of the wanted names. ValueError if Python cannot parse it."""

    def __init__(self, text: str, wanted: Container[str]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(error) from None
        self._aliases: dict[str, str] = {}
        self._assigned: dict[str, list[ast.AST]] = defaultdict(list)
        self.imports = tuple(found for node in nodes for found in self._imported(node))
        for node in nodes:
            self._assign(node)
        calls = (node for node in nodes if isinstance(node, ast.Call) and self._dotted(node.func) in wanted)
        self.calls = tuple(map(self._call, calls))

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, int, int]]:
        if isinstance(node, ast.Import):
            for name in node.names:
                package = name.name.partition(".")[0]
                self._aliases[name.asname or package] = name.name if name.asname else package
                yield name.name, node.lineno, node.col_offset + 1
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            self._aliases |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
            yield node.module, node.lineno, node.col_offset + 1

    def _assign(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
                | ast.withitem(context_expr=value, optional_vars=ast.Name(id=name))
            ):
                names = [name]
            case _:
                return
        for each in names:
            self._assigned[each].append(value)

    def _call(self, node: ast.Call) -> PythonCall:
        mentions: set[str] = set()
        literals: list[str] = []
        arguments: list[ast.AST] = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute):  # what a method is called on is as good as an argument
            arguments.append(node.func.value)
        for inner in self._reach(arguments):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes):
                value = inner.value
                literals.append(value if isinstance(value, str) else value.decode("latin-1"))
            elif name := self._dotted(inner.func if isinstance(inner, ast.Call) else inner):
                mentions.add(name)
        if len(literals) > 1:  # `["curl", url, "|", "sh"]` and `"~" "/.ssh"` only mean something together
            literals.append(" ".join(reversed(literals[:100])))
        own = tuple(arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
        place = (node.lineno, node.col_offset + 1)
        return PythonCall(self._dotted(node.func), *place, frozenset(mentions), tuple(literals), own)

    def _reach(self, roots: Iterable[ast.AST]) -> Iterator[ast.AST]:
        """The nodes below these, and below what the names in them were assigned from."""
        queue, followed, count = [(root, 0) for root in roots], set[str](), 0
        while queue and count < _MAX_NODES:
            node, depth = queue.pop()
            count += 1
            yield node
            queue += [(child, depth) for child in ast.iter_child_nodes(node)]
            if isinstance(node, ast.Name) and depth < _DEPTH and node.id not in followed:
                followed.add(node.id)
                queue += [(value, depth + 1) for value in self._assigned.get(node.id, ())]

    def _dotted(self, node: ast.AST) -> str:
        """`a.b.c`, with what `a` was imported as; a method of a call's result is named by the method."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self._aliases.get(node.id, node.id))
        elif parts:
            parts.append("")
        return ".".join(reversed(parts))

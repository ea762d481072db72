"""Code whose functions do nothing: a test that still passes with it checks nothing.

A run that has to raise the coverage writes tests, and only code that is wrong can show whether they notice anything. Functions
are therefore emptied: they return an object that allows every access and equals nothing. A test without an assertion passes with
it. An assertion about a single truth value may pass by chance, so the object is once true and once false where the language has
such objects.
"""

import ast
from collections.abc import Iterator, Mapping

from ralph.core.text import regex
from ralph.verify.inline_tests import CannotSplitError, find_function_bodies

_PYTHON_FILE = regex(r"\.py$")
_SCRIPT_FILE = regex(r"(?<!\.d)\.[cm]?[jt]sx?$")
_BUILDS_OBJECTS = frozenset(("__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"))
"""Without them, no object of the class could be made, and every test would fail."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOCK = '__import__("unittest.mock").mock.MagicMock(**{{"__bool__.return_value": {0}}})'
_ANYTHING = (
    "{ const anything = new Proxy(function () {}, { get: (_, key) => key === Symbol.toPrimitive ? () => 0"
    " : key === Symbol.iterator ? function* () {} : key === 'then' ? undefined : anything,"
    " apply: () => anything, construct: () => anything }); return anything }"
)


def empty_functions(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Variants of some files with functions that do nothing, without the files that stay as they are."""
    for truth in (False, True):
        variant = {path: _empty_python(text, truth=truth) for path, text in texts.items() if _PYTHON_FILE.search(path)}
        if truth:
            variant |= {path: _empty_script(path, text) for path, text in texts.items() if _SCRIPT_FILE.search(path)}
        changed = {path: text for path, text in variant.items() if text != texts[path]}
        if changed:
            yield changed


def _empty_python(text: str, *, truth: bool) -> str:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return text
    emptier = _Emptier(truth=truth)
    emptied = ast.fix_missing_locations(emptier.visit(tree))
    return ast.unparse(emptied) + "\n" if emptier.has_changed else text


class _Emptier(ast.NodeTransformer):
    """Empties the functions of a module."""

    def __init__(self, *, truth: bool) -> None:
        self._result = ast.parse(_MOCK.format(truth), mode="eval").body
        self.has_changed = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._empty(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._empty(node)

    def _empty(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if node.name in _BUILDS_OBJECTS:
            return node
        if any(isinstance(one, _FUNCTIONS) for statement in node.body for one in ast.walk(statement)):
            # A decorator or a factory: without what it returns, modules could not be imported.
            return self.generic_visit(node)
        self.has_changed = True
        is_generator = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))
        node.body = [ast.Expr(ast.Yield(self._result)) if is_generator else ast.Return(self._result)]
        return node


def _empty_script(path: str, text: str) -> str:
    """JavaScript and TypeScript, with the parser of the extra `inline-tests`. Without it, the text stays as it is."""
    try:
        bodies = find_function_bodies(path, text)
    except CannotSplitError:
        return text
    data = text.encode()
    for start, end in reversed(bodies):
        data = data[:start] + _ANYTHING.encode() + data[end:]
    return data.decode()

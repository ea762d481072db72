"""Criteria, the checks they compile to, and running those checks."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """This package has the name of a function of the public API: `ralph.verify(criterion)` has to work, too.

    Python binds the package to that name when the first of its modules is imported, whatever the name stood for before.
    """

    def __call__(self, *given: Any, **options: Any) -> Any:
        return import_module("ralph.api").verify(*given, **options)


sys.modules[__name__].__class__ = _CallableModule

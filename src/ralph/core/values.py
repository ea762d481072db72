"""Frozen dataclasses that are fast to define and to copy.

`dataclasses` compiles six functions for every frozen class, which takes 0.7 ms for eight fields. A command that lists runs
defines more than a hundred such classes, so it would spend most of its time there. `value` compiles only `__init__`, and
only for a class that is used: most commands create instances of few of them.
"""

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")
_UNSET = object()
"""The default of a field with a factory, which is called for every instance."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Like `dataclasses.dataclass(frozen=True)`. For classes without `__post_init__`, `__slots__` and special fields."""
    made = dataclass(init=False, repr=False, eq=False)(cls)
    for one in fields(cast(Any, made)):
        if not one.init or one.kw_only or hasattr(made, "__post_init__"):
            raise TypeError(f"{made.__name__} needs dataclasses.dataclass: {one.name} is a special field")

    def initialize(self: Any, *values: Any, **by_name: Any) -> None:
        setattr(made, "__init__", _compile_init(made))  # noqa: B010 - mypy forbids to assign to a method
        cast(Any, made).__init__(self, *values, **by_name)

    setattr(made, "__init__", initialize)  # noqa: B010
    shared = {
        "__repr__": _show,
        "__eq__": _equals,
        "__hash__": _hash,
        "__setattr__": _refuse_change,
        "__delattr__": _refuse_change,
    }
    all_fields = fields(cast(Any, made))
    compared = [one.name for one in all_fields if one.compare]
    if len(compared) < len(all_fields):
        shared |= _compare_only(compared)
    for name, function in shared.items():
        # A class that compares only some of its fields has a method of its own. Python sets `__hash__` to None for it.
        if made.__dict__.get(name) is None:
            setattr(made, name, function)
    return made


def _compile_init(cls: Any) -> Any:
    """`__init__` with one parameter for each field."""
    parameters, lines = [], []
    names: dict[str, Any] = {"_assign": object.__setattr__, "_UNSET": _UNSET}
    for one in fields(cls):
        value = one.name
        if one.default is not MISSING:
            names[f"_default_{one.name}"] = one.default
            parameters.append(f"{one.name}=_default_{one.name}")
        elif one.default_factory is not MISSING:
            names[f"_make_{one.name}"] = one.default_factory
            parameters.append(f"{one.name}=_UNSET")
            value = f"_make_{one.name}() if {one.name} is _UNSET else {one.name}"
        else:
            parameters.append(one.name)
        lines.append(f"    _assign(self, {one.name!r}, {value})")
    text = f"def __init__(self, {', '.join(parameters)}):\n" + ("\n".join(lines) or "    pass")
    exec(text, names)  # as `dataclasses` does; the names are those of fields in our own code
    function = names["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    return function


def _show(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _equals(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return self.__dict__ == other.__dict__


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, name) for name in self.__match_args__))


def _compare_only(names: list[str]) -> dict[str, Any]:
    """`__eq__` and `__hash__` of a class some of whose fields do not count for equality (`compare=False`)."""

    def read_key(value: Any) -> tuple[Any, ...]:
        return tuple(getattr(value, name) for name in names)

    def equals(self: Any, other: object) -> Any:
        return read_key(self) == read_key(other) if type(self) is type(other) else NotImplemented

    return {"__eq__": equals, "__hash__": lambda self: hash(read_key(self))}


def _refuse_change(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")


def copy_with(value: T, **changes: Any) -> T:
    """A copy with these fields changed, like `dataclasses.replace`, but several times as fast for many fields.

    The fold of a journal makes several copies of a view with fifty fields for every line. For classes without
    `__post_init__` and `__slots__` only: nothing is computed again.
    """
    if unknown := changes.keys() - value.__dict__.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(unknown))}")
    copy = object.__new__(type(value))
    copy.__dict__.update(value.__dict__)
    copy.__dict__.update(changes)
    return copy

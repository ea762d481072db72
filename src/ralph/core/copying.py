"""Copies of frozen dataclasses with other values in some fields."""

from typing import Any, TypeVar

T = TypeVar("T")


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

"""Frozen values behave like frozen dataclasses."""

import dataclasses
import pickle
from dataclasses import field

import pytest

from ralph.core.limits import Usage
from ralph.core.values import copy_with, value
from ralph.view.model import RunView


@value
class _Point:
    """A value with every kind of field that `value` knows."""

    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)


@value
class _NamedPoint(_Point):
    name: str = "here"


def test_a_value_is_a_frozen_dataclass() -> None:
    point = _Point(1)
    assert (point.x, point.y, point.names) == (1, 2, []) and point.names is not _Point(1).names
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "names": []} and _Point.__match_args__ == ("x", "y", "names")
    assert repr(_NamedPoint(1, y=3)) == "_NamedPoint(x=1, y=3, names=[], name='here')"
    assert _Point(1) == point != _NamedPoint(1) and point != (1, 2, [])
    assert hash(Usage(1, 2)) == hash(Usage(1, 2)) != hash(Usage(2, 1)) and pickle.loads(pickle.dumps(point)) == point
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        del point.x


@value
class _Label:
    text: str
    color: str = field(default="red", compare=False)


def test_fields_without_compare_do_not_count_for_equality() -> None:
    assert _Label("a", "red") == _Label("a", "blue") != _Label("b", "red")
    assert hash(_Label("a", "red")) == hash(_Label("a", "blue")) and _Label("a") != "a"


def test_fields_that_need_a_whole_dataclass_are_refused() -> None:
    with pytest.raises(TypeError, match=r"_Late needs dataclasses\.dataclass: at is a special field"):

        @value
        class _Late:
            at: float = field(default=0.0, kw_only=True)


def test_missing_and_unknown_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"_Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        _Point()  # type: ignore[call-arg]


def test_a_copy_has_the_changes_and_everything_else() -> None:
    view = RunView(seq=3, headline="working")
    changed = copy_with(view, seq=4)
    assert changed == dataclasses.replace(view, seq=4)
    assert (view.seq, changed.headline, hash(changed.run)) == (3, "working", hash(view.run))


def test_a_copy_with_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="RunView has no field sequence"):
        copy_with(RunView(), sequence=4)

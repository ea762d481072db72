"""Copies of frozen values are like those of `dataclasses.replace`."""

import dataclasses

import pytest

from ralph.core.copying import copy_with
from ralph.view.model import RunView


def test_a_copy_has_the_changes_and_everything_else() -> None:
    view = RunView(seq=3, headline="working")
    changed = copy_with(view, seq=4)
    assert changed == dataclasses.replace(view, seq=4)
    assert (view.seq, changed.headline, hash(changed.run)) == (3, "working", hash(view.run))


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="RunView has no field sequence"):
        copy_with(RunView(), sequence=4)

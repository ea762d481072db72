"""Excerpts of what checks print: the beginning, the end and the errors, with a note on what is missing."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ralph.core.check_output import excerpt_output, fence, find_error_lines


def test_cause_in_the_first_of_many_lines_is_quoted() -> None:
    cause = "src/app.ts(3,7): error TS2304: Cannot find name 'Invoice'."
    output = "\n".join([cause, *(f"at step {number}" for number in range(6000)), "Found 1 error."])
    text, left_out = excerpt_output(output, 2000)
    assert text.startswith(cause) and text.endswith("Found 1 error.")
    assert left_out > 5000 and f"... {left_out} lines left out" in text
    assert len(text) <= 2000


def test_errors_in_the_middle_are_quoted_in_their_order() -> None:
    lines = [f"compiling module number {number}" for number in range(3000)]
    lines[1500], lines[2000] = "pay.rs:40:7: error[E0308]: mismatched types", "1 test failed: test_pay"
    text, _ = excerpt_output("\n".join(lines), 1500)
    assert text.index("mismatched types") < text.index("test_pay")
    assert text.count("lines left out") == 3


def test_excerpt_of_an_excerpt_still_counts_the_lines_of_the_whole() -> None:
    output = "\n".join(f"line {number}" for number in range(5000))
    first, _ = excerpt_output(output, 4000)
    second, left_out = excerpt_output(first, 500)
    kept = [line for line in second.splitlines() if not line.startswith("...")]
    assert left_out == 5000 - len(kept)


@given(st.lists(st.text(max_size=40), max_size=200).map("\n".join), st.integers(50, 2000))
def test_no_line_is_missing_without_a_note(output: str, room: int) -> None:
    text, left_out = excerpt_output(output, room)
    noted = sum(int(number) for number in re.findall(r"^\.\.\. (\d+) lines? left out$", text, re.MULTILINE))
    assert noted == left_out


@given(
    st.lists(st.sampled_from(["ok", "x" * 70, "a.py:1:2: error: no", "it failed here", "y" * 900])),
    st.integers(1300, 6000),
)
def test_excerpt_is_never_longer_than_its_room(lines: list[str], room: int) -> None:
    text, _ = excerpt_output("\n".join(lines * 20), room)
    assert len(text) <= room


def test_excerpt_uses_its_room_if_every_line_is_an_error() -> None:
    text, left_out = excerpt_output("\n".join(f"a.py:{number}: {'x' * 90}" for number in range(100, 300)), 6000)
    assert 5890 < len(text) <= 6000
    assert left_out == 200 - 59 and text.count("left out") == 1


def test_lines_that_only_count_are_not_errors() -> None:
    output = "=== FAILURES ===\nE   AssertionError: assert 1 == 2\n1 failed, 2 passed in 0.1s"
    assert find_error_lines(output, 3) == ["E   AssertionError: assert 1 == 2"]


def test_fence_is_longer_than_any_in_the_text() -> None:
    assert fence("a\n```\nb") == "````\na\n```\nb\n````"

"""Text for terminals and files."""

import pytest

from ralph.core.text import clean_for_terminal, clean_text, remove_controls, shorten


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[31mred\x1b[0m and \x1b]0;owned\x07a title", "red and a title"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("open \x1b]0;never closed", "open ]0;never closed"),
        ("a\x1b[", "a["),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_whole_control_sequences_are_removed(text: str, clean: str) -> None:
    assert clean_text(text) == clean_for_terminal(text) == clean


def test_control_characters_are_removed_and_hidden_text_is_shown() -> None:
    assert remove_controls("echo \x1b]0;; rm -rf ~;\x07") == "echo ]0;; rm -rf ~;"


def test_terminals_get_no_changes_of_direction_and_no_lone_returns() -> None:
    assert clean_for_terminal("a\u202eb\u2066c\rd\r\n") == "abcd\r\n"


def test_text_is_cut_at_a_space_if_one_is_near() -> None:
    assert shorten("one two three", 9) == "one two…"
    assert shorten("x" * 20, 9) == "x" * 8 + "…"
    assert shorten("short", 9) == "short"

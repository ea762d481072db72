"""The output of programs has colors, and nothing else of a terminal."""

import pytest

from ralph.view.ansi import split_colors


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", [("", "plain")]),
        ("\x1b[31mred\x1b[0m, then not", [("c1", "red"), ("", ", then not")]),
        (
            "\x1b[1;32mbold green\x1b[39m bold\x1b[22m none",
            [("bold c2", "bold green"), ("bold", " bold"), ("", " none")],
        ),
        ("\x1b[92mbright\x1b[m", [("c2", "bright")]),
        ("\x1b[38;5;9mof 256\x1b[38;5;200mother", [("c1", "of 256"), ("", "other")]),
        ("\x1b[38;2;1;31;3mof millions", [("", "of millions")]),
        ("\x1b[41;33mbackground", [("c3", "background")]),
        ("\x1b[48;5;1;34mbackground", [("c4", "background")]),
        ("\x1b[2Jcleared\x1b]0;title\x07", [("", "cleared")]),
        ("10 %\r50 %\rdone\r\nnext", [("", "done\nnext")]),
        ("\x1b[38;5mcut", [("", "cut")]),
        ("<b>\x1b[31m<img onerror=x>", [("", "<b>"), ("c1", "<img onerror=x>")]),
        ("\u202eback", [("", "⟨U+202E⟩back")]),
        ("\x1b[99999999999;31mred", [("c1", "red")]),
    ],
)
def test_only_colors_stay_of_what_commands_a_terminal(text: str, parts: list[tuple[str, str]]) -> None:
    assert split_colors(text) == parts

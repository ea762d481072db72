"""The user's sentence: which checks it asks for, and how it is refused where no command can verify it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check
from ralph.core.errors import UsageError
from ralph.verify.criterion import compile_criterion


def commands(text: str) -> list[str]:
    return [check.command for check in compile_criterion(text, 60.0)]


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        compile_criterion(text, 60.0)
    return caught.value


class TestCommands:
    @pytest.mark.parametrize(
        "text",
        [
            "`pytest -q`",
            "`pytest -q` passes",
            "`pytest -q` PASSES",
            "`pytest -q`passes",
            "  `pytest -q`   succeeds ",
            "`pytest -q` exits 0",
            "`pytest -q` exits with 0",
            "`pytest -q` exits with code 0",
            "` pytest -q `",
            "`pytest -q`\n passes",
        ],
    )
    def test_a_command_in_backticks_must_exit_with_0(self, text: str) -> None:
        assert compile_criterion(text, 60.0) == (Check("pytest -q", 60.0),)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("`a` AND `b`", ["a", "b"]),
            ("`a` passes AND `b` exits 0 AND `c`", ["a", "b", "c"]),
            ("`a`\nAND\n`b`", ["a", "b"]),
            ("`make AND break` AND `b`", ["make AND break", "b"]),
            ("`grep ' AND ' x` passes", ["grep ' AND ' x"]),
            ("`a` AND `a`", ["a", "a"]),
        ],
    )
    def test_and_joins_commands_and_belongs_to_them_inside_backticks(self, text: str, expected: list[str]) -> None:
        assert commands(text) == expected

    @pytest.mark.parametrize(
        "command",
        ["test -f a && ! grep -q TODO a", "python -c 'import sys; sys.exit(0)'", "a | b > c", "echo $(x)", "日本"],
    )
    def test_a_command_is_kept_as_its_author_wrote_it(self, command: str) -> None:
        assert commands(f"`{command}` passes") == [command]


class TestRefusals:
    @pytest.mark.parametrize("text", ["", "   ", "\n"])
    def test_an_empty_criterion_is_refused(self, text: str) -> None:
        assert "empty" in refusal(text).what

    @pytest.mark.parametrize(
        "text",
        [
            "all tests pass",
            "the code is clean",
            "``",
            "` `",
            "`a",
            "a`",
            "`a` `b`",
            "`a` and `b`",
            "`a` fails",
            "`a` exits 1",
            "`a` exits 00",
            "`a` AND",
            "AND `a`",
            "`a` AND AND `b`",
            "`a` passes quickly",
            "please run `a`",
            "`a` OR `b`",
        ],
    )
    def test_what_cannot_be_run_is_refused_with_the_form_to_use(self, text: str) -> None:
        error = refusal(text)
        assert "`" in error.todo
        assert error.outcome.exit_code == 2

    @pytest.mark.parametrize(
        ("text", "rewrite"),
        [
            ("pytest -q", "'`pytest -q` passes'"),
            ("pytest -q passes", "'`pytest -q` passes'"),
            ("npm test works", "'`npm test` passes'"),
            ("./check.sh is green", "'`./check.sh` passes'"),
        ],
    )
    def test_what_begins_with_a_program_is_rewritten(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, rewrite: str
    ) -> None:
        for name in ("pytest", "npm", "check.sh"):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert rewrite in refusal(text).todo

    def test_what_begins_with_no_program_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        assert "flawless" not in refusal("flawless code").todo

    def test_output_that_the_shell_put_there_is_recognised(self) -> None:
        assert "single quotes" in refusal("3 passed in 0.1s\nall good").todo

    def test_a_long_criterion_is_not_quoted_whole(self) -> None:
        assert len(refusal("word " * 5000).what) < 200

    def test_one_bad_part_refuses_the_whole(self) -> None:
        assert "it is nice" in refusal("`a` passes AND it is nice").what

    def test_a_null_byte_is_no_and(self) -> None:
        refusal("`a`\0`b`")


plain = st.text(alphabet=st.characters(exclude_characters="`\0", exclude_categories=["Cs"]), min_size=1, max_size=30)


@settings(deadline=None)
@given(st.lists(plain.filter(str.strip), min_size=1, max_size=4))
def test_whatever_stands_in_backticks_is_the_command(parts: list[str]) -> None:
    assert commands(" AND ".join(f"`{part}` passes" for part in parts)) == [part.strip() for part in parts]


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet=st.sampled_from(list("`aAND passe0xit\n")), max_size=40))
def test_every_text_is_compiled_or_refused(text: str) -> None:
    try:
        found = commands(text)
    except UsageError:
        return
    assert found
    assert all(command.strip() and "`" not in command for command in found)

"""The adapter of Kiro CLI. Its output is composed after its documentation: its service cannot be stood in for."""

import sys
from pathlib import Path

import pytest
from playing import STREAMS, played, signed_in, texts

from ralph.agents.adapter import Call
from ralph.agents.kiro import Kiro
from ralph.core.turns import EventKind, Failure

PAID = " ▸ Credits: 12.29 • Time: 17m 51s".encode()


def test_the_command() -> None:
    call = Call(Path("/repo"), "claude-sonnet-4.6", ("--agent", "mine"), 1.5, 30, "abc")
    words = Kiro("/opt/kiro").command(call)
    assert words[:5] == (sys.executable, "-P", "-m", "ralph.agents.wrap_program", "pipe-prompt")
    assert words[words.index("/opt/kiro") + 1 :] == (
        *("chat", "--no-interactive", "--trust-all-tools", "--wrap", "never", "--model", "claude-sonnet-4.6"),
        *("--agent", "mine"),
    )
    assert Kiro().program == "kiro-cli"


def test_a_turn_that_went_well() -> None:
    events, account = played(Kiro(), (STREAMS / "kiro.txt").read_bytes().splitlines())
    assert account.finished and account.failure is None and not account.error
    said = texts(events, EventKind.TEXT)
    assert said[0] == "I run a command." and said[-1] == "Done.", "without colours and marks"
    assert account.text.endswith("Done.")


def test_exit_code_0_without_usage_is_not_a_success() -> None:
    assert not played(Kiro(), [b"> Done."])[1].finished
    assert played(Kiro(), [b"> Done.", PAID])[1].finished
    account = played(Kiro(), [b"Authentication failed. Check your API key."])[1]
    assert not account.finished and account.failure is Failure.ACCESS


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        (b"error: You've reached your monthly limit of credits: quota", Failure.LIMIT),
        (b"error: unexpected argument '--x' found", Failure.ACCESS),
        (b"\x1b[31mError: the service is temporarily not there", Failure.OVERLOAD),
    ],
)
def test_errors(line: bytes, failure: Failure) -> None:
    account = played(Kiro(), [b"> Hm.", line])[1]
    assert not account.finished and account.failure is failure


def test_an_error_that_it_overcame_is_none() -> None:
    assert played(Kiro(), [b"error: a test failed", b"> Now it passes.", PAID])[1].finished


def test_exit_codes() -> None:
    for code in (3, 4):
        told = Kiro().failure(code, "")
        assert told is not None and told[0] is Failure.ACCESS
    assert Kiro().failure(1, "") is None


def test_sign_in(tmp_path: Path) -> None:
    assert signed_in(Kiro(), {}, "", tmp_path) is False
    assert signed_in(Kiro(), {"KIRO_API_KEY": "sk"}, "", tmp_path) is True

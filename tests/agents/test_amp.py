"""The adapter of Amp. Its streams are composed after its documentation: its service cannot be stood in for."""

from pathlib import Path

import pytest
from playing import played, refuse_success, signed_in, texts

from ralph.agents.adapter import Call
from ralph.agents.claude import Amp
from ralph.core.turns import EventKind, Failure


def test_the_command() -> None:
    call = Call(Path("/repo"), "high", ("--fast",), 1.5, 30, "T-1")
    assert Amp("/opt/amp").command(call) == (
        *(
            "/opt/amp",
            "threads",
            "continue",
            "T-1",
            "--execute",
            "--stream-json-thinking",
            "--dangerously-allow-all",
            "--no-ide",
        ),
        *("--mode", "high", "--fast"),
    )
    assert Amp().command(Call(Path("/repo")))[:2] == ("amp", "--execute")


def test_a_turn_that_went_well() -> None:
    events, account = played(Amp(), "amp")
    assert account.finished and account.failure is None and not account.error
    assert account.session == "T-00000000-0000-4000-8000-000000000001"
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."] and account.text == "Done."
    assert (texts(events, EventKind.TOOL), texts(events, EventKind.TOOL_RESULT)) == (["Bash: echo a"], ["a"])


def test_tokens_of_the_cache_are_part_of_those_put_in() -> None:
    usage = played(Amp(), "amp")[1].usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (12783 + 12900, 58, None)


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("amp-failed", Failure.AGENT, "cannot be continued"),
        ("amp-limited", Failure.LIMIT, "429 Too Many Requests"),
    ],
)
def test_a_turn_that_failed(stream: str, failure: Failure, said: str) -> None:
    refuse_success(Amp(), stream, failure, said)


def test_its_own_limit_of_turns_and_denials() -> None:
    end = {"type": "result", "subtype": "error_max_turns", "is_error": True, "error": "Reached max turns"}
    account = played(Amp(), [{**end, "permission_denials": ["Bash", 7]}])[1]
    assert account.failure is Failure.AGENT and "its own turn limit" in account.error
    assert account.denied == ["Bash"]


def test_without_a_key_it_takes_the_prompt_for_a_code() -> None:
    told = Amp().failure(1, "Login failed: That code looks incomplete. Copy the full code and try again.")
    assert told is not None and told[0] is Failure.ACCESS
    told = Amp().failure(1, "Error: Couldn't connect to the Amp server. / Check your network connection and try again.")
    assert told is not None and told[0] is Failure.OVERLOAD


def test_sign_in(tmp_path: Path) -> None:
    assert signed_in(Amp(), {}, "", tmp_path) is False
    assert signed_in(Amp(), {"AMP_API_KEY": "sk"}, "", tmp_path) is True
    assert signed_in(Amp(), {}, ".local/share/amp/secrets.json", tmp_path) is True

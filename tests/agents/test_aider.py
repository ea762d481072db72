"""The adapter of Aider: how it is started, and what its real output comes to."""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playing import STREAMS, billed, played, signed_in, texts

from ralph.agents import stream_lines
from ralph.agents.adapter import Call
from ralph.agents.aider import Aider
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794812712.0
"""When it was told last of a limit of which 3524 seconds were left."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)


def recorded(name: str) -> list[bytes]:
    """The lines of a recorded turn."""
    return (STREAMS / f"{name}.txt").read_bytes().splitlines()


def event(name: str, **about: Any) -> bytes:
    """A line of its own log."""
    return json.dumps({"event": name, "properties": about, "user_id": "id-1", "time": 1}).encode()


ASKING, ANSWERED = (
    event("message_send_starting"),
    event("message_send", prompt_tokens=10, completion_tokens=5, cost=0.0),
)
EXIT = event("exit", reason="Completed --message-file")


def ends(*told: bytes, model: str = "") -> tuple[bool, Failure | None, str]:
    """How a turn of these lines ended."""
    account = played(Aider(), [event("launched"), *told], model)[1]
    return account.finished, account.failure, account.error


def test_the_command(tmp_path: Path) -> None:
    prompt = tmp_path / "turns" / "00003-implementer" / "prompt.md"
    words = Aider("/opt/aider").command(Call(Path("/repo"), "gpt-5", ("--map-tokens", "0"), prompt=prompt))
    assert words[0] == "/opt/aider" and words[-4:] == ("--model", "gpt-5", "--map-tokens", "0")
    assert {"--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-analytics", "--yes-always"} <= set(words)
    given = dict(pairwise(words))
    assert given["--message-file"] == str(prompt)
    assert given["--file"] == "/repo/.ralph/turn/outbox/result.json"
    for option in ("--chat-history-file", "--input-history-file"):
        assert Path(given[option]).parent == prompt.parent / "agent", "nothing of its own in the user's tree"


def test_a_conversation_is_gone_on_with_by_its_history(tmp_path: Path) -> None:
    first, second = (tmp_path / "turns" / name / "prompt.md" for name in ("00003-implementer", "00004-implementer"))
    reader = Aider().reader(Call(Path("/repo"), prompt=first), Usage())
    [session] = [told.session for told in reader.read(event("launched"))]
    words = Aider().command(Call(Path("/repo"), prompt=second, session=session))
    history = words[words.index("--chat-history-file") + 1]
    assert Path(history).parent == first.parent / "agent" and "--restore-chat-history" in words
    again = Aider().reader(Call(Path("/repo"), prompt=second, session=session), Usage())
    assert [told.session for told in again.read(event("launched"))] == [session]


def test_no_browser_is_opened_for_the_pages_that_errors_name() -> None:
    assert Aider().environment(Call(Path()))["BROWSER"] == "true"


def test_a_turn_that_went_well() -> None:
    events, account = played(Aider(), recorded("aider"))
    assert account.finished and account.failure is None and not account.error and account.session
    assert billed(account.usage) == Usage(1000, 50, 0.0013)
    [text] = texts(events, EventKind.TEXT)
    assert text.startswith("hello.txt") and text.endswith("Done."), "neither the banner nor the tokens"
    assert texts(events, EventKind.TOOL) == ["edit: hello.txt"]
    assert account.text == text


@pytest.mark.parametrize(
    ("stream", "failure", "said", "tries"),
    [
        ("aider-signed-out", Failure.ACCESS, "mock error 401", 0),
        ("aider-limited", Failure.LIMIT, "Rate limit reached", 8),
        ("aider-overloaded", Failure.OVERLOAD, "mock error 500", 8),
    ],
)
def test_a_turn_that_failed_with_exit_code_0(stream: str, failure: Failure, said: str, tries: int) -> None:
    events, account = played(Aider(), recorded(stream))
    assert not account.finished and account.failure is failure and said in account.error
    assert len(texts(events, EventKind.RETRY)) == tries and not texts(events, EventKind.TEXT)
    if failure is Failure.LIMIT:
        assert account.resets_at == pytest.approx(NOW + 3524)


def test_price_of_the_table_is_used_if_the_agent_knows_none() -> None:
    assert billed(played(Aider(), [ASKING, b"Hi.", ANSWERED, EXIT], "gpt-5")[1].usage) == Usage(10, 5, 0.0000625)
    assert billed(played(Aider(), [ASKING, b"Hi.", ANSWERED, EXIT])[1].usage) == Usage(10, 5, unpriced="")


def test_answer_about_errors_is_not_an_error() -> None:
    said = (b"litellm.RateLimitError: this is what you see then", b"Retrying in 0.2 seconds...", b"So it is.")
    assert ends(ASKING, *said, ANSWERED, EXIT)[:2] == (True, None)
    assert ends(ASKING, *said, EXIT)[:2] == (False, Failure.AGENT)


def test_the_last_question_counts() -> None:
    """It asks again where its edits do not fit."""
    assert ends(ASKING, b"One.", ANSWERED, ASKING, b"litellm.Timeout: late", EXIT)[:2] == (False, Failure.OVERLOAD)
    assert ends(ASKING, b"One.", ANSWERED, ASKING, b"Two.", ANSWERED, EXIT)[0]


@pytest.mark.parametrize(
    ("told", "failure"),
    [
        ([EXIT], Failure.AGENT),
        ([ASKING, EXIT], Failure.AGENT),
        ([ASKING, b"Half of", ANSWERED, b"Model openai/gpt-5 has hit a token limit!", EXIT], Failure.AGENT),
        ([ASKING, event("message_send_exception", exception="KeyError: 'x'"), EXIT], Failure.AGENT),
        ([ASKING, b"litellm.APIConnectionError: no route", EXIT], Failure.OVERLOAD),
        ([ASKING, b"litellm.AuthenticationError: Incorrect API key provided", EXIT], Failure.ACCESS),
        ([event("exit", reason="Message file not found")], Failure.AGENT),
    ],
)
def test_results_that_are_not_a_success(told: Iterable[bytes], failure: Failure) -> None:
    finished, why, said = ends(*told)
    assert not finished and why is failure and said


def test_events_without_a_receiver() -> None:
    for line in (b'{"event": "exit", "properties": {"reason": "Completed --message-file"}}', b'{"event": 1}', b"{"):
        assert not ends(ASKING, b"Hi.", ANSWERED, line)[0]


def test_sign_in(tmp_path: Path) -> None:
    assert signed_in(Aider(), {}, "", tmp_path) is False
    assert signed_in(Aider(), {"ANTHROPIC_API_KEY": "sk"}, "", tmp_path) is True
    (tmp_path / ".aider.conf.yml").touch()
    assert signed_in(Aider(), {}, "", tmp_path) is None
    assert signed_in(Aider(), {}, ".aider/oauth-keys.env", tmp_path) is True

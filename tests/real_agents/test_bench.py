"""The bench itself: the real programs, called without Ralph, do what our model says and talk to nobody else."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from homes import HOMES
from isolation import isolation
from place import Done, Place
from script import FOREVER, Step, broken, cut, limited, put, refuse, run, say
from wire import Tokens

TASK = "Create hello.txt, and say hello in it."
WORK = (put("hello.txt", "hello\n"), run("cat hello.txt"), say("All done."))
LARGE = 310_000
PLAN = {"CLAUDE_CODE_OAUTH_TOKEN": "mock", "ANTHROPIC_API_KEY": ""}
"""What makes Claude Code believe in a subscription; the others do not look at it."""
Stream = list[dict[str, Any]]
real = pytest.mark.real_agents


def call(bench: Place, agent: str, *steps: Step, prompt: str = TASK, timeout: float = 90) -> Done:
    bench.model.play(*steps)
    return bench.finish(*HOMES[agent].words, prompt=prompt, timeout=timeout)


def session_of(agent: str, stream: Stream) -> str:
    key = {"claude": "session_id", "codex": "thread_id", "gemini": "session_id"}[agent]
    return str(next(event[key] for event in stream if key in event))


def tokens_of(agent: str, stream: Stream) -> tuple[int, int, int]:
    """All that was sent, what of it was cached, and what was answered."""
    end = stream[-1]
    if agent == "claude":
        [used] = end["modelUsage"].values()
        return used["inputTokens"] + used["cacheReadInputTokens"], used["cacheReadInputTokens"], used["outputTokens"]
    if agent == "codex":
        used = end["usage"]
        return used["input_tokens"], used["cached_input_tokens"], used["output_tokens"]
    used = end["stats"]
    return used["input_tokens"], used["cached"], used["output_tokens"]


ENDED_WELL: dict[str, Callable[[dict[str, Any]], bool]] = {
    "claude": lambda end: end["type"] == "result" and not end["is_error"],
    "codex": lambda end: end["type"] == "turn.completed",
    "gemini": lambda end: end["type"] == "result" and end["status"] == "success",
}


@real
def test_an_agent_writes_the_file_and_says_what_it_used(bench: Place, agent: str) -> None:
    bench.furnish(agent)
    bench.model.tokens = Tokens(1000, 50, cached=400)
    done = call(bench, agent, *WORK)
    assert done.code == 0, done.said
    assert (bench.root / "hello.txt").read_text() == "hello\n"
    assert ENDED_WELL[agent](done.stream[-1]), done.stream[-1]
    assert tokens_of(agent, done.stream) == (3000, 1200, 150)
    requests = bench.model.requests
    assert (len(requests), TASK in requests[0].said) == (3, True)
    assert "hello" in requests[-1].text, "the output of the command went back to the model"
    assert [one.path for one in bench.model.all_requests if not one.api] == [], "it asked for nothing else"


@real
def test_a_large_prompt_arrives_whole(bench: Place, agent: str) -> None:
    bench.furnish(agent)
    prompt = f"FIRST {'word ' * (LARGE // 5)}LAST"
    assert call(bench, agent, *WORK, prompt=prompt).code == 0
    assert prompt in bench.model.requests[0].said


@real
def test_a_conversation_is_continued(bench: Place, agent: str) -> None:
    bench.furnish(agent)
    first = call(bench, agent, say("The word is xylophone."), prompt="Think of a word.")
    bench.model.play(*WORK)
    again = HOMES[agent].resume(session_of(agent, first.stream))
    done = bench.finish(*again, prompt="Now write it down.")
    assert done.code == 0, done.said
    assert session_of(agent, done.stream) == session_of(agent, first.stream)
    history = bench.model.requests[1].text
    assert all(words in history for words in ("Think of a word.", "xylophone", "Now write it down."))


@real
@pytest.mark.parametrize("fault", [refuse(529, 2), limited(2), broken(), cut()], ids=["529", "429", "broken", "cut"])
def test_what_an_agent_overcomes_by_itself(bench: Place, agent: str, fault: Step) -> None:
    bench.furnish(agent)
    done = call(bench, agent, fault, *WORK)
    overcome = {("codex", "broken"): False, ("gemini", "cut"): False}.get((agent, str(fault.fault)), True)
    assert (done.code == 0, (bench.root / "hello.txt").exists()) == (overcome, overcome), done.said
    assert ENDED_WELL[agent](done.stream[-1]) is overcome
    if overcome:
        assert tokens_of(agent, done.stream) == (3000, 0, 150), "and nothing of it is lost on the receipt"


@real
@pytest.mark.parametrize("status", [401, 500])
def test_what_an_agent_does_not_overcome(bench: Place, agent: str, status: int) -> None:
    bench.furnish(agent, tries=2)
    done = call(bench, agent, refuse(status, FOREVER))
    codes = {("gemini", 401): 145, ("gemini", 500): 244}
    assert done.code == codes.get((agent, status), 1), done.said
    assert not ENDED_WELL[agent](done.stream[-1])
    assert len(bench.model.requests) <= 4


SAID_OF_LIMITS = {"claude": "hit your session limit · resets", "codex": "try again at", "gemini": "Please retry in 3s"}


@real
def test_a_limit_is_named_with_its_end(bench: Place, agent: str) -> None:
    bench.furnish(agent, tries=1, **PLAN)
    done = call(bench, agent, limited(3, of_plan=agent != "gemini"))
    assert done.code != 0
    assert SAID_OF_LIMITS[agent] in json.dumps(done.stream[-1], ensure_ascii=False), done.out
    if agent == "claude":
        [told] = [event for event in done.stream if event["type"] == "rate_limit_event"]
        assert 0 <= told["rate_limit_info"]["resetsAt"] - bench.model.requests[0].at <= 4


CLIENT = """
import json, sys, urllib.request
for path, body in json.loads(sys.argv[2]):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), {"content-type": "application/json"})
    print(json.dumps(urllib.request.urlopen(request, timeout=20).read().decode()))
"""
SHELL = {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/messages", {"messages": [], "tools": [{"name": "bash", "input_schema": SHELL["parameters"]}]}),
    ("/v1/responses", {"input": "hi", "tools": [{"type": "function", **SHELL}]}),
    ("/v1/chat/completions", {"messages": [], "tools": [{"type": "function", "function": SHELL}]}),
    ("/v1beta/models/m:generateContent", {"contents": [], "tools": [{"functionDeclarations": [SHELL]}]}),
]


def ask(bench: Place, *questions: tuple[str, dict[str, Any]]) -> list[str]:
    done = bench.finish(sys.executable, "-c", CLIENT, bench.model.url, json.dumps(questions))
    assert done.code == 0, done.said
    return [str(json.loads(line)) for line in done.out.splitlines()]


def test_every_wire_format_answers_at_once_and_as_a_stream(bench: Place) -> None:
    steps = [run(f"echo {number}") for number in range(8)]
    bench.model.play(*steps)
    whole = ask(bench, *ASKED)
    streamed = [
        (path.replace(":generate", ":streamGenerate"), {**body, **({} if "gemini" in path else {"stream": True})})
        for path, body in ASKED
    ]
    answers = [*whole, *ask(bench, *streamed)]
    assert all(f"echo {number}" in answer.replace("\\", "") for number, answer in enumerate(answers)), answers
    assert ["data: " in answer for answer in answers] == [False] * 4 + [True] * 4
    assert [one.api for one in bench.model.requests[:4]] == ["anthropic", "responses", "chat", "gemini"]


def test_a_question_without_tools_is_not_part_of_the_script(bench: Place) -> None:
    bench.model.play(say("the first step"))
    title, step, after = ask(bench, ("/v1/messages", {"messages": []}), ASKED[0], ASKED[0])
    assert ["the first step" in answer for answer in (title, step, after)] == [False, True, False]
    assert len(bench.model.requests) == 2


def test_a_model_says_to_each_format_what_is_meant_for_it(bench: Place) -> None:
    bench.model.play(say("for all"))
    bench.model.play(say("for one"), api="responses")
    assert ["for one" in answer for answer in ask(bench, ASKED[0], ASKED[1])] == [False, True]


@pytest.mark.skipif(isolation() is None, reason="there is no `unshare` here that makes a network")
def test_nothing_but_the_loopback_can_be_reached(bench: Place) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 9), 2)"
    done = bench.finish(sys.executable, "-c", connect, timeout=20)
    assert "Network is unreachable" in done.err

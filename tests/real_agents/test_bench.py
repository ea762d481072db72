"""The bench itself: the real programs, called without Ralph, do what our model says and talk to nobody else."""

import json
import sys
from typing import Any

import pytest
from isolation import isolation
from place import Done, Place
from script import FOREVER, Step, broken, cut, limited, put, refuse, run, say
from subject import SUBJECTS, Raw, Stream
from wire import Tokens

TASK = "Create hello.txt, and say hello in it."
WORK = (put("hello.txt", "hello\n"), run("cat hello.txt"), say("All done."))
LARGE = 310_000
PLAN = {"CLAUDE_CODE_OAUTH_TOKEN": "mock", "ANTHROPIC_API_KEY": ""}
"""What makes Claude Code believe in a subscription; the others do not look at it."""
real = pytest.mark.real_agents


def call(bench: Place, raw: str, *steps: Step, prompt: str = TASK, timeout: float = 90) -> Done:
    bench.model.play(*steps)
    return bench.finish(*told(raw).words, prompt=prompt, timeout=timeout)


def told(raw: str) -> Raw:
    """What is known of an agent's own stream."""
    known = SUBJECTS[raw].raw
    assert known
    return known


def session_of(raw: str, stream: Stream) -> str:
    key = told(raw).session
    return str(next(event[key] for event in stream if key in event))


@real
def test_an_agent_writes_the_file_and_says_what_it_used(bench: Place, raw: str) -> None:
    bench.furnish(raw)
    bench.model.tokens = Tokens(1000, 50, cached=400)
    done = call(bench, raw, *WORK)
    assert done.code == 0, done.said
    assert (bench.root / "hello.txt").read_text() == "hello\n"
    assert told(raw).ended_well(done.stream[-1]), done.stream[-1]
    assert told(raw).tokens(done.stream[-1]) == (3000, 1200, 150)
    requests = bench.model.requests
    assert (len(requests), TASK in requests[0].said) == (3, True)
    assert "hello" in requests[-1].text, "the output of the command went back to the model"
    assert [one.path for one in bench.model.all_requests if not one.api] == [], "it asked for nothing else"


@real
def test_a_large_prompt_arrives_whole(bench: Place, raw: str) -> None:
    bench.furnish(raw)
    prompt = f"FIRST {'word ' * (LARGE // 5)}LAST"
    assert call(bench, raw, *WORK, prompt=prompt).code == 0
    assert prompt in bench.model.requests[0].said


@real
def test_a_conversation_is_continued(bench: Place, raw: str) -> None:
    bench.furnish(raw)
    first = call(bench, raw, say("The word is xylophone."), prompt="Think of a word.")
    bench.model.play(*WORK)
    again = told(raw).resume(session_of(raw, first.stream))
    done = bench.finish(*again, prompt="Now write it down.")
    assert done.code == 0, done.said
    assert session_of(raw, done.stream) == session_of(raw, first.stream)
    history = bench.model.requests[1].text
    assert all(words in history for words in ("Think of a word.", "xylophone", "Now write it down."))


@real
@pytest.mark.parametrize("fault", [refuse(529, 2), limited(2), broken(), cut()], ids=["529", "429", "broken", "cut"])
def test_what_an_agent_overcomes_by_itself(bench: Place, raw: str, fault: Step) -> None:
    bench.furnish(raw)
    done = call(bench, raw, fault, *WORK)
    overcome = told(raw).overcomes.get(str(fault.fault), True)
    assert (done.code == 0, (bench.root / "hello.txt").exists()) == (overcome, overcome), done.said
    assert told(raw).ended_well(done.stream[-1]) is overcome
    if overcome:
        assert told(raw).tokens(done.stream[-1]) == (3000, 0, 150), "and nothing of it is lost on the receipt"


@real
@pytest.mark.parametrize("status", [401, 500])
def test_what_an_agent_does_not_overcome(bench: Place, raw: str, status: int) -> None:
    bench.furnish(raw, tries=2)
    done = call(bench, raw, refuse(status, FOREVER))
    assert done.code == told(raw).codes.get(status, 1), done.said
    assert not told(raw).ended_well(done.stream[-1])
    assert len(bench.model.requests) <= 4


@real
def test_a_limit_is_named_with_its_end(bench: Place, raw: str) -> None:
    bench.furnish(raw, tries=1, **PLAN)
    done = call(bench, raw, limited(3, of_plan=SUBJECTS[raw].limit_of_plan))
    assert done.code != 0
    assert told(raw).limit in json.dumps(done.stream[-1], ensure_ascii=False), done.out
    if raw == "claude":
        [event] = [event for event in done.stream if event["type"] == "rate_limit_event"]
        assert 0 <= event["rate_limit_info"]["resetsAt"] - bench.model.requests[0].at <= 4


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
    done = bench.finish(sys.executable, "-c", connect)
    assert "Network is unreachable" in done.err

"""The scripted model itself: real programs, called without Ralph, do what it says and talk to nothing else."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, CommandResult
from isolation import isolation
from model import Request
from script import FOREVER, Step, broken, cut, limited, put, refuse, run, say
from subject import SUBJECTS, Raw, Stream
from wire import Tokens

TASK = "Create hello.txt, and say hello in it."
WORK = (put("hello.txt", "hello\n"), run("cat hello.txt"), say("All done."))
LARGE = 310_000
PLAN = {"CLAUDE_CODE_OAUTH_TOKEN": "mock", "ANTHROPIC_API_KEY": ""}
"""Makes Claude Code assume a subscription. Other agents ignore it."""
real = pytest.mark.real_agents


def call(project: AgentProject, raw: str, *steps: Step, prompt: str = TASK, timeout: float = 90) -> CommandResult:
    project.model.play(*steps)
    return project.finish(*raw_facts(raw).command, prompt=prompt, timeout=timeout)


def raw_facts(raw: str) -> Raw:
    """The facts about an agent's own stream."""
    known = SUBJECTS[raw].raw
    assert known
    return known


def session_of(raw: str, stream: Stream) -> str:
    key = raw_facts(raw).session
    return str(next(event[key] for event in stream if key in event))


@real
def test_an_agent_writes_the_file_and_says_what_it_used(project: AgentProject, raw: str) -> None:
    project.set_up(raw)
    project.model.tokens = Tokens(1000, 50, cached=400)
    done = call(project, raw, *WORK)
    assert done.code == 0, done.output
    assert (project.root / "hello.txt").read_text() == "hello\n"
    assert raw_facts(raw).ended_well(done.stream[-1]), done.stream[-1]
    assert raw_facts(raw).tokens(done.stream[-1]) == (3000, 1200, 150)
    requests = project.model.requests
    assert (len(requests), TASK in requests[0].user_text) == (3, True)
    assert "hello" in requests[-1].text, "the output of the command went back to the model"
    assert [one.path for one in project.model.all_requests if not one.api] == [], "it asked for nothing else"


@real
def test_a_large_prompt_arrives_whole(project: AgentProject, raw: str) -> None:
    project.set_up(raw)
    prompt = f"FIRST {'word ' * (LARGE // 5)}LAST"
    assert call(project, raw, *WORK, prompt=prompt).code == 0
    assert prompt in project.model.requests[0].user_text


@real
def test_a_conversation_is_continued(project: AgentProject, raw: str) -> None:
    project.set_up(raw)
    first = call(project, raw, say("The word is xylophone."), prompt="Think of a word.")
    project.model.play(*WORK)
    again = raw_facts(raw).resume(session_of(raw, first.stream))
    done = project.finish(*again, prompt="Now write it down.")
    assert done.code == 0, done.output
    assert session_of(raw, done.stream) == session_of(raw, first.stream)
    history = project.model.requests[1].text
    assert all(text in history for text in ("Think of a word.", "xylophone", "Now write it down."))


@real
@pytest.mark.parametrize("fault", [refuse(529, 2), limited(2), broken(), cut()], ids=["529", "429", "broken", "cut"])
def test_an_agent_recovers_from_some_faults_by_itself(project: AgentProject, raw: str, fault: Step) -> None:
    project.set_up(raw)
    done = call(project, raw, fault, *WORK)
    overcome = raw_facts(raw).recovers_from.get(str(fault.fault), True)
    assert (done.code == 0, (project.root / "hello.txt").exists()) == (overcome, overcome), done.output
    assert raw_facts(raw).ended_well(done.stream[-1]) is overcome
    if overcome:
        assert raw_facts(raw).tokens(done.stream[-1]) == (3000, 0, 150), "and nothing of it is lost on the receipt"


@real
@pytest.mark.parametrize("status", [401, 500])
def test_an_agent_fails_on_other_faults(project: AgentProject, raw: str, status: int) -> None:
    project.set_up(raw, tries=2)
    done = call(project, raw, refuse(status, FOREVER))
    assert done.code == raw_facts(raw).codes.get(status, 1), done.output
    assert not raw_facts(raw).ended_well(done.stream[-1])
    assert len(project.model.requests) <= 4


@real
def test_a_limit_is_named_with_its_end(project: AgentProject, raw: str) -> None:
    project.set_up(raw, tries=1, **PLAN)
    done = call(project, raw, limited(3, of_plan=SUBJECTS[raw].limit_of_plan))
    assert done.code != 0
    assert raw_facts(raw).limit in json.dumps(done.stream[-1], ensure_ascii=False), done.out
    if raw == "claude":
        [event] = [event for event in done.stream if event["type"] == "rate_limit_event"]
        assert 0 <= event["rate_limit_info"]["resetsAt"] - project.model.requests[0].at <= 4


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


def ask(project: AgentProject, *questions: tuple[str, dict[str, Any]]) -> list[str]:
    done = project.finish(sys.executable, "-c", CLIENT, project.model.url, json.dumps(questions))
    assert done.code == 0, done.output
    return [str(json.loads(line)) for line in done.out.splitlines()]


def test_every_wire_format_answers_at_once_and_as_a_stream(project: AgentProject) -> None:
    steps = [run(f"echo {number}") for number in range(8)]
    project.model.play(*steps)
    whole = ask(project, *ASKED)
    streamed = [
        (path.replace(":generate", ":streamGenerate"), {**body, **({} if "gemini" in path else {"stream": True})})
        for path, body in ASKED
    ]
    answers = [*whole, *ask(project, *streamed)]
    assert all(f"echo {number}" in answer.replace("\\", "") for number, answer in enumerate(answers)), answers
    assert ["data: " in answer for answer in answers] == [False] * 4 + [True] * 4
    assert [one.api for one in project.model.requests[:4]] == ["anthropic", "responses", "chat", "gemini"]


def test_a_question_without_tools_is_not_part_of_the_script(project: AgentProject) -> None:
    project.model.play(say("the first step"))
    title, step, after = ask(project, ("/v1/messages", {"messages": []}), ASKED[0], ASKED[0])
    assert ["the first step" in answer for answer in (title, step, after)] == [False, True, False]
    assert len(project.model.requests) == 2


def test_each_wire_format_can_have_its_own_script(project: AgentProject) -> None:
    project.model.play(say("for all"))
    project.model.play(say("for one"), api="responses")
    assert ["for one" in answer for answer in ask(project, ASKED[0], ASKED[1])] == [False, True]


@pytest.mark.skipif(isolation() is None, reason="there is no `unshare` here that makes a network")
def test_only_the_loopback_is_reachable(project: AgentProject) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 9), 2)"
    done = project.finish(sys.executable, "-c", connect)
    assert "Network is unreachable" in done.err


def test_faults_of_prompts_that_reached_the_model_are_found(tmp_path: Path) -> None:
    from received_prompts import find_prompt_faults

    turn = tmp_path / ".ralph" / "runs" / "r" / "turns" / "1"
    turn.mkdir(parents=True)
    prompt = "# Task\nRead `.ralph/turn/inbox/plan.md`.\n```\nopen"
    (turn / "prompt.md").write_text(prompt)
    (turn / "turn.json").write_text('{"parts": [{"name": "rules", "tokens": 100, "budget": 50, "purpose": ""}]}')
    request = Request(0.0, "/", "", "", f"Hello. {prompt}", "", (), None, {}, is_main=True)
    assert find_prompt_faults(tmp_path, [request]) == [
        "1: the fence ``` is not closed",
        "1: `.ralph/turn/inbox/plan.md` is not in the inbox",
        "1: rules: 100 of 50 tokens",
        "1: the prompt is shorter than its parts",
    ]
    stray = replace(request, user_text="Something else")
    found = find_prompt_faults(tmp_path, [stray])
    assert "a request has no whole prompt: Something else" in found
    assert "1: the fence ``` is not closed" in found, "the prompt of a turn that asked nothing is checked, too"

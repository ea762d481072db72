"""`ralph loop` with the real agent programs: what a person types, against a model that is scripted."""

import signal
import time
import uuid
from itertools import pairwise
from typing import Any

import pytest
from place import RALPH, Done, Place, eventually, started_with
from script import FOREVER, Step, cut, hang, limited, put, refuse, run, say
from subject import SUBJECTS
from wire import Tokens

pytestmark = pytest.mark.real_agents
TASK = "Create hello.txt, and say hello in it."
UNTIL = "`grep -q hello hello.txt`"
WORK = (put("hello.txt", "hello\n"), run("cat hello.txt"), say("All done."))
LARGE = 310_000
PLAN = {"CLAUDE_CODE_OAUTH_TOKEN": "mock", "ANTHROPIC_API_KEY": ""}
"""What makes Claude Code believe in a subscription: only then does it say when a limit ends."""


def asked(agent: str, *args: str, task: str = TASK) -> list[str]:
    named = SUBJECTS[agent].options if agent else ()
    return ["loop", task, "--until", UNTIL, *named, "--yes", *args]


def loop(bench: Place, agent: str, *args: str, timeout: float = 120) -> Done:
    return bench.ralph(*asked(agent, *args), timeout=timeout)


def furnish(bench: Place, agent: str, *steps: Step, tries: int | None = None, **variables: str) -> None:
    bench.furnish(agent, tries=tries, **variables)
    bench.model.play(*steps)


def iterations(bench: Place) -> int:
    return int(bench.journal("run.ended")[-1]["spent"].get("iterations", 0))


def receipt(bench: Place) -> dict[str, Any]:
    return bench.ralph("cost", bench.run.name, "--json").json


@pytest.mark.quick_agents
def test_a_loop_ends_when_the_check_passes(bench: Place, agent: str) -> None:
    furnish(bench, agent, *WORK)
    done = loop(bench, agent)
    assert done.code == 0, done.said
    assert (bench.root / "hello.txt").read_text() == "hello\n"
    assert (bench.ends(), iterations(bench)) == (["finished"], 1)
    requests, subject = bench.model.requests, SUBJECTS[agent]
    assert (len(requests), TASK in requests[0].said) == (subject.asks(3), True)
    others = {one.path for one in bench.model.all_requests if not one.api}
    assert others <= {"/v1/models"}, "it asked for nothing else"
    cost = receipt(bench)["total"]
    assert (cost["input_tokens"], cost["output_tokens"]) == subject.used(3)
    assert cost["cost"] == pytest.approx(subject.cost) or (cost["cost"] is None and not subject.must_cost)


def test_work_that_is_not_done_is_sent_back(bench: Place, agent: str) -> None:
    furnish(bench, agent, say("All done!"), *WORK)
    assert loop(bench, agent).code == 0
    assert (bench.ends(), iterations(bench)) == (["finished", "finished"], 2)
    assert "hello.txt" in bench.model.requests[1].said


def test_a_large_task_arrives_whole(bench: Place, agent: str) -> None:
    furnish(bench, agent, *WORK)
    task = f"FIRST {'word ' * (LARGE // 5)}LAST"
    done = bench.finish(str(RALPH), *asked(agent, task="-"), prompt=task)
    assert done.code == 0, done.said
    assert task in bench.model.requests[0].said


def test_a_key_that_is_refused_ends_the_run(bench: Place, agent: str) -> None:
    furnish(bench, agent, refuse(401, FOREVER), tries=2)
    done = loop(bench, agent)
    assert done.code == 6, done.said
    assert (bench.ends(), iterations(bench)) == (["unavailable"], 0)


def test_a_key_that_is_refused_is_answered_with_what_to_do(bench: Place, agent: str) -> None:
    furnish(bench, agent, refuse(401, FOREVER), tries=2)
    done = loop(bench, agent)
    assert any(words in done.said for words in SUBJECTS[agent].sign_in), done.said


@pytest.mark.needs_agents("claude")
def test_nobody_waits_for_a_key_that_does_not_become_right(bench: Place) -> None:
    furnish(bench, "claude", refuse(401, FOREVER))
    engine = bench.start(str(RALPH), *asked("claude"))
    eventually(lambda: bench.journal("turn.ended"), 30)
    engine.communicate(timeout=30)
    assert engine.returncode == 6


def test_the_end_of_a_limit_is_waited_for(bench: Place, agent: str) -> None:
    subject = SUBJECTS[agent]
    furnish(bench, agent, limited(subject.limit_lasts, of_plan=subject.limit_of_plan), *WORK, tries=1, **PLAN)
    engine = bench.start(str(RALPH), *asked(agent))
    eventually(lambda: bench.journal("turn.ended"), 60 + subject.limit_lasts)
    [ended] = bench.journal("turn.ended")
    if not subject.limit_end:
        assert (bench.ends(), 280 < ended["retry_at"] - time.time() <= 300) == (["limited"], True)
        assert bench.ralph("abort").code == 0
        return
    assert ended["retry_at"] - time.time() < subject.limit_lasts + subject.limit_seconds
    out, err = engine.communicate(timeout=subject.limit_lasts + subject.limit_seconds + 60)
    assert engine.returncode == 0, out + err
    assert (bench.ends(), iterations(bench)) == (["limited", "finished"], 1)
    taken = next(one for one in bench.model.requests if one.fault is None)
    assert taken.at - bench.model.requests[0].at >= subject.limit_lasts - 0.5


def test_a_limit_that_the_agent_waits_out_is_none_of_ours(bench: Place, agent: str) -> None:
    furnish(bench, agent, limited(2), *WORK)
    assert loop(bench, agent).code == 0
    assert bench.ends() == ["finished"]


def test_an_error_of_the_provider_is_tried_again_ever_later(bench: Place, agent: str) -> None:
    furnish(bench, agent, refuse(500, FOREVER), tries=2)
    within = SUBJECTS[agent].failing_seconds
    engine = bench.start(str(RALPH), *asked(agent))
    eventually(lambda: len(bench.journal("turn.ended")) == 2 or engine.poll() is not None, within)
    assert bench.ralph("abort").code == 0
    _, err = engine.communicate(timeout=30)
    assert engine.returncode == 8, err
    assert bench.ends()[:2] == ["overloaded", "overloaded"]
    first, second = bench.journal("turn.ended")[:2]
    asked_at = [one.at for one in bench.model.requests]
    assert max(later - earlier for earlier, later in pairwise(asked_at)) > 3, "not at once"
    assert first["retry_at"] + 5 < second["retry_at"]
    assert iterations(bench) == 0


def test_a_storm_of_retries_ends_with_the_turn(bench: Place, agent: str) -> None:
    furnish(bench, agent, refuse(500, FOREVER), CLAUDE_CODE_MAX_RETRIES="10")
    minutes = str(SUBJECTS[agent].storm_minutes)
    done = loop(bench, agent, "--turn-timeout", minutes, "--max-iterations", "1", timeout=100)
    assert done.code == 3, done.said
    assert bench.ends() == ["wall"]
    eventually(lambda: not bench.living(), 10)


def test_an_overload_that_passes_costs_nothing(bench: Place, agent: str) -> None:
    furnish(bench, agent, refuse(529, 2), *WORK)
    assert loop(bench, agent).code == 0
    assert (bench.ends(), iterations(bench)) == (["finished"], 1)


def test_a_stream_that_is_cut_costs_no_iteration(bench: Place, agent: str) -> None:
    furnish(bench, agent, cut(), *WORK)
    done = loop(bench, agent)
    assert done.code == 0, done.said
    assert (bench.ends()[-1], iterations(bench)) == ("finished", 1)
    total, subject = receipt(bench)["total"], SUBJECTS[agent]
    possible = [subject.used(3 - lost) for lost in range(subject.loses + 1)]
    assert (total["input_tokens"], total["output_tokens"]) in possible


def test_an_agent_that_hangs_is_ended_and_tried_again(bench: Place, agent: str) -> None:
    furnish(bench, agent, hang(), *WORK)
    minutes = SUBJECTS[agent].idle_minutes
    done = loop(bench, agent, "--idle-timeout", str(minutes), timeout=120 + 120 * minutes)
    assert done.code == 0, done.said
    assert bench.ends() == ["idle", "finished"]


def test_an_abort_leaves_no_process_of_a_tool_behind(bench: Place, agent: str) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    furnish(bench, agent, run(f"python3 -c 'import time; time.sleep(300)' {mark}; echo late > late.txt"))
    engine = bench.start(str(RALPH), *asked(agent))
    eventually(lambda: started_with(f"time.sleep(300)\0{mark}"))
    done = bench.ralph("abort")
    assert done.code == 0, done.said
    engine.communicate(timeout=30)
    assert engine.returncode == 8
    assert (started_with(mark), bench.living()) == ([], [])
    assert not (bench.root / "late.txt").exists()


def test_an_agent_is_adopted_after_its_engine_was_killed(bench: Place, agent: str) -> None:
    script = bench.home / "wait.sh"  # gemini runs no command with a $(...) in it
    script.write_text("touch here; for i in $(seq 600); do test -e go && break; sleep 0.1; done")
    furnish(bench, agent, run(f"sh {script}"), *WORK)
    engine = bench.start(str(RALPH), *asked(agent))
    eventually((bench.root / "here").exists)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=30)
    resumed = bench.start(str(RALPH), "resume")
    time.sleep(1)
    (bench.root / "go").touch()
    out, err = resumed.communicate(timeout=90)
    assert resumed.returncode == 0, out + err
    assert len(bench.journal("turn.started")) == 1
    assert len(bench.model.requests) == 4, "nothing was asked twice"
    assert receipt(bench)["total"]["output_tokens"] == SUBJECTS[agent].used(4)[1]


def test_an_answer_is_mended_in_the_same_conversation(bench: Place, agent: str) -> None:
    answer = ".ralph/turn/outbox/result.json"
    broken, mended = put(answer, '{"nonsense": 1}'), put(answer, '{"summary": "said hello"}')
    furnish(bench, agent, put("hello.txt", "hello\n"), broken, say("All done."), mended, say("Mended."))
    assert loop(bench, agent).code == 0
    first, second = bench.journal("turn.ended")
    assert (second["result"]["answer"]["summary"], iterations(bench)) == ("said hello", 1)
    subject = SUBJECTS[agent]
    assert first["result"].get("session") == second["result"].get("session")
    assert (TASK in bench.model.requests[-1].said) is subject.resumes, (
        "the repair itself does not say what the task was"
    )
    total = receipt(bench)["total"]
    used = subject.used(5, turns=2)
    assert (total["input_tokens"], total["output_tokens"]) == used, "what a conversation used is counted once"


def test_what_was_cached_is_on_the_receipt(bench: Place, agent: str) -> None:
    furnish(bench, agent, *WORK)
    bench.model.tokens = Tokens(1000, 50, cached=400)
    assert loop(bench, agent).code == 0
    total = receipt(bench)["total"]
    assert (total["input_tokens"], total["output_tokens"]) == SUBJECTS[agent].used(3), "cached tokens are tokens"
    assert total["cost"] is None or 0 < total["cost"] < (SUBJECTS[agent].cost or 0)


@pytest.mark.parametrize(
    "stepping", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("claude", "goose", "qwen")]
)
def test_a_limit_of_steps_is_told_as_the_agents_own(bench: Place, stepping: str) -> None:
    furnish(bench, stepping, *WORK)
    bench.write("ralph.yml", "max_steps: 2\n")
    loop(bench, stepping, "--max-iterations", "1")
    ended = bench.journal("turn.ended")[0]["result"]
    assert ended["end"] == "failed" and "its own limit of turns" in ended["error"]
    assert (ended["usage"]["input_tokens"], ended["usage"]["output_tokens"]) == (2000, 100)


@pytest.mark.needs_agents("claude", "codex")
def test_another_agent_takes_over_where_the_first_is_limited(bench: Place) -> None:
    bench.furnish("claude", "codex", tries=1, **PLAN)
    bench.model.play(limited(3600, of_plan=True))
    bench.model.play(*WORK, api="responses")
    bench.write("ralph.yml", "agents: [claude, codex]\n")
    done = loop(bench, "", timeout=60)
    assert done.code == 0, done.said
    assert [one["agent"] for one in bench.journal("turn.started")] == ["claude", "codex"]
    assert (bench.ends(), iterations(bench)) == (["limited", "finished"], 1)
    assert set(receipt(bench)["by_agent"]) == {"claude", "codex"}


def test_an_agent_that_may_only_read_changes_nothing(bench: Place, agent: str) -> None:
    subject = SUBJECTS[agent]
    furnish(bench, agent, put("hello.txt", "hello\n"), run("echo hello > hello.txt"), say("All done."))
    named = f"acp: {subject.asked[1]}" if subject.asked else f"agent: {agent}"
    bench.write("ralph.yml", f"agents: [{{{named}, permissions: read-only}}]\n")
    done = loop(bench, "", "--max-iterations", "1", timeout=90)
    assert done.code != 0, done.said
    assert not (bench.root / "hello.txt").exists()
    if "has no mode for `permissions: read-only`" in done.said:
        assert (done.code in (2, 6), bench.model.requests) == (True, [])  # one by the protocol says so itself
    else:
        assert bench.ends()[0] in ("finished", "failed", "unavailable"), done.said


@pytest.mark.parametrize(
    ("careful", "mode"),
    [
        pytest.param(name, mode, marks=pytest.mark.needs_agents(name))
        for name, mode in (
            ("claude", "--permission-mode=plan"),
            ("codex", "--sandbox=read-only"),
            ("gemini", "--approval-mode=plan"),
            ("qwen", "--approval-mode=plan"),
        )
    ],
)
def test_a_permission_mode_of_the_user_wins(bench: Place, careful: str, mode: str) -> None:
    furnish(bench, careful, put("hello.txt", "hello\n"), run("echo hello > hello.txt"), say("All done."))
    done = loop(bench, careful, f"--agent-arg={mode}", "--max-iterations", "1", timeout=90)
    assert done.code != 0, done.said
    assert not (bench.root / "hello.txt").exists()


@pytest.mark.needs_agents("claude", "codex")
def test_another_agent_takes_over_where_the_first_is_overloaded(bench: Place) -> None:
    bench.furnish("claude", "codex", tries=1)
    bench.model.play(refuse(529, FOREVER))
    bench.model.play(*WORK, api="responses")
    bench.write("ralph.yml", "agents: [claude, codex]\n")
    done = loop(bench, "", timeout=90)
    assert done.code == 0, done.said
    assert [one["agent"] for one in bench.journal("turn.started")] == ["claude", "claude", "codex"]
    assert (bench.ends(), iterations(bench)) == (["overloaded", "overloaded", "finished"], 1)

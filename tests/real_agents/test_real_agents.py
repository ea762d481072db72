"""`ralph loop` with the real agent programs and a scripted model."""

import json
import signal
import sys
import tempfile
import time
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agent_project import RALPH, AgentProject, CommandResult, open_project, patience, processes_with, wait_until
from script import FOREVER, Step, cut, hang, limited, put, refuse, run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
TASK = "Create hello.txt, and say hello in it."
UNTIL = "`grep -q hello hello.txt`"
WORK = (put("hello.txt", "hello\n"), run("cat hello.txt"), say("All done."))
LARGE = 310_000
PLAN = {"CLAUDE_CODE_OAUTH_TOKEN": "mock", "ANTHROPIC_API_KEY": ""}
"""Makes Claude Code assume a subscription: only then does it report when a limit ends."""


def loop_command(agent: str, *args: str, task: str = TASK) -> list[str]:
    named = SUBJECTS[agent].options if agent else ()
    return ["loop", task, "--until", UNTIL, *named, "--yes", *args]


def loop(project: AgentProject, agent: str, *args: str, timeout: float = 120) -> CommandResult:
    return project.ralph(*loop_command(agent, *args), timeout=timeout)


def prepare(project: AgentProject, agent: str, *steps: Step, tries: int | None = None, **variables: str) -> None:
    project.set_up(agent, tries=tries, **variables)
    project.model.play(*steps)


def iterations(project: AgentProject) -> int:
    return int(project.journal("run.ended")[-1]["spent"].get("iterations", 0))


def receipt(project: AgentProject) -> dict[str, Any]:
    return project.ralph("cost", project.run.name, "--json").json


@pytest.mark.quick_agents
def test_a_loop_ends_when_the_check_passes(project: AgentProject, agent: str) -> None:
    prepare(project, agent, *WORK)
    done = loop(project, agent)
    assert done.code == 0, done.output
    assert (project.root / "hello.txt").read_text() == "hello\n"
    assert (project.turn_ends(), iterations(project)) == (["finished"], 1)
    if project.environment["RALPH_SANDBOX"] != "off":
        assert [entry["sandbox"] for entry in project.journal("run.started")] == ["write"], "as docs/sandbox.md says"
    requests, subject = project.model.requests, SUBJECTS[agent]
    assert (len(requests), TASK in requests[0].user_text) == (subject.request_count(3), True)
    others = {one.path for one in project.model.all_requests if not one.api}
    assert others <= {"/v1/models"}, "it asked for nothing else"
    cost = receipt(project)["total"]
    assert (cost["input_tokens"], cost["output_tokens"]) in subject.expected_usages(3)
    assert any(cost["cost"] == (None if one is None else pytest.approx(one)) for one in subject.expected_costs()), cost


def test_work_that_is_not_done_is_sent_back(project: AgentProject, agent: str) -> None:
    prepare(project, agent, say("All done!"), *WORK)
    assert loop(project, agent).code == 0
    assert (project.turn_ends(), iterations(project)) == (["finished", "finished"], 2)
    assert "hello.txt" in project.model.requests[1].user_text


def test_a_large_task_arrives_whole(project: AgentProject, agent: str) -> None:
    prepare(project, agent, *WORK)
    task = f"FIRST {'word ' * (LARGE // 5)}LAST"
    done = project.finish(str(RALPH), *loop_command(agent, task="-"), prompt=task)
    assert done.code == 0, done.output
    request = project.model.requests[0]
    assert task[:30_000] in request.user_text, "the prompt has as much of it as there is room for"
    assert "all of it is in `.ralph/turn/inbox/task.md`" in request.user_text and "task.md" in request.inbox


def test_a_key_that_is_refused_ends_the_run_with_what_to_do(project: AgentProject, agent: str) -> None:
    prepare(project, agent, refuse(401, FOREVER), tries=2)
    done = loop(project, agent)
    assert done.code == 6, done.output
    assert (project.turn_ends(), iterations(project)) == (["unavailable"], 0)
    assert any(text in done.output for text in SUBJECTS[agent].sign_in), done.output


@pytest.mark.needs_agents("claude")
def test_a_rejected_key_ends_the_run_within_seconds(project: AgentProject) -> None:
    prepare(project, "claude", refuse(401, FOREVER))
    engine = project.start(str(RALPH), *loop_command("claude"))
    wait_until(lambda: project.journal("turn.ended"), 30)
    engine.communicate(timeout=patience(30))
    assert engine.returncode == 6


def test_the_end_of_a_limit_is_waited_for(project: AgentProject, agent: str) -> None:
    subject = SUBJECTS[agent]
    prepare(project, agent, limited(subject.limit_lasts, of_plan=subject.limit_of_plan), *WORK, tries=1, **PLAN)
    engine = project.start(str(RALPH), *loop_command(agent))
    wait_until(lambda: project.journal("turn.ended"), 60 + subject.limit_lasts)
    [ended] = project.journal("turn.ended")
    if subject.waits_for_limits:
        _, err = engine.communicate(timeout=patience(60))
        assert (engine.returncode, project.turn_ends()) == (0, ["finished"]), err
        answered = next(one for one in project.model.requests if one.fault is None)
        assert answered.at - project.model.requests[0].at >= subject.limit_lasts - 0.5
        return
    if not subject.limit_end:
        assert (project.turn_ends(), 280 < ended["retry_at"] - time.time() <= 300) == (["limited"], True)
        assert project.ralph("abort").code == 0
        return
    assert ended["retry_at"] - time.time() < subject.limit_lasts + subject.limit_seconds
    out, err = engine.communicate(timeout=patience(subject.limit_lasts + subject.limit_seconds + 60))
    assert engine.returncode == 0, out + err
    assert (project.turn_ends(), iterations(project)) == (["limited", "finished"], 1)
    taken = next(one for one in project.model.requests if one.fault is None)
    assert taken.at - project.model.requests[0].at >= subject.limit_lasts - 0.5


def test_a_limit_that_the_agent_waits_out_does_not_count(project: AgentProject, agent: str) -> None:
    prepare(project, agent, limited(2), *WORK)
    assert loop(project, agent).code == 0
    assert project.turn_ends() == ["finished"]


def test_an_error_of_the_provider_is_retried_with_backoff(project: AgentProject, agent: str) -> None:
    prepare(project, agent, refuse(500, FOREVER), tries=2)
    within = SUBJECTS[agent].failing_seconds
    engine = project.start(str(RALPH), *loop_command(agent))
    wait_until(lambda: len(project.journal("turn.ended")) == 2 or engine.poll() is not None, within)
    assert project.ralph("abort").code == 0
    _, err = engine.communicate(timeout=patience(30))
    assert engine.returncode == 8, err
    assert project.turn_ends()[:2] == ["overloaded", "overloaded"]
    first, second = project.journal("turn.ended")[:2]
    asked_at = [one.at for one in project.model.requests]
    assert max(later - earlier for earlier, later in pairwise(asked_at)) > 3, "not at once"
    assert first["retry_at"] + 5 < second["retry_at"]
    assert iterations(project) == 0


def test_a_storm_of_retries_ends_with_the_turn(project: AgentProject, agent: str) -> None:
    # What the user's settings say about retries wins over Ralph's limit.
    tries = 30 if agent == "codex" else None
    prepare(project, agent, refuse(500, FOREVER), tries=tries, CLAUDE_CODE_MAX_RETRIES="10")
    minutes = str(SUBJECTS[agent].retry_minutes)
    done = loop(project, agent, "--turn-timeout", minutes, "--max-iterations", "1", timeout=100)
    assert done.code == 3, done.output
    assert project.turn_ends() == ["wall"]
    wait_until(lambda: not project.living_processes(), 10)


@pytest.mark.parametrize(
    "retrying",
    [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("codex", "gemini", "opencode", "qwen")],
)
def test_retries_inside_the_agent_are_limited(project: AgentProject, retrying: str) -> None:
    """Without a setting of the user: by default, these agents retry for one to forty minutes."""
    prepare(project, retrying, refuse(500, FOREVER))
    engine = project.start(str(RALPH), *loop_command(retrying))
    wait_until(lambda: project.journal("turn.ended") or engine.poll() is not None, 240)
    assert project.turn_ends()[:1] == ["overloaded"]
    [ended] = project.journal("turn.ended")[:1]
    asked = [one for one in project.model.requests if one.at < ended["retry_at"]]
    assert len(asked) <= SUBJECTS[retrying].max_tries, "so often, and then the engine decides"
    assert receipt(project)["total"]["unpriced_turns"] == 0, "a turn without an answer costs nothing"
    assert project.ralph("abort").code == 0
    engine.communicate(timeout=patience(30))


@pytest.mark.needs_agents("opencode")
def test_a_long_limit_ends_the_turn_of_an_agent_that_would_wait_for_it(project: AgentProject) -> None:
    """OpenCode waits as long as its provider says, and reports nothing. The engine shows the end, or another takes over."""
    prepare(project, "opencode", limited(3600), *WORK)
    engine = project.start(str(RALPH), *loop_command("opencode"))
    wait_until(lambda: project.journal("turn.ended"), 120)
    [ended] = project.journal("turn.ended")
    assert (project.turn_ends(), len(project.model.requests)) == (["limited"], 1)
    assert 3000 < ended["retry_at"] - time.time() < 3605
    assert project.ralph("abort").code == 0
    engine.communicate(timeout=patience(30))


PRICED = [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("codex", "copilot", "gemini", "qwen")]
"""Agents that report tokens and no cost: Ralph computes it from the price of the model."""


def test_a_maximum_cost_is_kept_or_refused(project: AgentProject, agent: str) -> None:
    """An agent without a known price does not start. If only its first turn shows that, there is no second one."""
    prepare(project, agent, *[say(f"Not yet: {number}.") for number in range(6)])
    done = loop(project, agent, "--max-cost", "0.003")
    if "--allow-unpriced" in done.output:
        assert (done.code, len(project.model.requests)) in ((2, 0), (3, 1)), done.output
        return
    assert (done.code, "--max-cost" in done.output) == (3, True), done.output
    assert len(project.model.requests) <= 2, "each answer costs at least $0.00175"
    assert receipt(project)["total"]["cost"] >= 0.003


@pytest.mark.parametrize("priced", PRICED)
def test_a_maximum_cost_without_a_known_price_is_refused(project: AgentProject, priced: str) -> None:
    prepare(project, priced, *WORK)
    command = loop_command(priced, "--max-cost", "1", "--model", "model-without-a-price")
    done = project.ralph(*command)
    assert (done.code, project.model.requests) == (2, []), done.output
    assert "model-without-a-price" in done.output and "--allow-unpriced" in done.output
    done = project.ralph(*command, "--allow-unpriced")
    assert done.code == 0, done.output
    assert "unknown" in project.ralph("cost").out


@pytest.mark.needs_agents("codex")
def test_doctor_and_codex_agree_about_its_sign_in(project: AgentProject) -> None:
    project.set_up("codex")  # sets OPENAI_API_KEY
    (project.home / ".codex" / "config.toml").write_text("")  # so it uses its own provider
    assert "Not logged in" in project.finish("codex", "login", "status").output
    done = project.ralph("doctor")
    assert (done.code, "OPENAI_API_KEY alone is not used" in done.out) == (2, True), done.output
    assert project.finish("codex", "login", "--with-api-key", prompt="mock-key\n").code == 0
    assert project.finish("codex", "login", "status").code == 0
    done = project.ralph("doctor")
    assert (done.code, "signed in" in done.out, "not signed in" in done.out) == (0, True, False), done.output


SIGNED_OUT = {
    "gemini": (".gemini/settings.json", '{"security": {"auth": {"selectedType": "oauth-personal"}}}'),
    "qwen": (".qwen/settings.json", '{"security": {"auth": {"selectedType": "qwen-oauth"}}}'),
    "pi": (".pi/agent/models.json", "{}"),
    "claude": (".claude/.credentials.json", '{"claudeAiOauth": {"accessToken": "t", "refreshTo'),
    "opencode": (".config/opencode/opencode.json", '{"model": "anthropic/claude-sonnet-4-5"}'),
}
"""Settings with which the key in the environment does not help: they choose another way to sign in, or name no key."""
EMPTY_KEYS = {
    "pi": (".pi/agent/auth.json", '{"openai": {"type": "api_key", "key": ""}}'),
    "opencode": (".local/share/opencode/auth.json", '{"anthropic": {"type": "api", "key": ""}}'),
}
"""Accounts without a key. The agents ignore them."""

PLAIN_COMMANDS = {
    "gemini": ("gemini", "-o", "stream-json", "--yolo", "--skip-trust"),
    "qwen": ("qwen", "-o", "stream-json", "--yolo"),
    "pi": ("pi", "-p", "--mode", "json"),
    "claude": ("claude", "-p", "--output-format", "json"),
    "opencode": ("opencode", "run", "--format", "json"),
}
DROPPED_KEYS = {"pi": "OPENAI_API_KEY", "claude": "ANTHROPIC_API_KEY"}
"""Variables in which these would find the key of another provider, or their own."""


@pytest.mark.parametrize("refused", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in SIGNED_OUT])
def test_doctor_and_the_agent_agree_that_it_is_not_signed_in(project: AgentProject, refused: str) -> None:
    project.set_up(refused)
    command = PLAIN_COMMANDS[refused]
    assert project.finish(*command, prompt="Say hello").code == 0
    assert f"{refused}: " in project.ralph("doctor").out and "not signed in" not in project.ralph("doctor").out
    for file, text in filter(None, (SIGNED_OUT[refused], EMPTY_KEYS.get(refused))):
        (project.home / file).parent.mkdir(parents=True, exist_ok=True)
        (project.home / file).write_text(text)
    project.environment.pop(DROPPED_KEYS.get(refused, ""), None)
    asked = len(project.model.requests)
    done = project.finish(*command, prompt="Say hello")
    assert (done.code != 0 or "error" in done.output.lower(), len(project.model.requests)) == (True, asked), done.output
    done = project.ralph("doctor")
    assert (done.code, "not signed in" in done.out) == (2, True), done.output


SELF_STOPS = {"gemini": "warning: Loop detected, stopping execution", "qwen": "Loop detection halted the run"}
"""What the user reads if an agent ends a turn by itself because its model calls the same tool again and again."""


@pytest.mark.parametrize("looping", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in SELF_STOPS])
def test_a_turn_that_the_agent_ends_by_itself_is_shown(project: AgentProject, looping: str) -> None:
    prepare(project, looping, *[run("echo same")] * 6, *WORK)
    done = loop(project, looping)
    assert (done.code, SELF_STOPS[looping] in done.out) == (0, True), done.output
    assert len(project.turn_ends()) == 2
    assert SELF_STOPS[looping].removeprefix("warning: ") in project.model.requests[-1].user_text, "the next turn knows"


def test_an_overload_that_passes_costs_nothing(project: AgentProject, agent: str) -> None:
    prepare(project, agent, refuse(529, 2), *WORK)
    assert loop(project, agent).code == 0
    assert (project.turn_ends(), iterations(project)) == (["finished"], 1)


def test_a_stream_that_is_cut_costs_no_iteration(project: AgentProject, agent: str) -> None:
    prepare(project, agent, cut(), *WORK)
    done = loop(project, agent)
    assert done.code == 0, done.output
    assert (project.turn_ends()[-1], iterations(project)) == ("finished", 1)
    total, subject = receipt(project)["total"], SUBJECTS[agent]
    possible = [usage for lost in range(subject.lost_answers + 1) for usage in subject.expected_usages(3 - lost)]
    cut_answers = [(0, 0)]
    if subject.counts_cut_answer:
        # It reports the first count of the stream, or estimates the tokens of the text that arrived.
        cut_answers += [(1000, tokens) for tokens in range(1, 21)]
    found = total["input_tokens"], total["output_tokens"]
    assert found in [(one[0] + cut[0], one[1] + cut[1]) for one in possible for cut in cut_answers]


def test_an_agent_that_hangs_is_ended_and_tried_again(project: AgentProject, agent: str) -> None:
    prepare(project, agent, hang(), *WORK)
    minutes = patience(SUBJECTS[agent].idle_minutes)  # while it starts, it prints nothing
    done = loop(project, agent, "--idle-timeout", str(minutes), timeout=120 + 120 * minutes)
    assert done.code == 0, done.output
    assert project.turn_ends() == ["idle", "finished"]


def test_an_abort_leaves_no_process_of_a_tool_behind(project: AgentProject, agent: str) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    prepare(project, agent, run(f"python3 -c 'import time; time.sleep(300)' {mark}; echo late > late.txt"))
    engine = project.start(str(RALPH), *loop_command(agent))
    wait_until(lambda: processes_with(f"time.sleep(300)\0{mark}"))
    done = project.ralph("abort")
    assert done.code == 0, done.output
    engine.communicate(timeout=patience(30))
    assert engine.returncode == 8
    assert (processes_with(mark), project.living_processes()) == ([], [])
    assert not (project.root / "late.txt").exists()


def test_an_agent_is_adopted_after_its_engine_was_killed(project: AgentProject, agent: str) -> None:
    script = project.home / "wait.sh"  # gemini runs no command with a $(...) in it
    script.write_text("touch here; for i in $(seq 600); do test -e go && break; sleep 0.1; done")
    prepare(project, agent, run(f"sh {script}"), *WORK)
    engine = project.start(str(RALPH), *loop_command(agent))
    wait_until((project.root / "here").exists)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=patience(30))
    resumed = project.start(str(RALPH), "resume")
    time.sleep(1)
    (project.root / "go").touch()
    out, err = resumed.communicate(timeout=patience(90))
    assert resumed.returncode == 0, out + err
    assert len(project.journal("turn.started")) == 1
    assert len(project.model.requests) == 4, "nothing was asked twice"
    usages = SUBJECTS[agent].expected_usages(4)
    assert receipt(project)["total"]["output_tokens"] in [tokens_out for _, tokens_out in usages]


def test_an_answer_is_repaired_in_the_same_conversation(project: AgentProject, agent: str) -> None:
    answer = ".ralph/turn/outbox/result.json"
    broken, repaired = put(answer, '{"nonsense": 1}'), put(answer, '{"summary": "said hello"}')
    prepare(project, agent, put("hello.txt", "hello\n"), broken, say("All done."), repaired, say("Repaired."))
    assert loop(project, agent).code == 0
    first, second = project.journal("turn.ended")
    assert (second["result"]["answer"]["summary"], iterations(project)) == ("said hello", 1)
    subject = SUBJECTS[agent]
    assert first["result"].get("session") == second["result"].get("session")
    repair = next((project.run / "turns").glob("00002-*")).joinpath("prompt.md").read_text()
    assert TASK in repair and "You work in a loop." not in repair, "the repair names the task, and not how to do it"
    assert ("You work in a loop." in project.model.requests[-1].user_text) is subject.resumes
    total = receipt(project)["total"]
    used = subject.expected_usages(5, turns=2)
    assert (total["input_tokens"], total["output_tokens"]) in used, "what a conversation used is counted once"


@pytest.mark.parametrize(
    "stepping", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("claude", "goose", "qwen")]
)
def test_a_limit_of_steps_is_reported_as_the_agents_own(project: AgentProject, stepping: str) -> None:
    prepare(project, stepping, *WORK)
    project.write("ralph.yml", "max_steps: 2\n")
    loop(project, stepping, "--max-iterations", "1")
    ended = project.journal("turn.ended")[0]["result"]
    assert ended["end"] == "failed" and "its own turn limit" in ended["error"]
    assert (ended["usage"]["input_tokens"], ended["usage"]["output_tokens"]) == (2000, 100)


@pytest.mark.needs_agents("claude", "codex")
def test_another_agent_takes_over_if_the_first_is_limited(project: AgentProject) -> None:
    project.set_up("claude", "codex", tries=1, **PLAN)
    project.model.play(limited(3600, of_plan=True))
    project.model.play(*WORK, api="responses")
    project.write("ralph.yml", "agents: [claude, codex]\n")
    done = loop(project, "", timeout=60)
    assert done.code == 0, done.output
    assert [one["agent"] for one in project.journal("turn.started")] == ["claude", "codex"]
    assert (project.turn_ends(), iterations(project)) == (["limited", "finished"], 1)
    assert set(receipt(project)["by_agent"]) == {"claude", "codex"}


def work_one_turn(project: AgentProject, *options: str) -> CommandResult:
    """Run one turn of an agent that could not do the work of a loop."""
    return project.finish(sys.executable, str(Path(__file__).with_name("one_turn.py")), "--task", TASK, *options)


def test_an_agent_that_may_only_read_changes_nothing(project: AgentProject, agent: str) -> None:
    subject = SUBJECTS[agent]
    prepare(project, agent, put("hello.txt", "hello\n"), run("echo hello > hello.txt"), say("All done."))
    named = f"acp: {subject.agent_options[1]}" if subject.agent_options else f"agent: {agent}"
    project.write("ralph.yml", f"agents: [{{{named}, permissions: read-only}}]\n")
    done = loop(project, "", "--max-iterations", "1")
    assert (done.code, project.model.requests) == (2, []), done.output
    assert not (project.root / ".ralph" / "runs").exists()
    if "has no mode for `permissions: read-only`" not in done.output:
        assert "cannot do the work" in done.output and "permissions: full-auto" in done.output
        done = work_one_turn(project, *subject.options, "--permissions", "read-only")
        assert done.stream[-1]["end"] in ("finished", "failed", "unavailable"), done.output
        assert not (project.root / "hello.txt").exists()


JUDGMENT = {"work": {"accept": True, "why": "hello.txt says hello"}, "files": [], "tests": []}


@pytest.mark.parametrize(
    "judging", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("claude", "codex", "gemini")]
)
def test_an_agent_that_may_only_read_can_judge(project: AgentProject, judging: str) -> None:
    prepare(project, judging, put("bad.txt", "bad\n"), say(f"I read it.\n\n```json\n{json.dumps(JUDGMENT)}\n```"))
    project.write(
        "ralph.yml",
        f"agent_command: sh -c 'echo hello > hello.txt'\nroles: {{judge: {{agent: {judging}, permissions: read-only}}}}\n",
    )
    done = loop(project, "", "--require", "judged")
    assert done.code == 0, done.output
    assert "end your last message with its content" in project.model.requests[0].user_text
    assert not (project.root / "bad.txt").exists()


MODES = {
    "claude": "--permission-mode=plan",
    "codex": "--sandbox=read-only",
    "gemini": "--approval-mode=plan",
    "qwen": "--approval-mode=plan",
    "opencode": "--agent=plan",
    "copilot": "--plan",
    "pi": "--tools read",
    "cline": "--plan",
    "aider": "--chat-mode=ask",
    "goose": "GOOSE_MODE=chat",
    "acp-gemini": "--approval-mode=plan",
    "acp-qwen": "--approval-mode=plan",
    "acp-codex": "INITIAL_AGENT_MODE=read-only",
    "acp-goose": "GOOSE_MODE=approve",
}
"""The options and variables with which the user chooses a safer mode of an agent."""


@pytest.mark.parametrize("careful", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in MODES])
def test_a_permission_mode_of_the_user_wins(project: AgentProject, careful: str) -> None:
    name, _, value = MODES[careful].partition("=")
    variables = {} if name.startswith("-") else {name: value}
    # The agent `plan` of OpenCode edits nothing, but runs commands.
    commands = () if careful == "opencode" else (run("echo hello > hello.txt"),)
    prepare(project, careful, put("hello.txt", "hello\n"), *commands, say("All done."), **variables)
    option, command = SUBJECTS[careful].options
    chosen: tuple[str, ...] = (option, command)
    if not variables and option == "--agent-acp":
        chosen = (option, f"{command} {MODES[careful]}")
    elif not variables:
        chosen = (option, command, *(f"--agent-arg={word}" for word in MODES[careful].split()))
    done = project.ralph("loop", TASK, "--until", UNTIL, *chosen, "--yes", "--max-iterations", "1")
    assert (done.code, project.model.requests) == (2, []), done.output
    assert "cannot do the work: with your arguments or variables for it" in done.output
    done = work_one_turn(project, *chosen)
    assert done.stream[-1]["end"] in ("finished", "failed", "unavailable"), done.output
    assert project.model.requests and not (project.root / "hello.txt").exists()


OWN_SETTINGS = {
    "claude": (".claude/settings.json", {"permissions": {"defaultMode": "acceptEdits"}}),
    "codex": (".codex/config.toml", 'sandbox_mode = "workspace-write"\n'),
    "gemini": (".gemini/settings.json", {"general": {"defaultApprovalMode": "auto_edit"}}),
    "qwen": (".qwen/settings.json", {"tools": {"approvalMode": "auto-edit"}}),
    "opencode": (".config/opencode/opencode.json", {"permission": {"bash": "ask"}}),
    "goose": (".config/goose/config.yaml", "GOOSE_MODE: approve\n"),
}
"""Settings of the user's own in which an agent may do less than everything."""


def add_own_settings(project: AgentProject, agent: str) -> Path:
    """Add them to what the agent was set up with, and return their file."""
    file, added = OWN_SETTINGS[agent]
    path = project.home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(added, str):
        path.write_text(added + (path.read_text() if path.exists() else ""))
        return path
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**settings, **{key: {**settings.get(key, {}), **added[key]} for key in added}}))
    return path


@pytest.mark.parametrize("careful", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in OWN_SETTINGS])
def test_a_safer_mode_of_the_users_own_settings_is_kept_or_the_run_does_not_start(
    project: AgentProject, careful: str
) -> None:
    outside = project.home / "forbidden.txt"
    prepare(project, careful, run(f"sh -c 'echo bad > {outside}'"), *WORK)
    path = add_own_settings(project, careful)
    done = loop(project, careful)
    assert str(path) in done.output and "permissions: full-auto" in done.output
    if done.code == 2:
        assert (project.model.requests, "cannot do the work" in done.output) == ([], True)
    else:
        assert (done.code, "(edits)" in done.output) == (0, True), done.output
    assert not outside.exists()
    project.write("ralph.yml", f"agents: [{{agent: {careful}, permissions: full-auto}}]\n")
    project.model.play(run(f"sh -c 'echo bad > {outside}'"), *WORK)
    (project.root / "hello.txt").unlink(missing_ok=True)
    done = loop(project, careful)
    assert (done.code, str(path) in done.output) == (0, True), done.output
    assert outside.exists()


@pytest.mark.needs_agents("codex")
def test_codex_works_with_a_policy_that_it_no_longer_supports(project: AgentProject) -> None:
    """It refuses to start with `untrusted`, at every level of permissions, unless an option sets another policy."""
    prepare(project, "codex", *WORK, *WORK)
    config = project.home / ".codex" / "config.toml"
    config.write_text(f'approval_policy = "untrusted"\n{config.read_text()}')
    done = loop(project, "codex")
    assert (done.code, f"{config}), which is `permissions: edits`" in done.output) == (0, True), done.output
    (project.root / "hello.txt").unlink()
    project.write("ralph.yml", "agents: [{agent: codex, permissions: full-auto}]\n")
    assert loop(project, "codex").code == 0
    (project.root / "hello.txt").unlink()
    done = loop(project, "codex", "--agent-arg=--sandbox=workspace-write")
    assert done.code == 6, "the user's options replace ours"
    assert 'approval_policy = "untrusted" is no longer supported; remove this setting' in done.output
    assert "unknown>" not in done.output and "codex login" not in done.output


@pytest.mark.needs_agents("codex", "acp-codex")
@pytest.mark.parametrize("agent_setting", ["agent: codex", "acp: codex-acp"])
def test_codex_can_edit_if_the_home_is_in_the_temporary_directory(agent_setting: str) -> None:
    """Codex refuses to put the helper for its own sandbox there, and without it every command fails."""
    with (
        tempfile.TemporaryDirectory(prefix="ralph-agents-", dir="/tmp", ignore_cleanup_errors=True) as directory,
        open_project(Path(directory)) as project,
    ):
        del project.environment["TMPDIR"]
        name = "acp-codex" if "acp" in agent_setting else "codex"
        prepare(project, name, *WORK)
        project.write("ralph.yml", f"agent: {{{agent_setting}, permissions: edits}}\n")
        done = loop(project, "")
        assert done.code == 0, done.output


ASKING = {
    "claude": (".claude/settings.json", "permissions", "defaultMode"),
    "gemini": (".gemini/settings.json", "general", "defaultApprovalMode"),
    "qwen": (".qwen/settings.json", "tools", "approvalMode"),
}
"""Settings of the user's own with which an agent asks before everything that it does, if they are `default`."""


@pytest.mark.parametrize("asking", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ASKING])
def test_a_mode_in_which_an_agent_asks_is_replaced_and_named(project: AgentProject, asking: str) -> None:
    prepare(project, asking, *WORK)
    file, section, key = ASKING[asking]
    path = project.home / file
    path.parent.mkdir(exist_ok=True)
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**settings, section: {**settings.get(section, {}), key: "default"}}))
    done = loop(project, asking)
    said = f"{asking} runs with `permissions: full-auto`, not with `{section}.{key}: default` in {path}"
    assert (done.code, said in done.output) == (0, True), done.output


@pytest.mark.needs_agents("claude", "codex")
def test_another_agent_takes_over_if_the_first_is_overloaded(project: AgentProject) -> None:
    project.set_up("claude", "codex", tries=1)
    project.model.play(refuse(529, FOREVER))
    project.model.play(*WORK, api="responses")
    project.write("ralph.yml", "agents: [claude, codex]\n")
    done = loop(project, "", timeout=90)
    assert done.code == 0, done.output
    assert [one["agent"] for one in project.journal("turn.started")] == ["claude", "claude", "codex"]
    assert (project.turn_ends(), iterations(project)) == (["overloaded", "overloaded", "finished"], 1)
    taken = "turn 3: codex took over from claude (its provider was overloaded)"
    assert taken in project.ralph("report").out and taken in project.ralph("status").out
    assert project.ralph("status", "--json").json["runs"][0]["hand_overs"] == [taken]
    assert project.ralph("report", "--json").json["hand_overs"] == [taken]

"""Agents of others from the command line, by programs that speak as they do: chains, roles, money, and what to do without one."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture

from ralph.agents.registry import ADAPTERS, Proof, get_adapter

CLAUDE = """#!/bin/sh
case "$*" in *app-server*) exit 1;; esac  # how codex is asked about hooks: it would be waited for
cat > /dev/null
echo "claude $*" >> "$HOME/calls"
{body}
"""


def says(*events: dict[str, Any]) -> str:
    """The lines of a shell script that prints these events."""
    return "".join(f"echo '{json.dumps(event)}'\n" for event in events)


def result(text: str, cost: float = 0.0, tokens: int = 0, **more: Any) -> dict[str, Any]:
    """The last event of claude."""
    usage = {"input_tokens": 2 * tokens, "output_tokens": tokens}
    base = {"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": "s-1"}
    return {**base, "total_cost_usd": cost, "usage": usage, **more}


MESSAGE = {"id": "m1", "model": "claude-x", "content": [{"type": "text", "text": "Written."}]}
DONE = "echo hello > done.txt\n" + says(
    {"type": "system", "subtype": "init", "session_id": "s-1", "model": "claude-x"},
    {"type": "assistant", "message": MESSAGE, "session_id": "s-1"},
    result("Written.", 0.25, 5),
)
LIMIT = "Claude AI usage limit reached|4000000000"
LIMITED = says(result(LIMIT, 0.01, 1, is_error=True, api_error_status=429)) + "exit 1\n"
REFUSED = says(result("Invalid API key", is_error=True, api_error_status=401)) + "exit 1\n"
CODEX_DONE = "echo hello > done.txt\n" + says(
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "Written."}},
    {"type": "turn.completed", "usage": {"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 100}},
)
UNTIL = "`test -f done.txt` passes"


@pytest.fixture
def bin_dir(project: Project) -> Path:  # noqa: F811
    """Programs of others come first on the PATH; the home is empty."""
    place = project.home / "bin"
    place.mkdir()
    project.extra = {
        "PATH": f"{place}:/usr/bin:/bin",
        "HOME": str(project.home),
        "ANTHROPIC_API_KEY": "",
        "OPENAI_API_KEY": "",
    }
    return place


def program(place: Path, name: str, body: str) -> None:
    (place / name).write_text(CLAUDE.replace("{body}", body).replace("claude $*", f"{name} $*"))
    (place / name).chmod(0o755)


def loop(project: Project, *options: str) -> Done:  # noqa: F811
    return project.ralph("loop", "Say hello", "--until", UNTIL, "--yes", *options)


def test_first_installed_agent_is_used(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", DONE)
    done = loop(project, "--model", "opus", "--max-cost", "3")
    assert done.code == 0, done.said
    (call,) = (project.home / "calls").read_text().splitlines()
    assert "--output-format stream-json" in call
    assert "--model opus" in call
    assert "--max-budget-usd 3" in call
    [ended] = project.journal("turn.ended")
    assert (ended["result"]["agent_session"], ended["result"]["usage"]["cost"]) == ("s-1", 0.25)


def test_exit_0_alone_is_not_a_success(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", "echo hello > notes.txt")
    assert loop(project, "--detach").code == 0
    eventually(lambda: project.journal("turn.ended"))
    assert "without saying that it had finished" in project.ralph("logs").out
    project.ralph("abort")
    assert project.ralph("status").out.count("success") == 0


def test_the_next_takes_over_on_a_limit(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", LIMITED)
    program(bin_dir, "codex", CODEX_DONE)
    (project.root / "ralph.yml").write_text("agents:\n  - claude\n  - {agent: codex, model: gpt-5}\n")
    done = loop(project)
    assert done.code == 0, done.said
    assert "codex (gpt-5) takes over from claude" in done.out
    assert "messages to codex wait until its turn is over" in done.out, "this one has no hooks"
    receipt = project.ralph("cost", "--json").json
    assert [turn["agent"] for turn in receipt["turns"]] == ["claude", "codex (gpt-5)"]
    assert receipt["by_agent"]["codex (gpt-5)"]["input_tokens"] == 1000
    assert receipt["total"]["cost"] > 0.01
    assert "codex (gpt-5)" in project.ralph("cost").out
    assert project.ralph("cost", "--all", "--json").json["by_run"]


def quota(share: float, *, resets_at: float = 4000000000) -> dict[str, Any]:
    """What claude reports about a subscription."""
    window = {"utilization": share, "resetsAt": resets_at, "status": "allowed"}
    info = {"status": "allowed", "rateLimitType": "five_hour", "unifiedWindows": {"five_hour": window}}
    return {"type": "rate_limit_event", "rate_limit_info": info, "session_id": "s-1"}


def soon() -> float:
    return time.time() + 3600


def test_a_run_stops_at_its_share_of_a_subscription(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", says(quota(0.85, resets_at=soon()), result("Not yet.")))
    (project.root / "ralph.yml").write_text("agent: claude\nlimits: {quota: 80%}\n")
    done = loop(project)
    assert done.code == 3, done.said
    assert "claude has used 85% of its five-hour quota, which resets at" in done.out
    assert "the limit is 80%" in done.out and "--max-quota 100%" in done.out
    assert len((project.home / "calls").read_text().splitlines()) == 1
    assert project.ralph("resume").code == 3, "before the reset, the run stops again"
    assert len((project.home / "calls").read_text().splitlines()) == 1
    program(bin_dir, "claude", DONE)
    assert project.ralph("resume", "--max-quota", "90%").code == 0


def test_a_hand_over_because_of_a_quota_is_shown(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", says(quota(0.85, resets_at=soon()), result("Not yet.")))
    program(bin_dir, "codex", CODEX_DONE)
    (project.root / "ralph.yml").write_text("agents: [claude, codex]\nlimits: {quota: 80%}\n")
    done = project.ralph("loop", "Write", "--until", UNTIL, "--yes")
    assert done.code == 0, done.said
    [line] = [line for line in done.out.splitlines() if "takes over" in line]
    assert "claude has used 85% of its five-hour quota" in line and line.endswith("the limit is 80%: codex takes over")
    assert "codex takes over" in project.ralph("logs").out
    said = project.ralph("status", "--json").json["runs"][0]["hand_overs"]
    assert len(said) == 1 and "turn 2: codex took over from claude (it has used 85% of its five-hour quota" in said[0]
    assert said[0] in project.ralph("report").out and said[0] in project.ralph("status").out


@pytest.mark.parametrize(
    ("share", "advice"),
    [
        ("1", "write 1% or 100%"),
        ("0%", "no agent could work"),
        *((text, "for example 80%") for text in ("80 percent", "101%", "-5")),
    ],
)
def test_a_share_that_is_not_clear_is_refused(project: Project, share: str, advice: str) -> None:  # noqa: F811
    done = project.ralph("loop", "Write", "--until", UNTIL, "--yes", "--agent-command", "true", f"--max-quota={share}")
    assert (done.code, advice in done.said) == (2, True), done.said
    (project.root / "ralph.yml").write_text(f"limits: {{quota: {share}}}\n")
    done = project.ralph("loop", "Write", "--until", UNTIL, "--yes", "--agent-command", "true")
    assert (done.code, advice in done.said) == (2, True), done.said


def test_an_agent_that_reports_no_share_is_named(project: Project) -> None:  # noqa: F811
    done = project.ralph(
        "loop", "Write", "--until", UNTIL, "--yes", "--agent-command", "touch done.txt", "--max-quota", "80%"
    )
    assert done.code == 0, done.said
    assert "does not report how much of a subscription is used: the limit of 80% does not apply" in done.said


def test_a_quota_that_is_reset_does_not_stop_the_run(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", says(quota(0.85, resets_at=time.time() - 60)) + DONE)
    assert loop(project, "--max-quota", "80%").code == 0


def test_the_next_takes_over_from_an_agent_above_its_quota(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", says(quota(0.85, resets_at=soon()), result("Not yet.")))
    program(bin_dir, "codex", CODEX_DONE)
    (project.root / "ralph.yml").write_text("agents: [claude, codex]\nlimits: {quota: 80%}\n")
    done = loop(project)
    assert done.code == 0, done.said
    assert [one["agent"] for one in project.journal("turn.started")] == ["claude", "codex"]


def test_a_turn_that_crosses_its_quota_is_cut(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", says(quota(0.95, resets_at=soon())) + "sleep 300\n")
    done = loop(project, "--max-quota", "90%")
    assert done.code == 3, done.said
    assert [one["result"]["end"] for one in project.journal("turn.ended")] == ["cut"]


@pytest.mark.slow
def test_an_agent_that_waits_for_a_limit_too_long_is_limited_and_has_not_failed(
    project: Project,  # noqa: F811
    bin_dir: Path,
) -> None:
    waits = says(
        {"type": "thread.started", "thread_id": "t-1"},
        {"type": "error", "message": "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"},
    )
    logs = """test "$RUST_LOG" = error,codex_core::responses_retry=warn && \\
echo "$(date -u +%Y-%m-%dT%H:%M:%S.000Z)  WARN codex_core::responses_retry: stream disconnected - \\
retrying sampling request (1/5 in 3599.9s)... turn_id=1" >&2
"""
    program(bin_dir, "codex", waits + logs + "sleep 300\n")
    program(bin_dir, "claude", DONE)
    (project.root / "ralph.yml").write_text("agents: [codex, claude]\nturn: {idle_minutes: 0.15}\n")
    done = loop(project)
    assert done.code == 0, done.said
    first, second = project.journal("turn.ended")
    assert (first["result"]["end"], second["result"]["end"]) == ("limited", "finished")
    assert "it waited for the end of a limit: Reconnecting" in done.out
    ends_in = first["result"]["resets_at"] - time.time()
    assert 3000 < ends_in < 3600, "as its log says, and not some minutes from now"


def test_an_image_is_named_in_the_log(project: Project, bin_dir: Path) -> None:  # noqa: F811
    used = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "dot.png"}}
    seen = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image", "source": {}}]}
    lines = says(
        {"type": "assistant", "message": {"id": "m0", "content": [used]}, "session_id": "s-1"},
        {"type": "user", "message": {"role": "user", "content": [seen]}, "session_id": "s-1"},
    )
    program(bin_dir, "claude", lines + DONE)
    assert loop(project).code == 0
    assert "> Read: dot.png\n            < image" in project.ralph("logs", "--tools").out


def prompt_of(project: Project) -> str:  # noqa: F811
    return next(project.root.glob(".ralph/runs/*/turns/00001-*/prompt.md")).read_text()


def test_instructions_are_passed_to_agents_that_do_not_read_them(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", f"[ $# -gt 1 ] || {{ echo '2.1.197 (Claude Code)'; exit; }}\n{DONE}")
    (project.root / "AGENTS.md").write_text("# Style\n\n```\nmake test\n```\n")
    (project.root / "ralph.yml").write_text("agent: claude\ninstructions: [AGENTS.md]\n")
    done = loop(project)
    assert done.code == 0, done.said
    assert "agents that do not read AGENTS.md by themselves get it in their prompts: claude" in done.out
    assert "# The project's instructions (AGENTS.md)\n````\n# Style" in prompt_of(project)


def test_instructions_that_an_agent_reads_are_not_repeated(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", f"[ $# -gt 1 ] || {{ echo '2.1.197 (Claude Code)'; exit; }}\n{DONE}")
    (project.root / "AGENTS.md").write_text("# Style\n")
    (project.root / "CLAUDE.md").write_text("@AGENTS.md\n")
    (project.root / "ralph.yml").write_text("agent: claude\ninstructions: [AGENTS.md, CLAUDE.md]\n")
    done = loop(project)
    assert done.code == 0, done.said
    assert "instructions" not in prompt_of(project) and "AGENTS.md" not in done.out


def test_an_agent_that_does_not_read_instructions_is_named(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", f"[ $# -gt 1 ] || {{ echo '2.1.197 (Claude Code)'; exit; }}\n{DONE}")
    (project.root / "AGENTS.md").write_text("# Style\n")
    done = loop(project, "--agent", "claude")
    assert "by themselves: claude; `instructions: [AGENTS.md]` in ralph.yml puts it into their prompts" in done.out
    assert "# Style" not in prompt_of(project)


def test_refused_key_ends_the_run_with_advice(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", REFUSED)
    done = loop(project)
    assert done.code == 6
    assert "/login" in done.out


def test_error_without_any_agent_says_what_to_install(project: Project, bin_dir: Path) -> None:  # noqa: F811
    done = loop(project)
    assert done.code == 6
    assert "npm install -g @anthropic-ai/claude-code" in done.err
    doctor = project.ralph("doctor")
    assert "claude: not installed" in doctor.out
    assert "next: install one" in doctor.out


def test_an_agent_that_is_not_there_is_named_with_how_to_get_it(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", DONE)
    done = loop(project, "--agent", "codex")
    assert (done.code, "npm install -g @openai/codex" in done.err) == (6, True)
    assert loop(project, "--agent", "cluade").code == 2


def test_the_doctor_knows_versions_and_keys(project: Project, bin_dir: Path) -> None:  # noqa: F811
    (bin_dir / "claude").write_text("#!/bin/sh\necho '2.1.197 (Claude Code)'\n")
    (bin_dir / "claude").chmod(0o755)
    doctor = project.ralph("doctor")
    assert "2.1.197" in doctor.out
    assert "not signed in" in doctor.out
    project.extra["ANTHROPIC_API_KEY"] = "sk-ant-something"
    assert "signed in (ANTHROPIC_API_KEY)" in project.ralph("doctor").out


def test_doctor_shows_which_agent_versions_are_proven(
    project: Project,  # noqa: F811
    bin_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("claude", "codex", "gemini", "pi"):
        # Some programs end their version with a full stop.
        version = "claude 1.2.3." if name == "claude" else f"{name} 1.2.3"
        (bin_dir / name).write_text(f"#!/bin/sh\necho '{version}'\n")
        (bin_dir / name).chmod(0o755)
    known = {
        "claude": Proof("1.2.3", "2026-11-16", ("a", "b"), ("c",)),
        "codex": Proof("1.2.30", "2026-11-16", ("a",)),
        "pi": Proof("1.2.2", "2026-11-16", ("a",)),
    }
    monkeypatch.setattr("ralph.app.doctor.load_proofs", lambda: known)
    said = project.ralph("doctor").out
    assert "claude: claude 1.2.3, tested (2 of 3 cases), not signed in" in said
    assert "codex: codex 1.2.3, not the tested version 1.2.30, not signed in" in said
    assert "gemini: gemini 1.2.3, not tested, not signed in" in said
    install = "`npm install -g @earendil-works/pi-coding-agent@1.2.2`"
    assert f"pi: pi 1.2.3, newer than the tested version 1.2.2 (if its turns fail, run {install})" in said
    told = {one["facts"].get("name"): one["facts"] for one in project.ralph("doctor", "--json").json["findings"]}
    assert [told[name]["standing"] for name in known] == ["proven", "other-version", "newer-version"]
    assert (told["claude"]["proof"]["failed"], told["gemini"]["proof"]) == (["c"], None)
    assert (told["claude"]["version"], told["claude"]["signed_in"]) == ("claude 1.2.3", False)


def test_a_role_has_its_own_model(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(
        bin_dir,
        "claude",
        DONE.replace("echo hello > done.txt", '[ $(wc -l < "$HOME/calls") -lt 3 ] || echo hello > done.txt'),
    )
    (project.root / "ralph.yml").write_text("agent: claude\nroles:\n  debugger: {model: opus}\n")
    done = project.ralph("loop", "Say hello", "--until", "`ls done.txt 2>&1` passes", "--yes")
    assert done.code == 0, done.said
    models = ["--model opus" in call for call in (project.home / "calls").read_text().splitlines()]
    assert models == [False, False, True]


def test_resume_extends_limits_and_passes_a_message_of_the_user(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", DONE.replace("echo hello > done.txt", "true"))
    assert loop(project, "--max-iterations", "1").code == 3
    run = project.run.name
    refused = project.ralph("resume", run, "--max-iterations", "1")
    assert (refused.code, "has already used" in refused.err) == (2, True)
    program(bin_dir, "claude", DONE)
    done = project.ralph("resume", run, "--max-iterations", "4", "--guidance", "write the file, please")
    assert done.code == 0, done.said
    prompts = sorted((project.run / "turns").glob("*/prompt.md"))
    assert "write the file, please" in prompts[-1].read_text()
    assert "of 4" in prompts[-1].read_text()
    state = json.loads((project.root / ".aiwg" / "ralph" / "current-loop.json").read_text())
    assert (state["maxIterations"], state["active"]) == (4, False)


class TestPermissions:
    def test_a_mode_that_the_user_passes_wins(self, project: Project, bin_dir: Path) -> None:  # noqa: F811
        program(bin_dir, "claude", DONE)
        done = loop(project, "--agent-arg", "--permission-mode", "--agent-arg", "acceptEdits")
        assert done.code == 0, done.said
        (call,) = (project.home / "calls").read_text().splitlines()
        assert "--permission-mode acceptEdits" in call
        assert "--dangerously-skip-permissions" not in call

    def test_a_level_in_the_settings_becomes_a_mode_of_the_agent(
        self,
        project: Project,  # noqa: F811
        bin_dir: Path,
    ) -> None:
        program(bin_dir, "codex", CODEX_DONE)
        (project.root / "ralph.yml").write_text("agents: [{agent: codex, permissions: edits}]\n")
        done = loop(project)
        assert done.code == 0, done.said
        (call,) = (project.home / "calls").read_text().splitlines()
        assert "--sandbox workspace-write" in call
        assert "--dangerously-bypass-approvals-and-sandbox" not in call
        assert "codex (edits)" in project.ralph("cost").out
        assert "| Agents | codex (edits) |" in project.ralph("report").out

    @pytest.mark.parametrize(
        "settings",
        [
            "agent: {agent: codex, permissions: read-only}",
            "agents: [claude, {agent: codex, permissions: read-only}]",
            "agent: claude\nroles: {debugger: {agent: codex, permissions: read-only}}",
            "agent: claude\nescalate: {agent: codex, permissions: read-only}",
            "agent: {agent: codex, args: [--sandbox, read-only]}",
        ],
    )
    def test_an_agent_that_cannot_change_files_is_refused_for_a_role_that_must(
        self,
        project: Project,  # noqa: F811
        bin_dir: Path,
        settings: str,
    ) -> None:
        program(bin_dir, "claude", DONE)
        program(bin_dir, "codex", CODEX_DONE)
        (project.root / "ralph.yml").write_text(f"{settings}\n")
        done = loop(project)
        assert (done.code, (project.home / "calls").exists()) == (2, False), done.said
        assert "codex cannot do the work" in done.err and "it changes no files" in done.err

    def test_an_agent_that_cannot_change_files_may_judge(self, project: Project, bin_dir: Path) -> None:  # noqa: F811
        program(bin_dir, "claude", DONE)
        program(bin_dir, "codex", CODEX_DONE)
        (project.root / "ralph.yml").write_text(
            "agent: claude\nroles: {judge: {agent: codex, permissions: read-only}}\n"
        )
        done = loop(project)
        assert done.code == 0, done.said

    def test_a_level_that_the_agent_does_not_have_is_refused(
        self,
        project: Project,  # noqa: F811
        bin_dir: Path,
    ) -> None:
        program(bin_dir, "codex", CODEX_DONE)
        (project.root / "ralph.yml").write_text("agents: [{agent: codex, permissions: plan}]\n")
        done = loop(project)
        assert (done.code, (project.home / "calls").exists()) == (2, False)
        assert "codex has no mode for `permissions: plan`" in done.said
        assert "use one of full-auto, edits, read-only" in done.said

    @pytest.mark.parametrize(
        ("file", "text", "level", "says"),
        [
            (".claude/settings.json", '{"permissions": {"defaultMode": "plan"}}', "", "permissions.defaultMode: plan"),
            (".claude/settings.json", '{"permissions": {"defaultMode": "acceptEdits"}}', "acceptEdits", "acceptEdits"),
            (
                ".claude/settings.json",
                '{"permissions": {"defaultMode": "auto"}}',
                "dangerously",
                "Ralph has no level of permissions for that mode",
            ),
        ],
    )
    def test_a_safer_mode_of_the_users_own_settings_is_kept_or_refused_and_named(
        self,
        project: Project,  # noqa: F811
        bin_dir: Path,
        file: str,
        text: str,
        level: str,
        says: str,
    ) -> None:
        program(bin_dir, "claude", DONE)
        path = project.home / file
        path.parent.mkdir()
        path.write_text(text)
        done = loop(project)
        assert says in done.said and str(path) in done.said
        calls = project.home / "calls"
        assert (done.code, calls.exists()) == ((0, True) if level else (2, False)), done.said
        assert not level or level in calls.read_text()

    def test_a_level_in_ralph_yml_wins_over_the_users_own_settings(self, project: Project, bin_dir: Path) -> None:  # noqa: F811
        program(bin_dir, "claude", DONE)
        path = project.home / ".claude" / "settings.json"
        path.parent.mkdir()
        path.write_text('{"permissions": {"defaultMode": "plan"}}')
        (project.root / "ralph.yml").write_text("agents: [{agent: claude, permissions: full-auto}]\n")
        done = loop(project, "--agent", "claude")
        assert done.code == 0, done.said
        assert "not with `permissions.defaultMode: plan`" in done.said
        assert "--dangerously-skip-permissions" in (project.home / "calls").read_text()


GEMINI = "echo hello > done.txt\n" + says(
    {"type": "init", "session_id": "g-1", "model": "gemini-2.5-pro"},
    {"type": "tool_use", "tool_name": "read_file", "tool_id": "t1", "parameters": {"file_path": "a.txt"}},
    {"type": "tool_result", "tool_id": "t1", "status": "error", "error": {"message": "File not found"}},
    {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"},
    {"type": "result", "status": "success", "stats": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}},
)


class TestStream:
    def test_a_turn_that_stops_itself_says_so(self, project: Project, bin_dir: Path) -> None:  # noqa: F811
        program(bin_dir, "gemini", GEMINI)
        done = loop(project, "--agent", "gemini")
        assert done.code == 0, done.said
        assert "warning: Loop detected, stopping execution" in done.out
        [ended] = project.journal("turn.ended")
        assert ended["result"]["warnings"] == ["Loop detected, stopping execution"]

    def test_the_next_iteration_learns_of_it(self, project: Project, bin_dir: Path) -> None:  # noqa: F811
        program(bin_dir, "gemini", GEMINI.replace("done.txt", "other.txt"))
        loop(project, "--agent", "gemini", "--max-iterations", "2")
        prompt = sorted((project.root / ".ralph" / "runs").glob("*/turns/00002-*/prompt.md"))[0].read_text()
        assert "Loop detected, stopping execution" in prompt

    def test_logs_show_tools_that_failed(self, project: Project, bin_dir: Path) -> None:  # noqa: F811
        program(bin_dir, "gemini", GEMINI)
        loop(project, "--agent", "gemini")
        shown = project.ralph("logs", "--tools").out
        assert "> read_file: a.txt" in shown
        assert "failed: File not found" in shown
        assert "read_file" not in project.ralph("logs").out

    def test_the_receipt_shows_the_model_and_cached_and_reasoning_tokens(
        self,
        project: Project,  # noqa: F811
        bin_dir: Path,
    ) -> None:
        usage = '"input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 100, "reasoning_output_tokens": 30'
        script = CODEX_DONE.replace('"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 100', usage)
        program(bin_dir, "codex", script)
        loop(project, "--agent", "codex", "--model", "gpt-5")
        receipt = project.ralph("cost", "--json").json
        assert (receipt["total"]["cached_tokens"], receipt["total"]["reasoning_tokens"]) == (400, 30)
        assert list(receipt["by_model"]) == ["gpt-5"]
        shown = project.ralph("cost").out
        assert "1000 in      100 out (400 cached, 30 reasoning)" in shown
        assert "by model\n  gpt-5" in shown


def test_status_says_what_a_run_waits_for(project: Project, bin_dir: Path) -> None:  # noqa: F811
    program(bin_dir, "claude", LIMITED)
    started = project.start(*("loop", "t", "--until", "`test -f done.txt` passes", "--agent", "claude", "--yes"))
    eventually(lambda: project.journal("turn.ended"))
    doing = project.ralph("status", "--json").json["runs"][0]["doing"]
    assert re.fullmatch(r"waits for the provider's limit until \d\d:\d\d", doing), doing
    assert project.ralph("abort").code == 0
    started.wait(timeout=60)


def test_the_help_of_steer_names_the_agents_that_receive_it_in_the_middle_of_a_turn(project: Project) -> None:  # noqa: F811
    shown = project.ralph("steer", "--help").out
    named = " ".join(shown.partition("middle of a turn")[2].partition(".")[0].split())
    receiving = [name for name in ADAPTERS if get_adapter(name).abilities.hooks]
    assert [name for name in ADAPTERS if re.search(rf"\b{name}\b", named)] == receiving, shown


def test_a_turn_that_no_model_answered_has_no_unknown_price(project: Project, bin_dir: Path) -> None:  # noqa: F811
    refused = {"type": "turn.failed", "error": {"message": "unexpected status 401 Unauthorized"}}
    program(bin_dir, "codex", says({"type": "thread.started", "thread_id": "t-1"}, refused) + "exit 1\n")
    done = loop(project, "--agent", "codex")
    assert done.code == 6, done.said
    assert "without a price" not in done.said and "cost unknown" not in project.ralph("cost").out
    assert project.ralph("cost", "--json").out.count('"unpriced_turns": 0')

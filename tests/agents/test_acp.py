"""Agents by the Agent Client Protocol: how they are asked for and started, and how what the bridge tells is read."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.agents import registry
from ralph.agents.acp_bridge import _parse_arguments
from ralph.agents.adapter import Call
from ralph.agents.programs import Acp, EventLines, event_line
from ralph.core.errors import AgentUnavailableError, RalphError, UsageError
from ralph.core.limits import Usage
from ralph.core.text import clean_text
from ralph.core.turns import AgentEvent, EventKind, Failure
from ralph.documents import run_record
from ralph.documents.config import Config, parse_config
from ralph.documents.run_record import AgentSpec

PYTHON = sys.executable
WORDS = (PYTHON, "agent.py", "--acp")
ACP = f"{PYTHON} agent.py --acp"
TEXTS = st.text().map(clean_text)


def select_specs(text: str, acp: str | None = None, names: tuple[str, ...] = ()) -> list[AgentSpec]:
    return list(registry.select_agents(parse_config(text, "ralph.yml"), names, None, None, Path("/repo"), acp).chain)


class TestAsking:
    """In the settings, and on the command line."""

    @pytest.mark.parametrize(
        "text", [f"agent: {{acp: {ACP}}}", f"agents: [{{acp: {ACP}}}]", f"agents:\n  - acp: {ACP}\n"]
    )
    def test_an_agent_of_the_settings(self, text: str) -> None:
        assert select_specs(text) == [AgentSpec("acp", WORDS)]

    def test_with_all_that_can_be_said_of_it(self) -> None:
        text = f"agent: {{acp: {ACP}, model: m1, args: [-v], env: {{A: b}}, without_tools: [sub-agents]}}"
        [spec] = select_specs(text)
        assert spec == AgentSpec("acp", WORDS, "", "m1", ("-v",), {"A": "b"}, ("sub-agents",))
        assert spec.label == f"{ACP} (m1)"

    def test_a_named_agent_can_be_said_more_of_too(self) -> None:
        assert select_specs(f"agent: {{agent: claude, program: {PYTHON}, model: opus}}") == [
            AgentSpec("claude", (PYTHON,), model="opus")
        ]

    def test_for_a_role_and_for_who_takes_over(self) -> None:
        text = f"agent: {{agent: claude, program: {PYTHON}}}\nroles: {{debugger: {{acp: {ACP}}}}}\nescalate: {{acp: {ACP}}}"
        found = registry.select_agents(parse_config(text, "ralph.yml"), (), None, None, Path("/repo"))
        assert found.roles["debugger"] == (AgentSpec("acp", WORDS),)
        assert found.escalation == AgentSpec("acp", WORDS)

    def test_a_role_has_another_model_of_the_same_agent(self) -> None:
        text = f"agent: {{acp: {ACP}}}\nroles: {{debugger: {{model: m2}}}}"
        found = registry.select_agents(parse_config(text, "ralph.yml"), (), None, None, Path("/repo"))
        assert found.roles["debugger"] == (AgentSpec("acp", WORDS, model="m2"),)

    def test_an_option_wins(self) -> None:
        assert select_specs("agent: claude", acp=f"{PYTHON} 'an agent.py'") == [
            AgentSpec("acp", (PYTHON, "an agent.py"))
        ]

    @pytest.mark.parametrize(
        ("text", "error", "said"),
        [
            (f"agent: {{acp: {ACP}, agent: claude}}", UsageError, "cannot be used together"),
            (f"agent: {{acp: {ACP}, program: x}}", UsageError, "cannot be used together"),
            (f"agent: {{acp: {ACP}}}\nagent_command: x", UsageError, "cannot be used together"),
            (f"agent: {{acp: {ACP}}}\nroles: {{debugger: {{program: x}}}}", UsageError, "`program` does not apply to"),
            ('agent: {acp: "\'"}', UsageError, "cannot be split"),
            ("agent: {acp: no-such-program-anywhere}", AgentUnavailableError, "was not found"),
            ("agent: {apc: x}", UsageError, "did you mean `acp`?"),
            ("agent: acp", UsageError, "needs the program"),
        ],
    )
    def test_invalid_settings_are_refused_with_the_reason(self, text: str, error: type[RalphError], said: str) -> None:
        with pytest.raises(error) as refusal:
            select_specs(text)
        assert type(refusal.value) is error
        assert said in str(refusal.value)

    def test_missing_agent_is_skipped_if_there_are_others(self) -> None:
        assert select_specs(f"agents: [{{acp: no-such-program-anywhere}}, {{acp: {ACP}}}]") == [AgentSpec("acp", WORDS)]

    def test_options_for_other_agents_exclude_it(self) -> None:
        with pytest.raises(UsageError):
            select_specs("", acp=ACP, names=("claude",))
        with pytest.raises(UsageError):
            select_specs("", acp="  ")

    def test_without_the_sdk_it_is_said_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "acp", None)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(AgentUnavailableError) as refusal:
            select_specs("", acp=ACP)
        assert "pip install 'ralph-engine[acp]'" in refusal.value.todo

    def test_the_record_of_a_run_keeps_it(self) -> None:
        [spec] = select_specs(f"agent: {{acp: {ACP}}}")
        kept = run_record.from_plain(AgentSpec, json.loads(json.dumps(run_record.to_plain(spec))), "run.json")
        assert kept == spec

    def test_no_agent_at_all_is_as_before(self) -> None:
        assert Config().agent is None


class TestStarting:
    def test_the_bridge_stands_before_the_agent(self) -> None:
        call = Call(Path("/repo"), "m1", ("-v",), 1.5, 30, "s-1", ("sub-agents", "WebFetch"))
        agent = registry.make_adapter(AgentSpec("acp", ("opencode", "acp")))
        words = agent.command(call)
        assert words == (
            *(PYTHON, "-P", "-m", "ralph.agents.acp_bridge", "--model", "m1", "--session", "s-1"),
            *("--without-tool", "sub-agents", "--without-tool", "WebFetch", "--", "opencode", "acp", "-v"),
        )
        asked = _parse_arguments(words[4:])
        assert (list(asked.command), asked.model, asked.session) == (["opencode", "acp", "-v"], "m1", "s-1")
        assert list(asked.without_tools) == ["sub-agents", "WebFetch"]

    def test_codex_starts_no_login_shell_which_resets_the_path(self) -> None:
        agent = Acp("codex-acp", ("/opt/codex-acp", "-c", "x=1"))
        words = agent.command(Call(Path("/repo")))
        assert words[-5:] == ("/opt/codex-acp", "-c", "x=1", "-c", "allow_login_shell=false")
        assert agent.environment(Call(Path("/repo"))) == {"CODEX_CONFIG": '{"allow_login_shell": false}'}

    @pytest.mark.parametrize(
        ("own", "passed"),
        [
            ('{"model": "m"}', '{"allow_login_shell": false, "model": "m"}'),
            ('{"allow_login_shell": true}', '{"allow_login_shell": true}'),
            ("not JSON", "not JSON"),
        ],
    )
    def test_settings_of_the_user_for_codex_are_kept(
        self, own: str, passed: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CODEX_CONFIG", own)
        assert Acp("codex-acp", ("codex-acp",)).environment(Call(Path("/repo"))) == {"CODEX_CONFIG": passed}

    @pytest.mark.parametrize(
        ("command", "variable"),
        [
            ("gemini --acp --approval-mode=plan", ""),
            ("qwen --acp --approval-mode plan", ""),
            ("codex-acp -c sandbox_mode=read-only", ""),
            ("codex-acp", "INITIAL_AGENT_MODE"),
            ("goose acp", "GOOSE_MODE"),
        ],
    )
    def test_a_mode_that_the_user_chose_is_kept(
        self, command: str, variable: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call = Call(Path("/repo"), permissions="read-only")
        if variable:
            assert "--keep-mode" not in Acp("x", tuple(command.split())).command(call)
            monkeypatch.setenv(variable, "read-only")
        words = Acp("x", tuple(command.split())).command(call)
        assert "--keep-mode" in words and "--permissions" not in words

    def test_the_settings_of_the_program_name_a_model_that_the_agent_does_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COPILOT_MODEL", "my-model")
        agent = Acp("copilot --acp", ("copilot", "--acp"), {"my-model": (1.0, 0.1, 10.0)})
        line = b'{"type": "usage", "input_tokens": 1000000, "output_tokens": 0, "model": ""}'
        [event] = agent.reader(Call(Path("/repo")), Usage()).read(line)
        assert (event.usage.model, event.usage.cost) == ("my-model", 1.0)

    def test_the_mode_variable_of_another_program_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOSE_MODE", "approve")
        assert "--keep-mode" not in Acp("x", ("codex-acp",)).command(Call(Path("/repo")))

    def test_nothing_is_said_that_was_not_asked_for(self) -> None:
        agent = Acp("opencode acp", ("opencode", "acp"))
        assert agent.command(Call(Path("/repo")))[4:] == ("--", "opencode", "acp")
        assert (agent.name, dict(agent.environment(Call(Path("/repo"))))) == ("opencode acp", {})
        assert "`opencode acp`" in agent.advice
        assert agent.sign_in({}, Path("/nowhere"))[0] is None


def read(line: bytes, before: Usage | None = None) -> AgentEvent:
    agent = Acp("x", ("x",), {"my-model": (1.0, 0.1, 10.0)})
    [event] = agent.reader(Call(Path("/repo")), before or Usage()).read(line)
    return event


class TestReading:
    @given(
        st.sampled_from([kind for kind in EventKind if kind not in (EventKind.USAGE, EventKind.RECEIVED)]),
        TEXTS,
        TEXTS,
        st.none() | st.floats(1, 4e9),
        st.booleans(),
        st.none() | st.sampled_from(Failure),
    )
    def test_an_event_is_read_as_it_was_written(
        self, kind: EventKind, text: str, session: str, resets_at: float | None, is_error: bool, failure: Failure | None
    ) -> None:
        event = AgentEvent(kind, text, resets_at=resets_at, is_error=is_error, session=session, failure=failure)
        assert list(EventLines().read(event_line(event))) == [event]

    @given(st.integers(0, 10**12), st.integers(0, 10**12), st.none() | st.floats(0, 10**6))
    def test_usage_is_too(self, input_tokens: int, heard: int, cost: float | None) -> None:
        event = AgentEvent(EventKind.USAGE, usage=Usage(input_tokens, heard, cost))
        assert list(EventLines().read(event_line(event, model=""))) == [event]

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"\n",
            b"x",
            b'{"type": "text", "failure": "who-knows"}',
            b'{"type": 7}',
            b'{"type": "received", "text": "a"}',
        ],
    )
    def test_line_that_is_not_an_event_is_skipped(self, line: bytes) -> None:
        assert list(EventLines().read(line)) == []

    def test_money_is_reckoned_where_a_model_is_named(self) -> None:
        event = AgentEvent(EventKind.USAGE, usage=Usage(1_000_000, 100_000))
        assert read(event_line(event, model="my-model", cached_tokens=500_000)).usage.cost == pytest.approx(1.55)
        assert read(event_line(event, model="nobody-knows-it")).usage.cost is None
        assert read(event_line(event)).usage.cost is None

    def test_cost_of_a_conversation_excludes_what_was_reported_before(self) -> None:
        line = event_line(AgentEvent(EventKind.USAGE, usage=Usage(0, 0, 2.5)), whole_cost=True)
        assert read(line, Usage(1, 1, 2.0)).usage.cost == 0.5
        assert read(line, Usage(1, 1)).usage.cost == 2.5
        assert read(line, Usage(1, 1, 3.0)).usage.cost == 2.5, "it counts anew"

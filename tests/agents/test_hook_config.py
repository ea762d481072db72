"""How words of a person reach agents: the program of their hooks, and what is laid ready for each."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralph.agents import live_messages
from ralph.agents.adapter import Adapter, Call, hook_command
from ralph.agents.claude import Claude
from ralph.agents.codex import Codex
from ralph.agents.copilot import Copilot
from ralph.agents.gemini import Gemini
from ralph.agents.opencode import OpenCode
from ralph.agents.programs import Acp
from ralph.agents.qwen import Qwen

HERE = Call(Path("/repo"))
SERVER = """#!{python}
import json, sys
if {broken}: sys.exit(1)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("id") == 1:
        keys = [("p", "post", "sessionFlags"), ("s", "stop", "sessionFlags"), ("theirs", "x", "user")]
        hooks = [dict(key=key, currentHash="sha256:" + value, source=source) for key, value, source in keys]
        print(json.dumps(dict(method="noise")), flush=True)
        print(json.dumps(dict(id=1, result=dict(data=[dict(cwd="/", hooks=hooks)]))), flush=True)
"""


@pytest.fixture
def words(tmp_path: Path) -> Path:
    place = tmp_path / "words of a turn"
    place.mkdir()
    return place


def fired(agent: str, event: str, words: Path, payload: object = None) -> str:
    """What a hook prints."""
    done = subprocess.run(
        ["sh", "-c", hook_command(agent, event)],
        input=json.dumps(payload or {}),
        env={"RALPH_MESSAGES": str(words), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


class TestHook:
    """The program that agents run."""

    def test_without_words_nothing_is_started(self, words: Path) -> None:
        (words / "old.received.hook").touch()
        trap = words / "python"
        trap.write_text("#!/bin/sh\nexit 7\n")
        trap.chmod(0o755)
        script = str(Path(live_messages.__file__).with_suffix(".sh"))
        run = ["sh", script, str(trap), "claude:Stop"]
        assert subprocess.run(run, env={"RALPH_MESSAGES": str(words)}, check=False).returncode == 0
        (words / "new.txt").touch()
        assert subprocess.run(run, env={"RALPH_MESSAGES": str(words)}, check=False).returncode == 7

    @pytest.mark.parametrize(
        ("agent", "event", "path"),
        [
            ("claude", "PostToolUse", ("hookSpecificOutput", "additionalContext")),
            ("claude", "PostToolUseFailure", ("hookSpecificOutput", "additionalContext")),
            ("codex", "PostToolUse", ("hookSpecificOutput", "additionalContext")),
            ("gemini", "AfterTool", ("hookSpecificOutput", "additionalContext")),
            ("copilot", "postToolUse", ("additionalContext",)),
            ("claude", "Stop", ("reason",)),
            ("gemini", "AfterAgent", ("reason",)),
            ("copilot", "agentStop", ("reason",)),
        ],
    )
    def test_words_are_printed_as_the_agent_wants_them(
        self, agent: str, event: str, path: tuple[str, ...], words: Path
    ) -> None:
        first, second = 'Say "hello"\\n in Esperanto: ĉ', "$(touch x) `y` 'z'"
        (words / "b.yaml.txt").write_text(first)
        (words / "a.yaml.txt").write_text(second)
        os.utime(words / "b.yaml.txt", (1, 1))
        told: Any = json.loads(fired(agent, event, words))
        assert told.get("decision") == ("block" if path == ("reason",) else None)
        assert told.get("hookSpecificOutput", {}).get("hookEventName", event) == event
        for key in path:
            told = told[key]
        assert told == f"{first}\n\n{second}"
        assert live_messages.list_received(str(words)) == [("b.yaml", "hook"), ("a.yaml", "hook")]
        assert fired(agent, event, words) == "", "once"

    def test_a_sub_agent_does_not_take_them(self, words: Path) -> None:
        (words / "a.txt").write_text("for the other")
        assert fired("claude", "PostToolUse", words, {"agent_id": "7"}) == ""
        assert "for the other" in fired("claude", "PostToolUse", words, {"tool_name": "Bash"})

    def test_half_written_messages_wait(self, words: Path) -> None:
        (words / ".0123.tmp").write_text("ha")
        (words / ".hidden.txt").write_text("ha")
        assert fired("claude", "Stop", words) == ""

    def test_missing_directory_changes_nothing(self, tmp_path: Path) -> None:
        assert fired("claude", "Stop", tmp_path / "missing") == ""


def home_of(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}


class TestReady:
    """What is laid ready, in a home of the user's."""

    def test_arguments_of_the_user_come_first(self) -> None:
        for given in (("--settings", "mine.json"), ("--settings={}",), ("--bare",)):
            call = Call(Path("/repo"), arguments=given)
            assert not Claude().can_receive_messages(call)
            assert Claude().command(call)[-len(given) :] == given and "hooks" not in str(Claude().command(call))

    def test_copilot_has_a_plugin(self, tmp_path: Path) -> None:
        agent = Copilot()
        assert not agent.can_receive_messages(HERE) and "--plugin-dir" not in agent.command(HERE)
        assert agent.prepare(home_of(tmp_path)) == "" and agent.can_receive_messages(HERE)
        place = Path(agent.command(HERE)[agent.command(HERE).index("--plugin-dir") + 1])
        assert json.loads((place / "plugin.json").read_text())["hooks"] == "hooks.json"
        assert set(json.loads((place / "hooks.json").read_text())["hooks"]) == {"postToolUse", "agentStop"}

    def test_qwen_keeps_what_the_machine_has(self, tmp_path: Path) -> None:
        environment, theirs = home_of(tmp_path), tmp_path / "defaults.json"
        theirs.write_text(
            '{"model": {"name": "x", "generationConfig": {"maxRetries": 9}}, "hooks": {"Stop": [1], "Other": [2]}}'
        )
        agent = Qwen()
        assert agent.prepare({**environment, "QWEN_CODE_SYSTEM_DEFAULTS_PATH": str(theirs)}) == ""
        made = json.loads(Path(agent.environment(HERE)["QWEN_CODE_SYSTEM_DEFAULTS_PATH"]).read_text())
        assert (made["model"]["name"], made["hooks"]["Other"], made["hooks"]["Stop"][0]) == ("x", [2], 1)
        retries = made["model"]["generationConfig"]
        assert (retries["maxRetries"], retries["retryMaxDelayMs"]) == (9, 20_000), "only what they do not set is ours"
        assert len(made["hooks"]["Stop"]) == 2

    @pytest.mark.parametrize("text", ["{ // a comment\n}", "[]", "{"])
    def test_settings_that_only_qwen_can_read_are_left_alone(self, text: str, tmp_path: Path) -> None:
        theirs = tmp_path / "defaults.json"
        theirs.write_text(text)
        agent = Qwen()
        assert str(theirs) in agent.prepare({**home_of(tmp_path), "QWEN_CODE_SYSTEM_DEFAULTS_PATH": str(theirs)})
        assert not agent.can_receive_messages(HERE) and set(agent.environment(HERE)) == {"QWEN_CODE_NO_RELAUNCH"}

    @pytest.mark.parametrize("agent", [Copilot(), Qwen(), Gemini()], ids=lambda agent: agent.name)
    def test_notice_says_that_the_hook_cannot_be_written(self, agent: Adapter, tmp_path: Path) -> None:
        environment = {**home_of(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "file")}
        (tmp_path / "file").touch()
        assert "wait until its turn is over" in agent.prepare(environment)
        assert not agent.can_receive_messages(HERE)

    def test_agents_by_acp_have_the_same_hooks(self, tmp_path: Path) -> None:
        copilot = Acp("c", ("copilot", "--acp"))
        assert not copilot.can_receive_messages(HERE)
        copilot.prepare(home_of(tmp_path))
        assert copilot.can_receive_messages(HERE) and copilot.command(HERE)[-4:-1] == (
            "copilot",
            "--acp",
            "--plugin-dir",
        )
        assert Acp("o", ("/opt/opencode", "acp")).can_receive_messages(HERE)
        assert not Acp("g", ("gemini", "--acp")).can_receive_messages(HERE)


class TestGemini:
    """The home of links."""

    def test_private_home_of_gemini_shows_the_users_files(self, tmp_path: Path) -> None:
        environment, agent = home_of(tmp_path), Gemini()
        real = tmp_path / "home" / ".gemini"
        (real / "extensions" / "theirs").mkdir(parents=True)
        (real / "settings.json").write_text('{ // mine\n"general": {"maxAttempts": 7}}')
        (tmp_path / "home" / ".env").write_text("A=1")
        before = sorted(path.relative_to(real) for path in real.rglob("*"))
        assert agent.prepare(environment) == "" and agent.can_receive_messages(HERE)
        home = Path(agent.environment(HERE)["GEMINI_CLI_HOME"])
        assert (home / ".gemini/settings.json").resolve() == real / "settings.json"
        assert (home / ".env").read_text() == "A=1"
        assert sorted(os.listdir(home / ".gemini/extensions")) == ["ralph", "theirs"]
        after = sorted(path.relative_to(real) for path in real.rglob("*"))
        assert set(after) - set(before) == {Path("tmp"), Path("history")}, "as it would make them itself"
        (home / ".gemini/tmp/a").write_text("a conversation")
        assert (real / "tmp/a").exists()

    def test_private_home_of_gemini_is_updated(self, tmp_path: Path) -> None:
        environment, agent = home_of(tmp_path), Gemini()
        real = tmp_path / "home" / ".gemini"
        real.mkdir()
        (real / "old.json").touch()
        agent.prepare(environment)
        home = Path(agent.environment(HERE)["GEMINI_CLI_HOME"]) / ".gemini"
        (real / "old.json").unlink()
        (real / "new.json").write_text("theirs")
        (home / "new.json").write_text("left by a program that replaces files")
        agent.prepare(environment)
        assert not os.path.lexists(home / "old.json")
        assert (home / "new.json").read_text() == "theirs"

    def test_its_retries_are_limited_beside_the_users_settings(self, tmp_path: Path) -> None:
        environment, agent = home_of(tmp_path), Gemini()
        settings = tmp_path / "home" / ".gemini" / "settings.json"
        settings.parent.mkdir()
        mine = '{ // mine\n"general": {"vimMode": true}, "proxy": "http://x" /* two\nlines */}'
        settings.write_text(mine)
        agent.prepare(environment)
        seen = Path(agent.environment(HERE)["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json"
        assert json.loads(seen.read_text()) == {"general": {"vimMode": True, "maxAttempts": 3}, "proxy": "http://x"}
        assert (settings.read_text(), stat.S_IMODE(seen.stat().st_mode)) == (mine, 0o600)
        settings.write_text('{"general": {"maxAttempts": 7}}')
        agent.prepare(environment)
        assert seen.resolve() == settings, "the user's own number wins"

    def test_settings_that_cannot_be_read_are_left_alone(self, tmp_path: Path) -> None:
        environment, agent = home_of(tmp_path), Gemini()
        settings = tmp_path / "home" / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text("{ not JSON")
        agent.prepare(environment)
        seen = Path(agent.environment(HERE)["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json"
        assert seen.resolve() == settings

    def test_its_sandbox_is_left_alone(self, tmp_path: Path) -> None:
        environment = home_of(tmp_path)
        assert "sandbox" in Gemini().prepare({**environment, "GEMINI_SANDBOX": "docker"})
        agent = Gemini()
        agent.prepare(environment)
        for given in (("-s",), ("--sandbox=docker",), ("-e", "none")):
            call = Call(Path("/repo"), arguments=given)
            assert not agent.can_receive_messages(call) and "GEMINI_CLI_HOME" not in agent.environment(call)


class TestCodex:
    """Hooks that are trusted."""

    @staticmethod
    def program(place: Path, *, broken: bool = False) -> str:
        path = place / "codex"
        path.write_text(SERVER.format(python=sys.executable, broken=broken))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def test_hooks_of_codex_are_trusted_by_their_hash(self, tmp_path: Path) -> None:
        environment, program = home_of(tmp_path), self.program(tmp_path)
        agent = Codex(program)
        assert not agent.can_receive_messages(HERE)
        assert not any(word.startswith("hooks.") for word in agent.command(HERE))
        assert agent.prepare(environment) == "" and agent.can_receive_messages(HERE)
        settings = [word for word in agent.command(HERE) if word.startswith("hooks.")]
        assert settings[-1] == 'hooks.state={"p"={trusted_hash="sha256:post"},"s"={trusted_hash="sha256:stop"}}'
        assert [setting.partition("=")[0] for setting in settings] == ["hooks.PostToolUse", "hooks.Stop", "hooks.state"]
        assert not agent.can_receive_messages(Call(Path("/repo"), arguments=("-c", "hooks.Stop=[]")))

    def test_codex_is_asked_once_for_each_version(self, tmp_path: Path) -> None:
        environment, program = home_of(tmp_path), self.program(tmp_path)
        Codex(program).prepare(environment)
        asked = list((tmp_path / "home/.cache/ralph/codex-hooks").iterdir())
        asked[0].write_text("hooks.state={kept=1}")
        again = Codex(program)
        again.prepare(environment)
        assert again.hook_arguments[-1] == "hooks.state={kept=1}"
        Path(program).unlink()
        other = Codex(self.program(tmp_path))
        other.prepare(environment)
        assert "sha256:post" in other.hook_arguments[-1]

    def test_codex_that_lists_no_hooks_has_none(self, tmp_path: Path) -> None:
        environment = home_of(tmp_path)
        for program in (self.program(tmp_path, broken=True), "/nowhere/codex"):
            agent = Codex(program)
            assert "hooks/list" in agent.prepare(environment)
            assert not agent.can_receive_messages(HERE)


class TestOpenCode:
    """A plugin, where it loads at once."""

    def test_plugin_is_loaded_if_its_package_is_installed(self, tmp_path: Path) -> None:
        environment, workspace = home_of(tmp_path), tmp_path / "repo"
        (workspace / ".opencode").mkdir(parents=True)
        agent, call = OpenCode(), Call(workspace)
        agent.prepare({**environment, "OPENCODE_CONFIG_CONTENT": '{"model": "x", "plugin": ["theirs"]}'})
        for place in (tmp_path / "home/.config/opencode", workspace / ".opencode"):
            assert not agent.can_receive_messages(call) and "OPENCODE_CONFIG_CONTENT" not in agent.environment(call)
            (place / "node_modules").mkdir(parents=True)
            (place / "package-lock.json").write_text(
                '{"packages": {"": {"dependencies": {"@opencode-ai/plugin": "1"}}}}'
            )
        assert agent.can_receive_messages(call) and not agent.can_receive_messages(
            Call(workspace, arguments=("--pure",))
        )
        made = json.loads(agent.environment(call)["OPENCODE_CONFIG_CONTENT"])
        assert (made["model"], made["plugin"][0], made["plugin"][1][-20:]) == (
            "x",
            "theirs",
            "/plugins/opencode.ts",
        )

    def test_settings_in_a_form_of_their_own_are_left_alone(self, tmp_path: Path) -> None:
        agent = OpenCode()
        agent.prepare({**home_of(tmp_path), "OPENCODE_CONFIG_CONTENT": "// jsonc\n{}"})
        assert not agent.can_receive_messages(Call(tmp_path))

"""The bridge to agents that speak the Agent Client Protocol: with an agent that says what a test has it say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp")
pytestmark = pytest.mark.xdist_group("acp")
AGENT = Path(__file__).with_name("acp_agent.py")
NURSERY = """
import json, os, sys
import acp
from ralph.agents import acp_bridge
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(asked["cwd"])
        os.environ.update(asked["env"])
        for number, name in enumerate(("in", "out", "err")):
            os.dup2(os.open(asked[name], os.O_RDWR | os.O_CREAT), number)
        code = 1
        try:
            code = acp_bridge.main(asked["words"])
        except SystemExit as left:
            code = left.code
        finally:
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""The bridge's process, forked: its SDK takes a second to import."""
ALLOW = {"kind": "allow_once", "optionId": "yes-once", "name": "Yes"}
ALWAYS = {"kind": "allow_always", "optionId": "yes-always", "name": "Always"}
REJECT = {"kind": "reject_once", "optionId": "no-once", "name": "No"}
CODEX = "@agentclientprotocol/codex-acp"
TOKENS = {"inputTokens": 1000, "outputTokens": 50, "totalTokens": 1050}


@dataclass
class Told:
    """What the bridge printed, and what the agent was told."""

    code: int
    events: list[dict[str, Any]]
    err: str
    heard: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def texts(self, kind: str) -> list[str]:
        return [event.get("text", "") for event in self.of(kind)]

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [message.get("params") for message in self.heard if message.get("method") == method]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What the agent's own requests were answered with."""
        return [message.get("result", message.get("error")) for message in self.heard if "method" not in message]

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]


class Nursery:
    """Runs the bridge."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = place / "workspace"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *words: str, prompt: str = "Say hello.", **env: str) -> int:
        (self.place / "in").write_text(prompt)
        for name in ("out", "err", "log"):
            (self.place / name).write_text("")
        paths = {name: str(self.place / name) for name in ("in", "out", "err")}
        env = {"ACP_LOG": str(self.place / "log"), **env}
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"cwd": str(self.root), "words": words, "env": env, **paths}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def finish(self) -> Told:
        assert self.process.stdout
        code = int(self.process.stdout.readline())
        lines = (self.place / "out").read_text().splitlines()
        heard = (self.place / "log").read_text().splitlines()
        return Told(
            code,
            [json.loads(one) for one in lines if one],
            (self.place / "err").read_text(),
            list(map(json.loads, heard)),
        )

    def log(self) -> str:
        return (self.place / "log").read_text()


@pytest.fixture(scope="module")
def shared_nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("acp"))
    with nursery.process:
        yield nursery
        assert nursery.process.stdin
        nursery.process.stdin.close()


@pytest.fixture
def nursery(shared_nursery: Nursery, tmp_path: Path) -> Nursery:
    shared_nursery.place, shared_nursery.root = tmp_path, tmp_path / "workspace"
    shared_nursery.root.mkdir()
    return shared_nursery


def words(play: dict[str, Any], *options: str) -> tuple[str, ...]:
    return (*options, "--", sys.executable, str(AGENT), json.dumps(play))


def played(nursery: Nursery, play: dict[str, Any], *options: str, prompt: str = "Say hello.", **env: str) -> Told:
    nursery.start(*words(play, *options), prompt=prompt, **env)
    return nursery.finish()


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": said}, **more}}


def call(key: str = "t-1", kind: str = "tool_call", **more: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": kind, "toolCallId": key, **more}}


def permission(*options: dict[str, Any], **tool: Any) -> dict[str, Any]:
    given = {"toolCallId": "t-1", "title": "Run it", "kind": "execute", "rawInput": {"command": "make"}, **tool}
    return {"ask": ["session/request_permission", {"toolCall": given, "options": list(options)}]}


class TestTurn:
    def test_messages_and_tools_are_reported_in_order(self, nursery: Nursery) -> None:
        turn = [
            *(text("I wri", messageId="a"), text("te it.", messageId="a")),
            call(title="write", status="pending", rawInput={}),
            call(
                kind="tool_call_update", title="Write hello.txt", status="in_progress", rawInput={"path": "hello.txt"}
            ),
            call(kind="tool_call_update", status="completed", content=[{"content": {"type": "text", "text": "ok"}}]),
            *(text("All ", messageId="b"), text("done.", messageId="b"), text("Really.", messageId="c")),
        ]
        told = played(nursery, {"turn": turn, "result": {"stopReason": "end_turn", "usage": TOKENS}})
        assert told.code == 0, told.err
        assert [(event["type"], event.get("text")) for event in told.events] == [
            ("session", None),
            ("text", "I write it."),
            ("tool", "Write hello.txt"),
            ("tool-result", "ok"),
            ("text", "All done."),
            ("text", "Really."),
            ("usage", None),
            ("result", "All done.\nReally."),
        ]

    def test_the_agent_is_greeted_in_the_workspace_and_prompted(self, nursery: Nursery) -> None:
        prompt = "FIRST " + "word " * 60_000 + "LAST ü"
        told = played(nursery, {"greeting": {"agentCapabilities": {}}}, prompt=prompt)
        [greeting], [begun], [prompted] = map(told.asked, ("initialize", "session/new", "session/prompt"))
        assert greeting["protocolVersion"] == 1
        assert greeting["clientCapabilities"] == {
            "fs": {"readTextFile": False, "writeTextFile": True},
            "terminal": False,
        }
        assert begun == {"cwd": str(nursery.root), "mcpServers": []}
        assert prompted == {"sessionId": "s-1", "prompt": [{"type": "text", "text": prompt}]}
        assert told.of("session") == [], "a conversation that nobody can go on with is not told of"

    @pytest.mark.parametrize("reason", ["max_tokens", "max_turn_requests", "refusal", "cancelled", "who_knows", None])
    def test_only_the_end_of_the_turn_is_a_success(self, nursery: Nursery, reason: str | None) -> None:
        told = played(nursery, {"turn": [text("Hm.")], "result": {"stopReason": reason}})
        assert (told.code, told.end["type"], told.end["is_error"], told.end["failure"]) == (1, "result", True, "agent")

    def test_sub_agent_is_not_mistaken_for_the_agent(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [text("From below.", session="s-2"), text("Done.")]})
        assert told.texts("text") == ["Done."]

    def test_a_large_message_is_read(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [{"long": 2_000_000}, text("Done.")]})
        assert (told.code, told.end["text"]) == (0, "Done.")

    def test_own_warnings_outputs_and_images_of_codex_are_reported(self, nursery: Nursery) -> None:
        printed = {"terminal_output_delta": {"data": "ls: no-such-file\n"}}
        turn = [
            text("Warning: the model is unknown.\n\n"),
            text("Warning: I say this myself.", messageId="a"),
            call("t-1", name="exec_command", title="List files", status="in_progress"),
            call("t-1", "tool_call_update", status="failed", rawOutput={"exit_code": 2}, _meta=printed),
            call("t-2", name="view_image", title="View Image dot.png", status="completed"),
        ]
        told = played(nursery, {"greeting": {"agentInfo": {"name": CODEX}}, "turn": turn})
        assert told.texts("warning") == ["the model is unknown."]
        assert told.texts("text") == ["Warning: I say this myself."]
        assert told.texts("tool-result") == ["ls: no-such-file", "[image]"]

    def test_failure_of_codex_is_not_a_finished_turn(self, nursery: Nursery) -> None:
        def state(**codex: Any) -> dict[str, Any]:
            return {"update": {"sessionUpdate": "session_info_update", "_meta": {"codex": codex}}}

        retried = {"message": "Reconnecting... 1/5", "additionalDetails": "high demand", "willRetry": True}
        failed = state(threadStatus={"type": "systemError"})
        turn = [state(error=retried), failed, text("We are in high demand.\n\n")]
        told = played(nursery, {"greeting": {"agentInfo": {"name": CODEX}}, "turn": turn})
        assert (told.code, told.end["failure"]) == (1, "overload")
        assert told.texts("retry") == ["Reconnecting... 1/5 high demand"]
        active = state(threadStatus={"type": "active"})
        assert played(nursery, {"turn": [failed, active, text("High demand.")]}).code == 0

    def test_error_in_prose_counts_as_an_error(self, nursery: Nursery) -> None:
        error = "Ran into this error: Rate limit exceeded. Please try again in 20s.\n\nPlease retry."
        turn = [text("Retrying..."), text(error)]
        told = played(nursery, {"greeting": {"agentInfo": {"name": "goose"}}, "turn": turn})
        assert told.texts("text")[0] == "Retrying..."
        [limit] = told.of("limit")
        assert (told.code, told.end["failure"]) == (1, "limit")
        assert 0 < limit["resets_at"] - time.time() <= 20
        others = [{"turn": turn}, {"greeting": {"agentInfo": {"name": "goose"}}, "turn": [*turn, text("I went on.")]}]
        assert [played(nursery, other).code for other in others] == [0, 0]


class TestUsage:
    @pytest.mark.parametrize(
        ("usage", "tokens"),
        [
            (TOKENS, (1000, 50)),
            ({**TOKENS, "totalTokens": 1450, "cachedReadTokens": 300, "cachedWriteTokens": 100}, (1400, 50)),
            ({**TOKENS, "cachedReadTokens": 300}, (1000, 50)),
            ({**TOKENS, "totalTokens": 1150, "thoughtTokens": 100}, (1000, 150)),
            ({**TOKENS, "thoughtTokens": 20}, (1000, 50)),
            ({"inputTokens": "many", "outputTokens": -1}, (0, 0)),
        ],
    )
    def test_tokens_of_the_answer(self, nursery: Nursery, usage: dict[str, Any], tokens: tuple[int, int]) -> None:
        told = played(nursery, {"result": {"stopReason": "end_turn", "usage": usage}})
        used = [(event["input_tokens"], event["output_tokens"]) for event in told.of("usage")]
        assert used == ([tokens] if any(tokens) else [])

    def test_tokens_of_a_quota(self, nursery: Nursery) -> None:
        quota = {"token_count": {"input_tokens": 3000, "output_tokens": 150}, "model_usage": []}
        told = played(nursery, {"result": {"stopReason": "end_turn", "_meta": {"quota": quota}}})
        [used] = told.of("usage")
        assert (used["input_tokens"], used["output_tokens"], used["has_no_price"]) == (3000, 150, True)

    def test_side_requests_are_in_the_tokens(self, nursery: Nursery) -> None:
        whole = {"totalTokens": 4200, "inputTokens": 4000, "cachedInputTokens": 400, "outputTokens": 200}
        quota = {"token_count": TOKENS, "model_usage": [{"model": "opus", "token_count": whole}]}
        told = played(nursery, {"result": {"stopReason": "end_turn", "usage": TOKENS, "_meta": {"quota": quota}}})
        [used] = told.of("usage")
        assert (used["input_tokens"], used["output_tokens"]) == (4000, 200)
        assert (used["model"], used["cached_tokens"]) == ("opus", 400)

    def test_model_is_reported_if_its_price_is_known(self, nursery: Nursery) -> None:
        models = {"currentModelId": "gpt-5", "availableModels": []}
        usage = {**TOKENS, "cachedReadTokens": 400}
        begun = {"session/new": {"sessionId": "s-1", "models": models}}
        told = played(nursery, {"answers": begun, "result": {"stopReason": "end_turn", "usage": usage}})
        [used] = told.of("usage")
        assert (used["model"], used["cached_tokens"]) == ("gpt-5", 400)
        paid = played(
            nursery, {"answers": begun, "turn": [money(1)], "result": {"stopReason": "end_turn", "usage": usage}}
        )
        assert [used.get("has_no_price") for used in paid.of("usage")] == [None, True], "its cost is known already"

    def test_cached_and_reasoning_tokens_are_reported(self, nursery: Nursery) -> None:
        usage = {**TOKENS, "cachedReadTokens": 400, "thoughtTokens": 20}
        told = played(nursery, {"result": {"stopReason": "end_turn", "usage": usage}})
        [used] = told.of("usage")
        assert (used["cached_tokens"], used["reasoning_tokens"], used["output_tokens"]) == (400, 20, 50)

    def test_tokens_of_every_message_are_reported_when_used(self, nursery: Nursery) -> None:
        turn = [text("One.", _meta={"usage": TOKENS}), call(status="completed"), text("Two.", _meta={"usage": TOKENS})]
        told = played(nursery, {"turn": turn})
        assert [event["input_tokens"] for event in told.of("usage")] == [1000, 1000]

    def test_cost_is_reported_as_it_rises(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [money(0.25), money(0.25), money(1.0), money(5.0, "EUR"), money(None)]})
        assert [event["cost"] for event in told.of("usage")] == [0.25, 0.75]


def money(amount: object, currency: str = "USD") -> dict[str, Any]:
    return {"update": {"sessionUpdate": "usage_update", "used": 1, "cost": {"amount": amount, "currency": currency}}}


class TestPermission:
    @pytest.mark.parametrize(
        ("options", "chosen"),
        [
            ((REJECT, ALWAYS, ALLOW), "yes-once"),
            ((REJECT, ALWAYS), "yes-always"),
            ((REJECT,), None),
            ((), None),
        ],
    )
    def test_permission_is_granted(self, nursery: Nursery, options: tuple[Any, ...], chosen: str | None) -> None:
        told = played(nursery, {"turn": [permission(*options)]})
        [answer] = told.answers
        assert answer["outcome"].get("optionId") == chosen
        assert told.texts("tool") == ["execute: make"]
        assert told.texts("denied") == ([] if chosen else ["execute: make"])

    @pytest.mark.parametrize(
        ("forbidden", "tool"),
        [
            ("execute", {}),
            ("Run it", {}),
            ("run", {}),
            ("WebFetch", {"_meta": {"claudeCode": {"toolName": "WebFetch"}}}),
            ("sub-agents", {"title": "Task", "kind": "think"}),
        ],
    )
    def test_permission_for_a_forbidden_tool_is_refused(
        self, nursery: Nursery, forbidden: str, tool: dict[str, Any]
    ) -> None:
        turn = [permission(ALLOW, REJECT, **tool), call(kind="tool_call_update", status="failed")]
        told = played(nursery, {"turn": turn}, "--without-tool", forbidden)
        assert told.answers == [{"outcome": {"outcome": "selected", "optionId": "no-once"}}]
        assert (told.code, len(told.of("denied"))) == (0, 1)

    def test_a_forbidden_tool_that_is_used_without_asking_ends_the_turn(self, nursery: Nursery) -> None:
        turn = [call(title="Task", rawInput={"prompt": "go"}, status="completed"), {"hang": "until cancelled"}]
        play = {"turn": turn, "result": {"stopReason": "cancelled"}}
        told = played(nursery, play, "--without-tool", "sub-agents")
        assert (told.code, told.end["failure"]) == (1, "agent")
        assert told.end["text"] == "it used a tool that it may not use: sub-agent (task): go"
        assert told.asked("session/cancel") == [{"sessionId": "s-1"}]

    def test_tool_whose_name_is_reported_only_after_use_is_refused(self, nursery: Nursery) -> None:
        used = call(kind="tool_call_update", status="completed", _meta={"toolName": "run_shell_command"})
        told = played(nursery, {"turn": [permission(ALLOW), used]}, "--without-tool", "run_shell_command")
        assert (told.code, told.end["text"]) == (1, "it used a tool that it may not use: execute: make")

    def test_refused_tool_counts_as_unused_whatever_is_reported(self, nursery: Nursery) -> None:
        turn = [permission(REJECT), call(kind="tool_call_update", status="completed"), text("Done.")]
        assert played(nursery, {"turn": turn}, "--without-tool", "execute").code == 0

    @pytest.mark.parametrize(("kind", "chosen"), [("execute", "no-once"), ("edit", "no-once"), ("read", "yes-once")])
    def test_in_a_mode_of_the_user_only_reading_is_allowed(self, nursery: Nursery, kind: str, chosen: str) -> None:
        told = played(nursery, {"turn": [permission(ALLOW, REJECT, kind=kind)]}, "--keep-mode")
        assert told.answers == [{"outcome": {"outcome": "selected", "optionId": chosen}}]

    def test_unknown_request_is_refused(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [{"ask": ["terminal/create", {"command": "ls"}]}, text("Done.")]})
        assert (told.answers[0]["code"], told.code) == (-32601, 0)


class TestFiles:
    def write(self, path: object, content: str = "hello\n") -> dict[str, Any]:
        return {"ask": ["fs/write_text_file", {"path": str(path), "content": content}]}

    def read(self, path: object, **more: int) -> dict[str, Any]:
        return {"ask": ["fs/read_text_file", {"path": str(path), **more}]}

    def test_files_of_the_workspace_are_written_and_read(self, nursery: Nursery) -> None:
        script = nursery.root / "run.sh"
        script.write_text("one\ntwo\nthree\n")
        script.chmod(0o755)
        turn = [
            self.read(script, line=2, limit=1),
            self.write(script, "#!/bin/sh\n"),
            self.write(nursery.root / "deep" / "er" / "new.txt"),
            self.read("deep/er/new.txt"),
        ]
        told = played(nursery, {"turn": turn})
        assert told.answers == [{"content": "two\n"}, {}, {}, {"content": "hello\n"}]
        assert (script.read_text(), script.stat().st_mode & 0o777) == ("#!/bin/sh\n", 0o755)
        assert sorted(path.name for path in nursery.root.rglob("*")) == ["deep", "er", "new.txt", "run.sh"]

    @pytest.mark.parametrize(
        "where", ["{out}/secret", "../secret", "link/secret", "to-secret", ".", "to-nothing", "\0"]
    )
    def test_nothing_else_is(self, nursery: Nursery, where: str) -> None:
        out = nursery.place
        (out / "secret").write_text("secret")
        (nursery.root / "link").symlink_to(out)
        (nursery.root / "to-secret").symlink_to(out / "secret")
        (nursery.root / "to-nothing").symlink_to(out / "nothing")
        path = where.replace("{out}", str(out))
        told = played(nursery, {"turn": [self.read(path), self.write(path), text("Done.")]})
        assert all(f"not a file in the workspace {nursery.root}" in answer["message"] for answer in told.answers)
        assert len(told.of("denied")) == 2
        assert ((out / "secret").read_text(), (out / "nothing").exists()) == ("secret", False)
        assert told.code == 0, "the agent may go on"

    def test_files_of_git_and_ralph_are_readable_and_not_writable(self, nursery: Nursery) -> None:
        (nursery.root / "sub" / ".git").mkdir(parents=True)
        (nursery.root / "sub" / ".git" / "config").write_text("theirs")
        (nursery.root / "by-a-link").symlink_to("sub/.git")
        names = ("sub/.git/config", ".git/hooks/post-merge", "by-a-link/config", ".ralph/runs/x/run.json")
        told = played(nursery, {"turn": [self.read(names[0]), *map(self.write, names), self.write(".gitignore")]})
        assert told.answers[0] == {"content": "theirs"} and told.answers[-1] == {}
        assert all("belongs to git or Ralph" in answer["message"] for answer in told.answers[1:-1])
        assert (nursery.root / "sub" / ".git" / "config").read_text() == "theirs"
        assert not (nursery.root / ".git").exists() and not (nursery.root / ".ralph").exists()

    def test_missing_or_binary_file_is_an_error(self, nursery: Nursery) -> None:
        (nursery.root / "binary").write_bytes(b"\xff\xfe")
        (nursery.root / "directory").mkdir()
        os.mkfifo(nursery.root / "pipe")
        names = ("missing.txt", "binary", "directory", "pipe")
        told = played(nursery, {"turn": [*map(self.read, names), self.write("directory")]})
        assert [answer["code"] for answer in told.answers] == [-32002, -32602, -32602, -32602, -32602]
        assert "Resource not found" in told.answers[0]["message"]
        assert sorted(os.listdir(nursery.root)) == ["binary", "directory", "pipe"]


PAST = text("What was said before.", _meta={"usage": TOKENS})["update"]


class TestConversation:
    @pytest.mark.parametrize("when", ["history", "late"])
    def test_earlier_conversation_is_not_reported_again(self, nursery: Nursery, when: str) -> None:
        play = {when: [PAST, call(status="completed")["update"], money(2.0)["update"]], "turn": [money(2.5)]}
        told = played(nursery, play, "--session", "s-1")
        assert told.asked("session/load") == [{"sessionId": "s-1", "cwd": str(nursery.root), "mcpServers": []}]
        assert [event["type"] for event in told.events] == ["session", "usage", "result"]
        assert told.of("usage") == [{"type": "usage", "input_tokens": 0, "output_tokens": 0, "cost": 0.5}]
        assert told.of("session") == [{"type": "session", "session": "s-1"}]

    def test_cost_without_a_known_past_counts_for_the_whole_conversation(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [money(2.5), money(3.0)]}, "--session", "s-1")
        assert [(event["cost"], event.get("whole_cost")) for event in told.of("usage")] == [(2.5, True), (0.5, None)]

    def test_conversation_is_resumed_if_it_cannot_be_loaded(self, nursery: Nursery) -> None:
        can = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
        refusal = {"error": {"code": -32601, "message": "Method not found"}}
        play = {"greeting": {"agentCapabilities": can}, "answers": {"session/load": refusal}}
        told = played(nursery, play, "--session", "s-1")
        assert (told.code, len(told.asked("session/resume"))) == (0, 1)

    def test_one_that_is_gone_is_an_error(self, nursery: Nursery) -> None:
        play = {"answers": {"session/load": {"error": {"code": -32603, "message": "no such session"}}}}
        told = played(nursery, play, "--session", "s-0")
        assert (told.code, told.end["text"], told.end["failure"]) == (1, "no such session", "agent")

    def test_an_agent_that_cannot_continue_says_so(self, nursery: Nursery) -> None:
        told = played(nursery, {"greeting": {"agentCapabilities": {}}}, "--session", "s-1")
        assert (told.code, told.end["text"]) == (1, "it cannot continue a conversation")

    def test_one_without_a_name_is_an_error(self, nursery: Nursery) -> None:
        assert played(nursery, {"answers": {"session/new": {"sessionId": 7}}}).code == 1


MODES = {"currentModeId": "auto", "availableModes": [{"id": "auto"}, {"id": "full-access"}]}
MODELS = {"currentModelId": "m1", "availableModels": [{"modelId": "m1", "name": "One"}, {"modelId": "m2"}]}
OPTION = {
    "id": "model",
    "category": "model",
    "currentValue": "m1",
    "options": [{"group": "g", "options": [{"value": "m1", "name": "One"}]}, {"value": "m2", "name": "Two"}],
}


class TestSettings:
    def about(self, **more: Any) -> dict[str, Any]:
        return {"answers": {"session/new": {"sessionId": "s-1", **more}}}

    def test_the_mode_with_full_access_is_chosen(self, nursery: Nursery) -> None:
        told = played(nursery, self.about(modes=MODES))
        assert told.asked("session/set_mode") == [{"sessionId": "s-1", "modeId": "full-access"}]

    def test_a_mode_of_the_user_is_kept(self, nursery: Nursery) -> None:
        assert played(nursery, self.about(modes=MODES), "--keep-mode").asked("session/set_mode") == []

    def test_agent_asks_for_permission_if_tools_are_forbidden(self, nursery: Nursery) -> None:
        assert played(nursery, self.about(modes=MODES), "--without-tool", "x").asked("session/set_mode") == []
        asking = {**MODES, "availableModes": [*MODES["availableModes"], {"id": "approve"}]}
        told = played(nursery, self.about(modes=asking), "--without-tool", "x")
        assert told.asked("session/set_mode") == [{"sessionId": "s-1", "modeId": "approve"}]

    def test_a_mode_that_is_refused_is_done_without(self, nursery: Nursery) -> None:
        play = self.about(modes=MODES)
        play["answers"]["session/set_mode"] = {"error": {"code": -32603, "message": "not here"}}
        told = played(nursery, play)
        assert (told.code, "refused its mode full-access: not here" in told.err) == (0, True)

    @pytest.mark.parametrize(("asked", "found"), [("m2", "m2"), ("One", "m1")])
    def test_the_model_is_chosen(self, nursery: Nursery, asked: str, found: str) -> None:
        told = played(nursery, self.about(models=MODELS), "--model", asked)
        assert told.asked("session/set_model") == [{"sessionId": "s-1", "modelId": found}]

    @pytest.mark.parametrize(("asked", "found"), [("m2", "m2"), ("One", "m1")])
    def test_or_by_an_option_of_the_conversation(self, nursery: Nursery, asked: str, found: str) -> None:
        told = played(nursery, self.about(configOptions=[OPTION]), "--model", asked)
        chosen = {"sessionId": "s-1", "configId": "model", "value": found}
        assert told.asked("session/set_config_option") == [chosen]

    def test_a_model_can_be_an_option_beside_those_with_a_method(self, nursery: Nursery) -> None:
        models = {"availableModels": [{"modelId": "m2[low]"}]}
        told = played(nursery, self.about(models=models, configOptions=[OPTION]), "--model", "m2")
        assert told.asked("session/set_config_option") == [{"sessionId": "s-1", "configId": "model", "value": "m2"}]
        assert told.asked("session/set_model") == []

    def test_a_model_that_it_has_not_is_answered_with_those_that_it_has(self, nursery: Nursery) -> None:
        told = played(nursery, self.about(models=MODELS), "--model", "m3")
        assert (told.code, told.end["failure"]) == (1, "access")
        assert "'m3'; it has m1, m2" in told.end["text"]

    def test_an_agent_that_offers_no_models_says_so(self, nursery: Nursery) -> None:
        told = played(nursery, {}, "--model", "m1")
        assert (told.end["failure"], "model cannot be chosen through the protocol" in told.end["text"]) == (
            "access",
            True,
        )


REFUSED = {"error": {"code": -32000, "message": "Authentication required"}}
WAYS = [
    {"id": "login", "name": "Log in", "description": "Run `agent login`"},
    {"id": "a-key", "name": "A key", "vars": [{"name": "ACP_TEST_KEY"}]},
]


class TestSignIn:
    def test_the_ways_to_sign_in_are_named(self, nursery: Nursery) -> None:
        told = played(nursery, {"greeting": {"authMethods": WAYS}, "answers": {"session/new": REFUSED}})
        assert (told.code, told.end["failure"]) == (1, "access")
        assert "ways to sign in: Log in (Run `agent login`); A key" in told.end["text"]
        assert told.asked("authenticate") == []
        login = played(nursery, {"greeting": {"authMethods": WAYS}, "answers": {"session/new": REFUSED}}, LOGIN="me")
        assert login.asked("authenticate") == [], "that would open a browser"

    @pytest.mark.parametrize(
        "way",
        [
            {"id": "a-key", "vars": [{"name": "ACP_TEST_KEY"}, {"name": "ACP_TEST_OTHER", "optional": True}]},
            {"id": "a-key", "description": "Requires setting the `ACP_TEST_KEY` environment variable"},
            {"id": "acp-test-key", "description": "Use a key"},
            {"id": "api-key", "description": "Use an API key", "_meta": {"api-key": {"provider": "acp_test"}}},
        ],
    )
    def test_a_key_that_is_there_is_used(self, nursery: Nursery, way: dict[str, Any]) -> None:
        answers = {"session/new": [REFUSED, {"sessionId": "s-1"}]}
        keys = {"ACP_TEST_KEY": "k", "ACP_TEST_API_KEY": "k"}
        told = played(nursery, {"greeting": {"authMethods": [way]}, "answers": answers}, **keys)
        assert (told.code, told.asked("authenticate")) == (0, [{"methodId": way["id"]}])


class TestTrouble:
    """What is no agent, or breaks."""

    @pytest.mark.parametrize(
        ("first", "said"),
        [
            ([{"complain": "usage: agent [--help]"}, {"exit": 2}], "exit code 2 (usage: agent [--help])"),
            ([{"print": "Hello, human!"}, {"exit": 0}], "it printed: Hello, human!"),
            ([{"print": "> "}, {"hang": 1}], "did not answer `initialize` within 3 seconds; it printed: >"),
            ([{"print": '"text"'}, {"print": "[1]"}, {"exit": 0}], 'it printed: "text"'),
        ],
    )
    def test_unknown_agent_error_suggests_fix(self, nursery: Nursery, first: list[dict[str, Any]], said: str) -> None:
        told = played(nursery, {"first": first}, "--patience", "3" if {"hang": 1} in first else "60")
        assert (told.code, told.end["failure"], told.end["is_error"]) == (1, "access", True)
        assert said in told.end["text"] and "speaks the Agent Client Protocol" in told.end["text"]

    def test_silence_is_not_waited_for_for_ever(self, nursery: Nursery) -> None:
        told = played(nursery, {"greeting": None}, "--patience", "0.3")
        assert (told.code, told.end["failure"]) == (1, "access")
        assert "within 0.3 seconds; `" in told.end["text"]

    def test_another_version_of_the_protocol(self, nursery: Nursery) -> None:
        told = played(nursery, {"greeting": {"protocolVersion": 99}})
        assert told.end["text"] == (
            "it speaks version 99 of the protocol, and Ralph version 1: use another version of it, or of Ralph"
        )
        assert told.end["failure"] == "access"

    def test_a_program_that_is_not_there(self, nursery: Nursery) -> None:
        nursery.start("--", "no-such-agent-program")
        told = nursery.finish()
        assert (told.code, told.end["failure"]) == (1, "access")
        assert "no-such-agent-program cannot be started" in told.end["text"]

    @pytest.mark.parametrize(
        ("words", "failure"),
        [
            ("panic: out of luck", "agent"),
            ("Error: 401 Unauthorized key", "access"),
            ("Error: 503 try later", "overload"),
        ],
    )
    def test_an_agent_that_dies_at_work(self, nursery: Nursery, words: str, failure: str) -> None:
        told = played(nursery, {"turn": [text("Hm."), {"complain": words}, {"exit": 3}]})
        assert (told.code, told.end["failure"]) == (1, failure)
        assert f"exit code 3 ({words})" in told.end["text"]
        assert words in told.err

    @pytest.mark.slow
    def test_a_line_without_an_end(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [{"long": 50_000_001}, text("Done.")]})
        assert (told.code, "a line of more than 50 MB" in told.end["text"]) == (1, True)

    @pytest.mark.parametrize(
        ("error", "failure", "said"),
        [
            ({"code": 429, "message": "Too many. Please retry in 20s"}, "limit", "Too many. Please retry in 20s"),
            (
                {"code": -32603, "message": "Internal error", "data": {"details": "503 overloaded"}},
                "overload",
                "503 ov",
            ),
            ({"code": -32603, "message": "Internal error", "data": {"message": "status 401"}}, "access", "status 401"),
            ({"code": 500, "message": '{"error": {"message": "mock error"}}'}, "overload", "mock error"),
            ({"code": -32603, "message": "It broke", "data": "in two"}, "agent", "It broke: in two"),
        ],
    )
    def test_errors_are_classed(self, nursery: Nursery, error: dict[str, Any], failure: str, said: str) -> None:
        told = played(nursery, {"turn": [text("Hm.")], "result": {"error": error}})
        assert (told.code, told.end["failure"], told.end["text"].startswith(said)) == (1, failure, True)
        assert told.events[-2]["type"] == ("limit" if failure == "limit" else "error")

    def test_garbage_between_messages_is_passed_over(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [{"print": "debug: hm"}, {"print": "{"}, {"print": "[]"}, text("Done.")]})
        assert (told.code, told.end["text"]) == (0, "Done.")

    def test_without_the_program_nothing_is_begun(self, nursery: Nursery) -> None:
        nursery.start("--model", "m1", "--")
        assert nursery.finish().code == 2


class TestWords:
    """Words of a person that come while the agent works."""

    @staticmethod
    def played(nursery: Nursery, agent: str, *turn: dict[str, Any], result: Any = None) -> tuple[Told, list[str]]:
        place = nursery.place / "words"
        place.mkdir()
        (place / "a.txt").write_text("Use tabs.")
        play = {
            "greeting": {"agentInfo": {"name": agent}},
            "turn": turn,
            "result": result or {"stopReason": "end_turn", "usage": TOKENS},
        }
        return played(nursery, play, RALPH_MESSAGES=str(place)), os.listdir(place)

    def test_answer_to_a_second_prompt_is_waited_for(self, nursery: Nursery) -> None:
        second = {"stopReason": "end_turn", "usage": TOKENS}
        told, left = self.played(nursery, "OpenCode", text("Hm."), {"listen": second})
        assert [one["prompt"][0]["text"] for one in told.asked("session/prompt")] == ["Say hello.", "Use tabs."]
        assert (told.code, left) == (0, ["a.received.live"])
        assert (told.of("usage")[0]["input_tokens"], told.of("usage")[0]["output_tokens"]) == (2000, 100)

    def test_second_prompt_that_is_never_answered_is_not_waited_for(self, nursery: Nursery) -> None:
        told, left = self.played(nursery, "codex-acp", {"listen": None})
        assert (told.code, left, len(told.asked("session/prompt"))) == (0, ["a.received.live"], 2)

    def test_a_method_of_its_own_wants_to_know_what_it_is_at(self, nursery: Nursery) -> None:
        at = {"update": {"sessionUpdate": "session_info_update", "_meta": {"goose": {"activeRunId": "r-7"}}}}
        told, left = self.played(nursery, "goose", at, {"listen": {}})
        [asked] = told.asked("_goose/unstable/session/steer")
        assert (asked["expectedRunId"], asked["prompt"][0]["text"]) == ("r-7", "Use tabs.")
        assert (told.code, left) == (0, ["a.received.live"])

    @pytest.mark.parametrize(("outcome", "left"), [("injected", "a.received.live"), ("promptRequired", "a.txt")])
    def test_codex_receives_a_message_only_in_its_turn(self, nursery: Nursery, outcome: str, left: str) -> None:
        told, files = self.played(nursery, CODEX, {"listen": {"outcome": outcome}})
        [asked] = told.asked("_session/steering")
        assert asked["prompt"] == [{"type": "text", "text": "Use tabs."}]
        assert asked["_meta"] == {"steering": {"idleBehavior": "promptRequired"}}
        assert (told.code, files, len(told.asked("session/prompt"))) == (0, [left], 1)

    def test_refused_message_waits_for_the_next_turn(self, nursery: Nursery) -> None:
        told, left = self.played(nursery, "OpenCode", {"listen": {"error": {"code": -32602, "message": "busy"}}})
        assert (told.code, left) == (0, ["a.txt"])
        assert told.of("usage")[0]["input_tokens"] == 1000

    def test_of_others_a_second_prompt_would_end_the_first(self, nursery: Nursery) -> None:
        told, left = self.played(nursery, "gemini-cli", {"sleep": 0.5})
        assert (told.code, left, len(told.asked("session/prompt"))) == (0, ["a.txt"], 1)


class TestEnding:
    def test_a_turn_can_be_cancelled(self, nursery: Nursery) -> None:
        play = {
            "turn": [{"orphan": 60}, text("Hm."), {"hang": "until cancelled"}],
            "result": {"stopReason": "cancelled"},
        }
        pid = nursery.start(*words(play))
        eventually(lambda: "session/prompt" in nursery.log() and processes(nursery))
        os.kill(pid, signal.SIGTERM)
        told = nursery.finish()
        assert (told.code, told.asked("session/cancel")) == (143, [{"sessionId": "s-1"}])
        assert told.end["text"] == "it was cancelled"
        assert processes(nursery) == []

    def test_an_agent_that_does_not_listen_is_ended(self, nursery: Nursery) -> None:
        pid = nursery.start(*words({"turn": [{"orphan": 60}, {"hang": 1}]}))
        eventually(lambda: "session/prompt" in nursery.log() and processes(nursery))
        os.kill(pid, signal.SIGTERM)
        assert nursery.finish().code == 143
        assert processes(nursery) == []

    @pytest.mark.slow
    def test_agent_that_reads_no_input_is_ended(self, nursery: Nursery) -> None:
        pid = nursery.start(*words({"deaf": 1}), prompt="word " * 100_000)
        eventually(lambda: "session/new" in nursery.log())
        time.sleep(0.5)
        os.kill(pid, signal.SIGTERM)
        assert nursery.finish().code == 143

    def test_nothing_is_left_of_a_turn_that_went_well(self, nursery: Nursery) -> None:
        told = played(nursery, {"turn": [{"orphan": 60}, text("Done.")]})
        assert (told.code, processes(nursery)) == (0, [])
        assert told.err == ""


def processes(nursery: Nursery) -> list[int]:
    """Those that name the log of this test on their command line."""
    mark, found = str(nursery.place / "log").encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found += [int(entry.name)] if mark in (entry / "cmdline").read_bytes() else []
        except OSError:
            continue
    return found


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

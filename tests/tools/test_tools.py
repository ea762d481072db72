"""What agents call while they work: the commands, what they print, and what they refuse."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralph.tools import files
from ralph.tools.main import TOOLS, commands, run

RUN = "261116-090000-abcd"


class Shell:
    """The tools in a project, called in this process."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys, self.err = root, capsys, ""
        self.agent = root / ".ralph" / "agent"

    def __call__(self, *words: str, code: int = 0) -> str:
        self.capsys.readouterr()
        got = run(list(words))
        out, self.err = self.capsys.readouterr()
        assert got == code, (words, got, out, self.err)
        return out

    def task(self, *words: str, code: int = 0) -> str:
        return self("tools", "task", *words, code=code)

    def memory(self, *words: str, code: int = 0) -> str:
        return self("tools", "memory", *words, code=code)

    def show(self, id: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.task("show", id, "--format", "json"))
        return data

    def refuses(self, *words: str, code: int = 2) -> str:
        """What is said where something cannot be done: what, and what to do."""
        assert self(*words, code=code) == ""
        assert self.err.startswith("ralph: ")
        assert "\n  next:  " in self.err
        return self.err


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    for name in [name for name in os.environ if name.startswith("RALPH_")]:
        monkeypatch.delenv(name)
    root = tmp_path / "project"
    (root / ".ralph" / "runs" / RUN).mkdir(parents=True)
    (root / ".git").mkdir()
    monkeypatch.chdir(root)
    return Shell(root, capsys)


@pytest.fixture
def turn(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The same in a turn of a run."""
    for name, value in {"RUN": RUN, "TURN": f"{RUN}/00003", "ROLE": "hat", "HAT": "builder"}.items():
        monkeypatch.setenv(f"RALPH_{name}", value)
    monkeypatch.setenv("RALPH_EVENTS_FILE", str(shell.root / "events.jsonl"))
    return shell


class TestTasks:
    def test_a_task_from_its_making_to_its_end(self, turn: Shell) -> None:
        made = turn.task("ensure", "Add --verbose", "--key", "code-assist:verbose:step-01:flag", "-d", "AC: it prints")
        id = made.split()[2]
        assert (
            made
            == f"Ensured task {id}\n  Title: Add --verbose\n  Key: code-assist:verbose:step-01:flag\n  Priority: 3\n"
        )
        assert turn.task("ready", "--format", "quiet") == f"{id}\n"
        assert turn.task("start", id) == f"Started task: {id} - Add --verbose\n"
        assert turn.task("ready") == "No ready tasks\n"
        assert turn.task("close", id) == f"Closed task: {id} - Add --verbose\n"
        assert turn.task("list") == "No tasks found\n"
        assert turn.task("reopen", id) == f"Reopened task: {id} - Add --verbose\n"
        assert turn.task("fail", id) == f"Failed task: {id} - Add --verbose\n"
        row = turn.show(id)
        assert (row["status"], row["loop_id"], row["description"]) == ("failed", RUN, "AC: it prints")
        assert row["created"] < row["started"] < row["closed"]
        assert json.loads((turn.agent / "tasks.jsonl").read_text()) == row

    def test_ensure_reuses_and_changes_only_what_is_given(self, turn: Shell) -> None:
        id = turn.task("ensure", "one", "--key", "k", "-p", "1", "-d", "about", "--format", "quiet").strip()
        turn.task("close", id)
        again = turn.task("ensure", "two", "--key", "k")
        assert again == f"Reused task {id}\n  Title: two\n  Key: k\n  Priority: 1\n  Status: closed\n"
        row = json.loads(turn.task("ensure", "--key", "k", "-p", "2", "--format", "json"))
        assert (row["title"], row["priority"], row["description"], row["status"]) == ("two", 2, "about", "closed")

    def test_the_same_key_in_another_run_is_other_work(self, turn: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        first = turn.task("ensure", "one", "--key", "k", "--format", "quiet")
        turn.task("close", "k")
        monkeypatch.setenv("RALPH_RUN", "261117-090000-abcd")
        second = turn.task("ensure", "one", "--key", "k", "--format", "quiet")
        assert first != second
        assert turn.task("ready", "--format", "quiet") == second
        assert turn.show("k")["id"] == second.strip()
        monkeypatch.setenv("RALPH_RUN", "261118-090000-abcd")
        assert turn.task("ready") == "No ready tasks\n"
        assert turn.task("ready", "--all", "--format", "quiet") == second

    def test_the_description_alone_makes_a_title(self, turn: Shell) -> None:
        turn.task("ensure", "--description", "Parse the flag\nAC: ...", "--key", "k")
        assert turn.show("k")["title"] == "Parse the flag"

    def test_words_without_quotes_are_one_text(self, turn: Shell) -> None:
        turn.task("ensure", "Fix", "the", "bug", "--key", "k", "and", "test")
        assert turn.show("k")["title"] == "Fix the bug and test"
        turn("emit", "a.b", "two", "words")
        assert json.loads((turn.root / "events.jsonl").read_text())["payload"] == "two words"

    def test_blockers_by_id_or_key(self, turn: Shell) -> None:
        first = turn.task("ensure", "first", "--key", "one", "--format", "quiet").strip()
        turn.task("ensure", "second", "--key", "two", "--blocked-by", f"one, {first}")
        assert turn.show("two")["blocked_by"] == [first]
        assert f"Blocked by: {turn.show('two')['id']}" in turn.task("add", "third", "--blocked-by", "two")
        assert turn.task("ready", "--format", "quiet").split() == [first]
        turn.task("close", "one")
        assert turn.show("two")["id"] in turn.task("ready")
        assert "no task nine" in turn.refuses("tools", "task", "add", "x", "--blocked-by", "nine")
        assert "wait for each other" in turn.refuses("tools", "task", "ensure", "--key", "one", "--blocked-by", "two")
        assert turn.show("one")["blocked_by"] == []

    def test_lists_are_sorted_filtered_and_cut(self, turn: Shell) -> None:
        for title, priority in (("low", "5"), ("high", "1"), ("done", "3"), ("lost", "3"), ("busy", "4")):
            turn.task("ensure", title, "--key", title, "-p", priority)
        turn.task("close", "done")
        turn.task("fail", "lost")
        turn.task("start", "busy")

        def titles(*words: str) -> list[str]:
            return [row["title"] for row in json.loads(turn.task("list", *words, "--format", "json"))]

        assert titles() == ["busy", "high", "low"]
        assert titles("--all") == ["busy", "high", "low", "done", "lost"]
        assert titles("-s", "in-progress") == ["busy"]
        assert titles("--status=closed") == ["done"]
        assert titles("-l2") == ["busy", "high"]
        assert titles("--days", "1", "-a") == titles("-a")
        head, rule, first, *_ = turn.task("list").splitlines()
        assert (head.split(), rule) == (["ID", "Status", "Priority", "Title", "Key"], "-" * 131)
        assert first.split()[1:] == ["in_progress", "4", "busy", "busy"]

    def test_outside_of_a_run_the_current_one_is_meant(self, shell: Shell) -> None:
        shell.task("ensure", "mine", "--key", "k")
        assert "loop_id" not in shell.show("k")
        (shell.root / ".ralph" / "current-loop-id").write_text("the-run\n")
        shell.task("ensure", "its", "--key", "k")
        assert shell.show("k")["loop_id"] == "the-run"

    def test_a_broken_line_is_kept_aside_and_named(self, turn: Shell) -> None:
        turn.task("ensure", "one", "--key", "k")
        file = turn.agent / "tasks.jsonl"
        file.write_bytes(file.read_bytes() + b'{"id": "task-2", "sta\xff\n')
        assert "one" in turn.task("list")
        assert "tasks.jsonl, line 2 is not a task" in turn.err
        turn.task("close", "k")
        assert "tasks.jsonl, line 2 was not a task and is now in tasks.jsonl.broken" in turn.err
        assert (turn.agent / "tasks.jsonl.broken").read_bytes() == b'{"id": "task-2", "sta\xff\n'
        assert turn.task("list", "-a", "--format", "quiet").count("\n") == 1
        assert turn.err == ""

    def test_unknown_fields_of_a_task_are_kept(self, turn: Shell) -> None:
        turn.agent.mkdir()
        row = {"id": "task-1-aaaa", "title": "t", "status": "open", "priority": 1, "estimate": {"hours": [1, 2.5]}}
        (turn.agent / "tasks.jsonl").write_text(json.dumps(row) + "\n")
        turn.task("start", "task-1-aaaa")
        assert turn.show("task-1-aaaa")["estimate"] == {"hours": [1, 2.5]}


class TestMemories:
    def test_a_memory_from_its_making_to_its_end(self, turn: Shell) -> None:
        id = turn.memory(
            "add", "pytest needs -p no:cacheprovider\n\nhere", "-t", "fix", "--tags", "pytest, ci"
        ).split()[-1]
        turn.memory("add", "Errors are values", "--tags", "errors")
        assert turn.memory("search", "cacheprovider", "--format", "quiet") == f"{id}\n"
        assert turn.memory("list", "-t", "fix,context", "--format", "quiet") == f"{id}\n"
        assert turn.memory("search", "--tags", "CI", "--format", "quiet") == f"{id}\n"
        row = json.loads(turn.memory("show", id, "--format", "json"))
        assert row["memory_type"] == "fix"
        assert (row["content"], row["tags"]) == ("pytest needs -p no:cacheprovider\n\nhere", ["pytest", "ci"])
        assert "needs -p" in turn.memory("show", id)
        assert turn.memory("delete", id) == f"Memory deleted: {id}\n"
        assert id not in (turn.agent / "memories.md").read_text()
        assert "not found" in turn.refuses("tools", "memory", "delete", id, code=1)

    def test_prime_keeps_to_its_budget_and_says_what_it_left_out(self, turn: Shell) -> None:
        assert turn.memory("prime") == ""
        for number in range(10):
            turn.memory("add", f"memory {number} " + "x" * 200)
        whole, part = turn.memory("prime"), turn.memory("prime", "--budget", "300")
        assert whole.startswith("# Memories\n\n## Patterns\n\n### mem-")
        assert whole.count("### mem-") == 10
        assert len(part) <= 300 * 4 + 100
        assert f"{10 - part.count('### mem-')} older ones are left out" in part
        assert len(json.loads(turn.memory("prime", "--format", "json", "--recent", "1"))) == 10

    def test_search_shows_the_best_ten(self, turn: Shell) -> None:
        for number in range(12):
            turn.memory("add", f"the cache, number {number}")
        best = turn.memory("add", "cache eviction", "--tags", "cache", "--format", "quiet").strip()
        found = turn.memory("search", "cache eviction")
        assert found.splitlines()[2].startswith(best)
        assert found.endswith("3 more: --all shows them\n")
        assert len(turn.memory("search", "cache", "--all", "--format", "quiet").split()) == 13
        assert "among 13" in turn.memory("search", "zebra")

    def test_output_has_no_control_characters(self, turn: Shell) -> None:
        turn.memory("add", "red \x1b[31m\x07 \x9b bell")
        turn.task("add", "\x1b[2J gone")
        assert not {"\x1b", "\x07", "\x9b"} & set(turn.memory("list") + turn.memory("prime") + turn.task("list"))

    def test_a_link_stays_a_link(self, turn: Shell, tmp_path: Path) -> None:
        turn.agent.mkdir()
        (tmp_path / "elsewhere.md").write_text("# Memories\n")
        (turn.agent / "memories.md").symlink_to(tmp_path / "elsewhere.md")
        turn.memory("add", "linked")
        assert (turn.agent / "memories.md").is_symlink()
        assert "> linked" in (tmp_path / "elsewhere.md").read_text()


class TestDecisionsAndProgress:
    def test_decisions_are_numbered(self, turn: Shell) -> None:
        words = ["--alternatives", "b", "--reasoning", "c", "--reversibility", "easy"]
        assert turn("tools", "decision", "add", "Use a", "-c", "60", *words) == "Decision recorded: DEC-001\n"
        (turn.agent / "decisions.md").write_text((turn.agent / "decisions.md").read_text() + "\n## DEC-007: by hand\n")
        assert turn("tools", "decision", "add", "Use d", "-c", "40", *words, "--format", "quiet") == "DEC-008\n"
        first, second, third = json.loads(turn("tools", "decision", "list", "--format", "json"))
        assert (first["confidence"], first["role"], first["run"]) == ("60", "builder", RUN)
        assert (second["decision"], third["reversibility"]) == ("by hand", "easy")
        assert "DEC-008    40  Use d" in turn("tools", "decision", "list")

    def test_progress_report_needs_no_reader(self, turn: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        assert turn("tools", "interact", "progress", "Half of\nthe tests pass") == "Sent.\n"
        line = json.loads((turn.root / ".ralph" / "runs" / RUN / "progress.jsonl").read_text())
        assert (line["turn"], line["role"], line["message"]) == (3, "builder", "Half of\nthe tests pass")
        for other in ("", ".", "..", "no-such-run", "../runs", f"../{RUN}", f"{RUN}/.."):
            monkeypatch.setenv("RALPH_RUN", other)
            assert "there is no run" in turn.refuses("tools", "interact", "progress", "x")


class TestEmit:
    def lines(self, path: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def test_into_the_file_of_the_turn(self, turn: Shell) -> None:
        assert turn("emit", "tasks.ready", "task_id: 1") == "Event emitted: tasks.ready\n"
        turn("emit", "build.done", '{"tests": "pass"}', "--json")
        turn("emit", "build.done", "--json", "[1]")
        turn("emit", "LOOP_COMPLETE", "--ts", "2026-01-01T00:00:00Z")
        text, value, listed, bare = self.lines(turn.root / "events.jsonl")
        assert (text["topic"], text["payload"]) == ("tasks.ready", "task_id: 1")
        assert (value["payload"], listed["payload"]) == ({"tests": "pass"}, [1])
        assert bare == {"topic": "LOOP_COMPLETE", "payload": "", "ts": "2026-01-01T00:00:00Z"}

    def test_outside_of_a_turn_into_the_file_of_the_run(self, shell: Shell) -> None:
        assert "no run here can receive the event" in shell.refuses("emit", "a.b")
        (shell.root / ".ralph" / "current-events").write_text(".ralph/events-x.jsonl\n")
        shell("emit", "human.guidance", "use tabs")
        assert self.lines(shell.root / ".ralph" / "events-x.jsonl")[0]["payload"] == "use tabs"
        (shell.root / ".ralph" / "current-events").write_text("../../outside.jsonl\n")
        assert "outside the project" in shell.refuses("emit", "a.b")
        shell("emit", "a.b", "--file", "named.jsonl")
        assert len(self.lines(shell.root / "named.jsonl")) == 1

    def test_any_text_arrives_as_it_was_given(self, turn: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        words = ['"quotes"\\n\n\ttab', "😀 ü \u2028", os.fsdecode(b"\xff"), "- one\n- two=2", "-x"]
        for word in words[:4]:
            turn("emit", "t", word)
        turn("emit", "t", "--", "-x")
        monkeypatch.setattr("sys.stdin", io.StringIO("from\na heredoc\n"))
        turn("emit", "t", "-")
        told = [line["payload"] for line in self.lines(turn.root / "events.jsonl")]
        assert told == [*words, "from\na heredoc"]

    def test_after_a_part_of_a_line_a_new_one_begins(self, turn: Shell) -> None:
        (turn.root / "events.jsonl").write_bytes(b'{"topic": "a", "pay')
        turn("emit", "b")
        assert (turn.root / "events.jsonl").read_text().splitlines()[1].startswith('{"topic":"b"')

    def test_a_payload_has_an_end(self, turn: Shell) -> None:
        turn("emit", "a", "ü" * 16_000)
        assert "16000 characters" in turn.refuses("emit", "a", "x" * 16_001)

    def test_full_disk_is_reported(self, turn: Shell) -> None:
        assert "No space left" in turn.refuses("emit", "a", "--file", "/dev/full", code=7)


class TestWords:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("tools nonsense", "'nonsense'"),
            ("tools tasks list", "did you mean task?"),
            ("tools task", None),
            ("tools task lst", "did you mean list?"),
            ("tools task add", "arguments are required: TITLE"),
            ("tools task show a b", "unrecognized arguments: b"),
            ("tools task add a -p 0", "from 1 to 5"),
            ("tools task add a -p ²", "from 1 to 5"),
            ("tools task add a --priority", "--priority: expected one argument"),
            ("tools task add a --urgent", "unrecognized arguments: --urgent"),
            ("tools task add a --format yaml", "'table', 'json', 'quiet'"),
            ("tools task ensure a", "required: --key"),
            ("tools task ensure a --key=", "--key: the text is empty"),
            ("tools task ensure --key k", "no title"),
            ("tools task list --status late", "'open', 'in_progress', 'closed', 'failed'"),
            ("tools task list --all=yes", "--all: ignored explicit argument"),
            ("tools task list --days -1", "from 1 to"),
            ("tools task show", "required: ID"),
            ("tools memory add x -t idea", "'pattern', 'decision', 'fix', 'context'"),
            ("tools memory list -t idea", "pattern, decision, fix, context"),
            ("tools memory add x --tags a|b", "not a tag"),
            ("tools memory prime --budget much", "not a number from 0"),
            ("tools decision add x", "required: -c/--confidence"),
            ("tools decision add x -c 101", "from 0 to 100"),
            ("tools interact progress", "required: MESSAGE"),
            ("tools task list --root /nonexistent/place", "no such project directory"),
            ("emit", "required: TOPIC\n"),
            ("emit build.*", "is a pattern"),
            ("emit a..b", "is not a topic"),
            ("emit a {x} --json", "not JSON"),
        ],
    )
    def test_a_mistake_is_named_with_what_to_do(self, turn: Shell, words: str, says: str | None) -> None:
        if says is None:
            assert "usage: " in turn(*words.split())
        else:
            assert says in turn.refuses(*words.split())
            assert not (turn.agent / "tasks.jsonl").exists()

    @pytest.mark.parametrize(
        "words", [["tools", "memory", "add", " \n"], ["tools", "interact", "progress", ""], ["emit", ""]]
    )
    def test_empty_text_is_refused(self, turn: Shell, words: list[str]) -> None:
        turn.refuses(*words)

    def test_unknown_id_exits_with_1(self, turn: Shell) -> None:
        for command in ("show", "start", "close", "fail", "reopen"):
            assert "Task task-1-aaaa not found" in turn.refuses("tools", "task", command, "task-1-aaaa", code=1)
        assert "not found" in turn.refuses("tools", "memory", "show", "mem-1-aaaa", code=1)

    def test_every_command_has_help(self, turn: Shell) -> None:
        everything = turn("tools", "--help")
        for tool in TOOLS:
            group = turn("tools", tool, "--help")
            for command in commands(tool):
                assert f"{tool} {command.short}" in everything
                assert command.short in group
                assert f"usage: ralph tools {tool} {command.name}" in turn("tools", tool, command.name, "--help")
        assert "TOPIC [PAYLOAD ...]" in turn("emit", "-h")

    def test_options_of_one_command_have_one_meaning_each(self) -> None:
        for tool in TOOLS:
            for command in commands(tool):
                names = [name for argument in command.arguments for name in argument.names]
                assert len(names) == len(set(names)), command.name


class TestSecrets:
    def test_secrets_of_the_environment_are_not_written_down(
        self, turn: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
        turn.task("add", "use sk-0123456789 for it", "-d=sk-0123456789")
        turn.memory("add", "the key is sk-0123456789")
        turn("emit", "a.b", '{"key": "sk-0123456789"}', "-j")
        turn("tools", "interact", "progress", "with sk-0123456789")
        for path in [path for path in turn.root.rglob("*") if path.is_file()]:
            assert b"sk-0123456789" not in path.read_bytes(), path
        assert "use [redacted] for it" in turn.task("list")


class TestPlaces:
    def test_the_project_is_found_from_below(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        below = shell.root / "src" / "deep"
        below.mkdir(parents=True)
        monkeypatch.chdir(below)
        shell.task("add", "from below")
        assert (shell.agent / "tasks.jsonl").exists()
        (below / "ralph.yml").touch()
        assert "from below" in shell.task("list"), "settings in a directory of a repository are no project"
        (below / ".git").mkdir()
        assert shell.task("list") == "No tasks found\n"
        assert "from below" in shell.task("list", "--root", str(shell.root))
        monkeypatch.setenv("RALPH_WORKSPACE_ROOT", str(shell.root))
        assert "from below" in shell.task("list")
        monkeypatch.delenv("RALPH_WORKSPACE_ROOT")
        monkeypatch.chdir(tmp_path)
        shell.task("add", "here", "--root=.")
        assert (tmp_path / ".ralph" / "agent" / "tasks.jsonl").exists()

    def test_failed_write_names_the_file(self, turn: Shell) -> None:
        turn.agent.write_text("in the way")
        assert str(turn.agent) in turn.refuses("tools", "task", "add", "x")

    def test_a_lock_that_is_held_is_waited_for_and_then_named(
        self, turn: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
        turn.task("add", "x")
        with files.FileLock(str(turn.agent / "tasks.jsonl")):
            said = turn.refuses("tools", "task", "add", "y", code=10)
        assert f"process {os.getpid()} has held the lock" in said
        assert "x" in turn.task("list")
        turn.task("add", "z")

    def test_change_without_the_lock_is_not_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"a\n")
        calls = []

        def by(data: bytes) -> bytes:
            if not calls:
                path.write_bytes(data + b"by hand\n")
            calls.append(data)
            return data + b"ours\n"

        files.change(str(path), by)
        assert path.read_bytes() == b"a\nby hand\nours\n"


def in_a_new_interpreter(code: str, *words: str) -> str:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [
        *("emit a b", "tools task ensure x --key k", "tools task ready", "tools memory add x"),
        *("tools memory search x", "tools decision list", "tools interact progress x"),
    ],
)
def test_nothing_slow_is_imported(turn: Shell, words: str) -> None:
    code = (
        "import os\nbefore = set(sys.modules)\nfrom ralph.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('ralph')))"
    )
    imported = in_a_new_interpreter(code, *words.split()).splitlines()[-1]
    slow = {
        "typing",
        "dataclasses",
        "pathlib",
        "shutil",
        "subprocess",
        "logging",
        "asyncio",
        "inspect",
        "importlib.metadata",
    }
    assert not slow & set(json.loads(imported.replace("'", '"')))


def test_help_lists_the_commands_for_agents(shell: Shell) -> None:
    code = "import sys\nfrom ralph.cli.main import main\nmain()"
    assert "emit " in in_a_new_interpreter(code, "--help")
    assert "task add TITLE..." in in_a_new_interpreter(code, "tools", "--help")
    assert in_a_new_interpreter(code, "tools", "task", "add", "x", "--format", "quiet").startswith("task-")


def test_a_wave_is_published_as_a_whole_or_not_at_all(turn: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "RALPH_PUBLISHES", json.dumps({"own": ["piece.*"], "strict": True, "requires": {"piece.hard": ["id"]}})
    )
    wave = turn("wave", "emit", "piece.ready", "--payloads", "one", "two words").strip()
    rows = [json.loads(line) for line in (turn.root / "events.jsonl").read_text().splitlines()]
    assert [(row["payload"], row["wave_id"], row["wave_index"], row["wave_total"]) for row in rows] == [
        ("one", wave, 0, 2),
        ("two words", wave, 1, 2),
    ]
    assert "`other` is not yours" in turn.refuses("wave", "emit", "other", "--payloads", "one")
    assert "lacks id" in turn.refuses("wave", "emit", "piece.hard", "--payloads", "id: 1", "two")
    assert "payloads are missing" in turn.refuses("wave", "emit", "piece.ready", "one")
    assert "did you mean emit?" in turn.refuses("wave", "emti")
    assert len((turn.root / "events.jsonl").read_text().splitlines()) == 2


def test_events_of_the_turn_count_for_its_promise(turn: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    required = {"review.passed": "critic has not published `review.passed` in this run", "docs.done": ""}
    rules = {"own": None, "completion": "DONE", "required": required}
    monkeypatch.setenv("RALPH_PUBLISHES", json.dumps(rules))
    assert "`DONE` was refused: critic has not published `review.passed`" in turn.refuses("emit", "DONE", "all done")
    turn("emit", "review.passed")
    turn("emit", "docs.outdated")
    assert "`DONE` was refused: the latest event is `docs.outdated`, not `docs.done`" in turn.refuses("emit", "DONE")
    turn("emit", "docs.done")
    turn("emit", "DONE")

"""Many processes at the same files: no change is lost, no line is torn, and whoever is killed leaves whole files behind."""

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph.documents.agent.events import parse_events
from ralph.documents.agent.notes import parse_decisions, parse_memories
from ralph.documents.agent.tasks import CLOSED, AgentTasks

WRITERS = 16
MANY_CALLS = """
import sys
sys.path[:0] = {path!r}
from ralph.tools.main import run
sys.stdin.readline()
for number in range({times}):
    for words in {words!r}:
        code = run([word.replace("WRITER", sys.argv[1]).replace("NUMBER", str(number)) for word in words])
        if code:
            sys.exit(code)
"""
"""A process that waits for a line, and then calls the tools again and again."""


def writer(root: Path, name: str, words: list[list[str]], times: int) -> "subprocess.Popen[str]":
    code = MANY_CALLS.format(path=sys.path, times=times, words=words)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RALPH_")}
    environment = {**kept, "RALPH_RUN": "r", "RALPH_EVENTS_FILE": str(root / "events.jsonl")}
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code, name],
        cwd=root,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".ralph").mkdir()
    return tmp_path


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def open_files(pid: int) -> list[Path]:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(descriptor.readlink())
    return found


def test_sixteen_writers_lose_nothing(root: Path) -> None:
    more = ["--alternatives", "a", "--reasoning", "b", "--reversibility", "c"]
    words = [
        ["tools", "task", "ensure", "own", "--key", "WRITER:NUMBER", "--format", "quiet"],
        ["tools", "task", "ensure", "of all", "--key", "shared:NUMBER", "--format", "quiet"],
        ["tools", "task", "close", "WRITER:NUMBER"],
        ["tools", "memory", "add", "memory WRITER:NUMBER"],
        ["tools", "decision", "add", "decision WRITER:NUMBER", "-c", "60", *more],
        ["emit", "from.WRITER", "NUMBER" + "x" * 5000],
    ]
    times = 5
    writers = [writer(root, f"w{number}", words, times) for number in range(WRITERS)]
    for one in writers:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in writers:
        _, err = one.communicate(timeout=120)
        assert one.returncode == 0, err
        assert err == ""
    wanted = {f"w{number}:{time}" for number in range(WRITERS) for time in range(times)}
    tasks = AgentTasks.parse((root / ".ralph/agent/tasks.jsonl").read_bytes())
    assert not tasks.broken
    assert {task.key for task in tasks.all if task.status == CLOSED} == wanted
    assert sorted(task.key for task in tasks.list_unfinished("r")) == [f"shared:{number}" for number in range(times)]
    stored = parse_memories((root / ".ralph/agent/memories.md").read_text())
    assert {memory.content for memory in stored} == {f"memory {name}" for name in wanted}
    assert len({memory.id for memory in stored}) == len(wanted)
    decided = parse_decisions((root / ".ralph/agent/decisions.md").read_text())
    assert [decision.number for decision in decided] == list(range(1, len(wanted) + 1))
    found, broken, _ = parse_events((root / "events.jsonl").read_bytes())
    assert (len(found), broken) == (len(wanted), [])
    for number in range(WRITERS):
        own = [event.text for event in found if event.topic == f"from.w{number}"]
        assert [text.rstrip("x") for text in own] == [str(time) for time in range(times)]


def test_killed_writer_leaves_whole_files_and_what_it_confirmed(root: Path) -> None:
    words = [
        ["tools", "task", "ensure", "t" * 3000, "--key", "WRITER:NUMBER", "--format", "json"],
        ["tools", "memory", "add", "m" * 3000, "--format", "quiet"],
        ["emit", "topic", "e" * 5000],
    ]
    chance, said = random.Random(7), []
    for round in range(12):
        one = writer(root, f"w{round}", words, 1000)
        assert one.stdin
        assert one.stdout
        one.stdin.write("go\n")
        one.stdin.flush()
        said.append(one.stdout.readline())
        time.sleep(chance.uniform(0, 0.03))
        os.kill(one.pid, signal.SIGKILL)
        said += one.communicate()[0].split("\n")[:-1]
        tasks = AgentTasks.parse((root / ".ralph/agent/tasks.jsonl").read_bytes())
        assert not tasks.broken
        assert {json.loads(line)["id"] for line in said if line.startswith("{")} <= set(tasks.by_id)
        text = (root / ".ralph/agent/memories.md").read_text() if (root / ".ralph/agent/memories.md").exists() else ""
        stored = parse_memories(text)
        assert all(memory.content == "m" * 3000 for memory in stored)
        assert {line for line in said if line.startswith("mem-")} <= {memory.id for memory in stored}
    assert len(tasks.all) >= 12
    found, broken, _ = (
        parse_events((root / "events.jsonl").read_bytes()) if (root / "events.jsonl").exists() else ([], [], 0)
    )
    # The kernel may stop a write of more than a page in the middle when the process is killed. Such a line is incomplete
    # and does not count, and the next event starts on a line of its own.
    assert len(broken) <= 12
    assert all(line.startswith('{"topic":"topic","payload":"eee') for _, _, line in broken)
    assert all(event.text == "e" * 5000 for event in found)


KILLED_AT = """
import os, sys
sys.path[:0] = {path!r}
from ralph.tools.main import run
left = [{calls}]
def counted(call):
    def counting(*args, **kwargs):
        result = call(*args, **kwargs)
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), 9)
        return result
    return counting
for name in ("open", "ftruncate", "pwrite", "fsync", "rename", "close"):
    setattr(os, name, counted(getattr(os, name)))
sys.exit(run(["tools", "task", "add", "new"]))
"""
"""A process that is killed after so many calls that touch the disk."""


def test_killed_after_any_call_the_old_or_the_new_file_is_there(root: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RALPH_")}
    file, made, code = root / ".ralph/agent/tasks.jsonl", 1, -9
    assert writer(root, "w", [["tools", "task", "add", "old"]], 1).communicate("go\n")[1] == ""
    for calls in range(30):
        script = KILLED_AT.format(path=sys.path, calls=calls)
        code = subprocess.run([sys.executable, "-S", "-c", script], cwd=root, env=kept, capture_output=True).returncode
        tasks = AgentTasks.parse(file.read_bytes())
        assert not tasks.broken
        assert made <= len(tasks.all) <= made + 1, calls
        made = len(tasks.all)
        if code == 0:
            break
    assert code == 0, "it was killed every time"
    assert made > 2
    assert {path.name for path in file.parent.iterdir()} == {"tasks.jsonl", "tasks.jsonl.lock"}


def test_a_lock_dies_with_its_holder(root: Path) -> None:
    (root / ".ralph/agent").mkdir()
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    lock = root / ".ralph/agent/tasks.jsonl.lock"
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    with lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    waiting = writer(root, "w", [["tools", "task", "add", "after the kill"]], 1)
    assert waiting.stdin
    waiting.stdin.write("go\n")
    waiting.stdin.flush()
    eventually(lambda: lock in open_files(waiting.pid))
    assert waiting.poll() is None, "it waits for the lock"
    holder.kill()
    holder.communicate()
    waiting.communicate(timeout=120)
    assert waiting.returncode == 0
    assert [task.title for task in AgentTasks.parse((root / ".ralph/agent/tasks.jsonl").read_bytes()).all] == [
        "after the kill"
    ]

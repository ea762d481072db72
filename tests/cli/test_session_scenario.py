"""A whole session with everything that goes wrong in one: six tasks, rework, two rounds of feedback, and a dead engine.

The engine is killed with SIGKILL in every state, and the session is resumed. Nothing is lost, and nothing is done twice.
"""

import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from test_loop import Project, eventually, project  # noqa: F401 - the fixture
from test_session import home, shown
from test_session_files import rows
from test_signals import yaml

AGENT = shlex.join([sys.executable, "-I", str(Path(__file__).with_name("dag_agent.py"))])
VERIFY = """touch {gates}/at/verify.$1
while [ -e {gates}/hold/verify.$1 ]; do sleep 0.05; done
test -s $2
"""
KEYS = {"x": "completed", "F": "failed", "C": "cancelled"}


class Session:
    """One session, and the engine that works on it until the test kills it."""

    def __init__(self, project: Project) -> None:  # noqa: F811
        self.project, self.gates = project, project.home / "gates"
        for name in ("at", "hold"):
            (self.gates / name).mkdir(parents=True)
        project.extra["GATES"] = str(self.gates)
        (project.root / "verify.sh").write_text(VERIFY.format(gates=self.gates))
        project.git("add", "verify.sh")
        project.git("commit", "-qm", "How to verify")
        self.engine: subprocess.Popen[str] | None = None
        self.killed: list[str] = []

    def start(self, *words: str) -> None:
        self.engine = self.project.start("session", *words)

    def hold(self, *names: str) -> None:
        """Have these turns and checks wait."""
        for name in names:
            (self.gates / "hold" / name).touch()
            (self.gates / "at" / name).unlink(missing_ok=True)

    def release(self, name: str) -> None:
        (self.gates / "hold" / name).unlink()

    def wait_for(self, name: str) -> None:
        eventually(lambda: (self.gates / "at" / name).exists() or self._has_ended())
        assert (self.gates / "at" / name).exists(), self.end()

    def wait_for_state(self, state: str) -> None:
        metadata = home(self.project) / "metadata.yaml"
        eventually(lambda: yaml(metadata)["orchestrator"]["state"] == state or self._has_ended())
        assert not self._has_ended(), self.end()

    def kill(self) -> None:
        """Kill the engine, and look at what is left. The agents go on."""
        assert self.engine
        self.engine.kill()
        self.engine.communicate()
        names = ("metadata.yaml", "progress.md")
        if (self.project.root / ".ralph-sessions").exists() and any(
            (home(self.project) / one).exists() for one in names
        ):
            self.killed.append(self.check_agreement()["current_state"])

    def kill_at(self, *names: str) -> None:
        """Kill the engine during each of these turns and checks, and resume."""
        for name in names:
            self.wait_for(name)
            self.kill()
            self.release(name)
            self.start("resume")

    def end(self) -> str:
        assert self.engine
        out, err = self.engine.communicate(timeout=300)
        return out + err

    def check_agreement(self) -> dict[str, object]:
        """Check that every document and screen says the same about the tasks."""
        told = shown(self.project)
        progress = (home(self.project) / "progress.md").read_text()
        markers = Counter(re.findall(r"^- \[(.)\] task-", progress, re.MULTILINE))
        counts = Counter({"total": sum(markers.values())})
        for marker, number in markers.items():
            counts[KEYS.get(marker, "pending")] += number
        assert +counts == +Counter(told["tasks_summary"]), progress
        assert "Traceback" not in self.project.ralph("status").said
        return told

    def _has_ended(self) -> bool:
        return self.engine is not None and self.engine.poll() is not None


@pytest.mark.slow
def test_session_survives_every_kill_and_ends_as_the_documents_say(project: Project) -> None:  # noqa: F811
    session = Session(project)

    # Iteration 1: kill the engine while it plans, asks, breaks down, executes, checks, reviews and merges.
    planning = ["planner.INITIALIZE.1", "questioner.brainstorm.1", "questioner.research.1", "planner.TASK_BREAKDOWN.1"]
    session.hold(*planning, "executor.task-1.1", "verify.task-1", "reviewer.task-1.1", "executor.task-5.3")
    session.start("new", "Build six files", "--agent-command", AGENT, "--yes", "--check", "`test -f verify.sh` passes")
    session.kill_at(*planning, "executor.task-1.1", "verify.task-1")
    session.wait_for("reviewer.task-1.1")
    session.hold("verify.task-1")
    session.kill_at("reviewer.task-1.1", "verify.task-1")
    assert [entry["key"] for entry in project.journal("merge.started")].count("merge-task-1-1-1") >= 1
    session.hold("reviewer.SESSION_REVIEW.1", "librarian.EXTRACT.1")
    session.kill_at("executor.task-5.3", "reviewer.SESSION_REVIEW.1", "librarian.EXTRACT.1")
    session.wait_for_state("KNOWLEDGE_APPROVAL")
    for words in (("status",), ("session", "show")):
        screen = project.ralph(*words).out
        assert f"ralph session approve {home(project).name}" in screen, screen
    session.kill()
    assert "the tasks that are left need feedback" in project.ralph("session", "show").out
    progress = home(project) / "progress.md"
    text = progress.read_text()
    assert all(f"- [x] task-{number} (Attempt 1," in text for number in (1, 3, 4)), text
    assert "- [x] task-2 (Attempt 2," in text and "- [F] task-5 (Attempt 3," in text and "- [ ] task-6\n" in text
    assert rows(progress) == [["1", "Awaiting feedback", "4/6", "N/A"]]
    assert set(session.killed) >= {"PLANNING", "EXECUTING_BATCH", "SESSION_REVIEW", "KNOWLEDGE_EXTRACTION"}

    # Iteration 2: feedback, a task that the user deletes, and a STEER that changes the scope of another.
    log = project.home / "app.log"
    log.write_text("connection refused on port 80\n")
    given = project.ralph("session", "feedback", "task-5 needs the port: 8080", "--attach", str(log))
    assert given.code == 0, given.said
    replanning = [
        "questioner.feedback-analysis.2",
        "questioner.research.2",
        "planner.UPDATE.2",
        "planner.REBREAKDOWN.2",
    ]
    session.hold(*replanning, "executor.task-7.1", "planner.REBREAKDOWN.2.steer")
    session.start("resume")
    session.kill_at(*replanning[:3])
    session.wait_for(replanning[3])
    session.kill()
    (home(project) / "tasks" / "task-6.md").unlink()
    session.release(replanning[3])
    session.start("resume")
    session.wait_for("executor.task-7.1")
    # The STEER is for the executor of task-7 alone, so no other one may be at work.
    eventually(lambda: "- [x] task-5 " in progress.read_text())
    assert project.ralph("steer", "do not make task-7.txt, make z.txt", "--to", "executor").code == 0
    eventually(lambda: project.journal("signal.accepted"))
    session.kill()
    session.release("executor.task-7.1")
    session.start("resume")
    session.kill_at("planner.REBREAKDOWN.2.steer")
    session.wait_for_state("KNOWLEDGE_APPROVAL")
    assert project.ralph("session", "skip").code == 0
    said = session.end()
    assert session.engine and session.engine.returncode == 7, said
    assert "failed: task-6; task-6 has no definition: restore it in " in said
    text = progress.read_text()
    assert "- [F] task-6 (Task definition missing)" in text and "- [x] task-5 (Attempt 4, Iteration 2," in text
    assert "do not make task-7.txt, make z.txt" in (home(project) / "tasks" / "task-7.md").read_text()
    assert rows(progress)[0][:3] == ["1", "Complete", "4/6"] and rows(progress)[1][:3] == [
        "2",
        "Awaiting feedback",
        "6/7",
    ]
    session.check_agreement()

    # Iteration 3: the planner defines the deleted task again, and the user keeps a part of what was learned.
    assert project.ralph("session", "feedback", "task-6 is still wanted").code == 0
    session.hold("planner.REBREAKDOWN.3", "executor.task-6.1", "librarian.PROMOTE.3")
    session.start("resume")
    session.kill_at("planner.REBREAKDOWN.3", "executor.task-6.1")
    session.wait_for_state("KNOWLEDGE_APPROVAL")
    assert project.ralph("session", "approve", "--message", "Keep only the api").code == 0
    session.kill_at("librarian.PROMOTE.3")
    said = session.end()
    assert session.engine.returncode == 0, said
    check_end(session, said)


def check_end(session: Session, said: str) -> None:
    """Check the work, the documents and the screens of the session that has ended."""
    project = session.project  # noqa: F811
    assert "the session is complete: 7 tasks" in said
    told = session.check_agreement()
    assert (told["status"], told["current_state"], told["iteration"]) == ("completed", "COMPLETE", 3)
    attempts = {"task-1": 1, "task-2": 2, "task-3": 1, "task-4": 1, "task-5": 4, "task-6": 1, "task-7": 2}
    for task, attempt in attempts.items():
        file = "z.txt" if task == "task-7" else f"{task}.txt"
        assert (project.root / file).read_text() == f"{task} by attempt {attempt}\n"
    assert project.git("status", "--porcelain") == ""
    assert [path.name for path in (project.root / ".docs").rglob("*.md")] == ["api.md"]

    documents = home(project)
    assert [row[:3] for row in rows(documents / "progress.md")] == [
        ["1", "Complete", "4/6"],
        ["2", "Complete", "6/7"],
        ["3", "Complete", "7/7"],
    ]
    for iteration in (1, 2, 3):
        assert f"Iteration {iteration}." in (documents / f"plan.iteration-{iteration}.md").read_text()
        assert yaml(documents / "iterations" / str(iteration) / "metadata.yaml")["completed_at"]
    kept = documents / "iterations" / "2" / "knowledge" / "reference" / "api.md"
    assert "carried_from: 1" in kept.read_text()
    metadata = yaml(documents / "metadata.yaml")
    assert metadata["tasks"] == {**metadata["tasks"], "total": 7, "completed": 7, "failed": 0, "pending": 0}

    starts = Counter(entry["key"] for entry in project.journal("turn.started"))
    # The executor of task-7 cannot be steered in the middle of a turn, so another turn receives the STEER.
    assert {key: count for key, count in starts.items() if count > 1} == {"execute:task-7-1": 2}
    merges = re.findall(r"^Ralph-Task: (.+)$", project.git("log", "--format=%b"), re.MULTILINE)
    assert len(merges) == len(set(merges)), "no task was merged twice"
    assert project.living() == []


@pytest.mark.slow
def test_classic_session_survives_every_kill_and_ends_as_the_documents_say(project: Project) -> None:  # noqa: F811
    project.extra["LAYOUT"] = "classic"
    session = Session(project)

    # The first plan: kill the engine while it plans, asks, breaks down, executes, checks and reviews.
    planning = ["planner.INITIALIZE.1", "questioner.brainstorm.1", "questioner.research.1", "planner.TASK_BREAKDOWN.1"]
    session.hold(*planning, "executor.task-1.1", "verify.task-1", "reviewer.task-1.1", "executor.task-5.3")
    check = ("--check", "`test -f verify.sh` passes")
    session.start("new", "--classic", "Build six files", "--agent-command", AGENT, "--yes", *check)
    session.kill_at(*planning, "executor.task-1.1", "verify.task-1", "reviewer.task-1.1", "executor.task-5.3")
    said = session.end()
    assert session.engine and session.engine.returncode == 7, said
    assert "failed: task-5; blocked: task-6 (by task-5)" in said
    progress = home(project) / "progress.md"
    text = progress.read_text()
    assert text.count("- [x] task-") == 4 and "- [F] task-5 (Failed, Attempt 3" in text and "- [ ] task-6" in text
    assert (home(project) / "tasks.task-2-report-r2.md").exists(), "the review sent task-2 back"
    session.check_agreement()

    # Feedback, a task that the user deletes, and a STEER that changes the scope of another.
    assert project.ralph("session", "feedback", "task-5 needs the port: 8080").code == 0
    session.hold("planner.UPDATE.1", "executor.task-7.1", "planner.UPDATE.2")
    session.start("resume")
    session.wait_for("planner.UPDATE.1")
    session.kill()
    tasks = home(project) / "tasks.md"
    tasks.write_text(tasks.read_text().partition("- task-6:")[0])
    session.release("planner.UPDATE.1")
    session.start("resume")
    session.wait_for("executor.task-7.1")
    assert project.ralph("steer", "do not make task-7.txt, make z.txt", "--to", "executor").code == 0
    eventually(lambda: project.journal("signal.accepted"))
    session.kill()
    session.release("executor.task-7.1")
    session.start("resume")
    session.kill_at("planner.UPDATE.2")
    said = session.end()
    assert session.engine.returncode == 7, said
    assert "failed: task-6; task-6 has no definition: restore it in " in said
    assert "- [F] task-6 (Failed, Task definition missing)" in progress.read_text()
    assert "z.txt" in tasks.read_text() and (project.root / "z.txt").exists()
    assert "✓ task-7 Make z.txt: done" in said
    view = project.ralph("status", home(project).name, "--json").json["view"]
    assert Counter(task["state"] for task in view["tasks"]) == {"done": 6, "failed": 1}
    session.check_agreement()

    # More feedback: the planner defines the deleted task again.
    assert project.ralph("session", "feedback", "task-6 is still wanted").code == 0
    session.hold("planner.UPDATE.3", "executor.task-6.1", "reviewer.SESSION_REVIEW.1")
    session.start("resume")
    session.kill_at("planner.UPDATE.3", "executor.task-6.1", "reviewer.SESSION_REVIEW.1")
    said = session.end()
    assert session.engine.returncode == 0, said
    assert "the session is complete: 7 tasks" in said
    told = session.check_agreement()
    assert (told["status"], told["current_state"]) == ("completed", "COMPLETE")
    for number in (1, 2, 3):
        assert (home(project) / f"plan.iteration-{number}.md").exists()
    starts = Counter(entry["key"] for entry in project.journal("turn.started"))
    # The executor of task-7 cannot be steered in the middle of a turn, so another turn receives the STEER.
    assert {key: count for key, count in starts.items() if count > 1} == {"execute:task-7-1": 2}
    assert project.living() == []

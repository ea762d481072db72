"""The session of `examples/session`, from the request to the branch, and the page that tells of it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "session"


@pytest.mark.slow
def test_walkthrough_page_matches_the_example_session(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RALPH_")}
    environment["RALPH_SANDBOX"] = os.environ["RALPH_SANDBOX"]
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = [sys.executable, str(EXAMPLE / "run.py"), "--keep", str(tmp_path), "--walkthrough", str(page)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr

    project = tmp_path / "shortener"

    def run(*words: str) -> str:
        return subprocess.run(words, cwd=project, env=environment, check=True, text=True, capture_output=True).stdout

    told = json.loads(run("ralph", "session", "show", "--json"))
    assert (told["status"], told["current_state"], told["iteration"]) == ("completed", "COMPLETE", 2)
    assert told["tasks_summary"] == {"total": 9, "completed": 8, "failed": 0, "pending": 0, "cancelled": 1}
    [session] = [path for path in (project / ".ralph-sessions").iterdir() if path.is_dir()]
    progress = (session / "progress.md").read_text()
    assert "- [C] task-4 (split due to timeouts: task-4.1, task-4.2)" in progress
    assert "- [x] task-5 (Attempt 4, Iteration 2, " in progress and "- [x] task-2 (Attempt 2, " in progress
    assert "[P]" not in progress.partition("## Planning")[2]

    assert run("git", "status", "--porcelain") == "", "it landed on the branch of the user, and nothing else is there"
    assert (project / ".docs" / "reference" / "export-format.md").is_file()
    for check in (("unittest", "-q"), ("samples.compare",)):
        run(sys.executable, "-m", *check)
    run(sys.executable, "acceptance.py")

    for name in quoted_files():
        found = list(session.glob(name.replace("TIME", "*")))
        assert found, f"the page quotes {name}"
    assert page.read_text() == (ROOT / "docs" / "session-walkthrough.md").read_text(), (
        "the page is not what the session wrote: examples/session/run.py --walkthrough docs/session-walkthrough.md"
    )


def quoted_files() -> list[str]:
    """The files of the session that the page quotes; beside them it quotes what commands printed."""
    spec = importlib.util.spec_from_file_location("example_session", EXAMPLE / "run.py")
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    names = {match["name"] for match in example.QUOTE.finditer((EXAMPLE / "walkthrough.md").read_text())}
    return sorted(name for name in names if "." in name and name != "instructions.md")

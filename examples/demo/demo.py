"""A whole verified loop in a temporary project: a real git repository, real tests, real processes, and a scripted agent."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RALPH = [sys.executable, "-m", "ralph"]
CRITERION = "`python3 -m unittest -q` passes"


def main() -> int:
    """Run the loop, show the report, and clean up."""
    place = Path(tempfile.mkdtemp(prefix="ralph-demo-"))
    project = place / "wallet"
    try:
        shutil.copytree(HERE / "project", project)
        make_repository(project)
        say(f"A small project with three tests, two of them red. The agent is scripted; the criterion is {CRITERION}.")
        say(
            "First it claims to be done. Then it fixes half, and leaves a process behind. Then it skips the test that is"
        )
        say("still red, and is caught. Then it does the work.")
        loop = ["loop", "Make the tests pass", "--until", CRITERION, "--scenario", str(HERE / "scenario.yml"), "--yes"]
        code = ralph(project, *loop)
        for command in (["diff", "--stat"], ["status"]):
            print(f"\n$ ralph {' '.join(command)}", flush=True)
            ralph(project, *command)
        report = max((project / ".aiwg" / "ralph").glob("completion-*.md"))
        print(f"\n$ cat {report.relative_to(project)}\n\n{report.read_text()}")
        return code
    finally:
        shutil.rmtree(place)


def make_repository(project: Path) -> None:
    """A git repository with one commit."""
    identity = ["-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "A wallet"]):
        subprocess.run(["git", *command], cwd=project, check=True)


def ralph(project: Path, *arguments: str) -> int:
    """Run the ralph command in the project, as a person would."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RALPH_")}
    return subprocess.run([*RALPH, *arguments], cwd=project, env=environment).returncode


def say(text: str) -> None:
    """A line of explanation."""
    print(f"# {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

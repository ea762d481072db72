"""A whole session in a temporary project: planned, done side by side, reviewed, taken further by feedback, landed.

Real git, real tests, real processes; only the agent (`agent.py`) is scripted. `--keep DIR` keeps the project there,
`--walkthrough FILE` writes the page that tells of the session, with its own files.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RALPH = [sys.executable, "-m", "ralph"]
AGENT = shlex.join([sys.executable, "-I", str(HERE / "agent.py")])
CHECKS = ["--check", "`python3 -m unittest -q` passes", "--check", "`python3 acceptance.py` passes"]
REQUEST = "Build a URL shortener with stats"
AWAITING = 7
BEGUN = ("[/] task-1 ", "[/] task-2 ")
"""What progress.md says when both tasks of the first wave have started. The agent waits until it was seen."""
QUOTE = re.compile(r"\{\{(?P<name>[^:}]+)(?:: (?P<begin>.+?) \.\.\. (?P<end>.+?))?\}\}")
"""A place of the page: something that was found, or the part of it from one line to another."""


def main() -> int:
    """Run the session, show it, and clean up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the project there, and keep it")
    parser.add_argument("--walkthrough", type=Path, metavar="FILE", help="write the page there")
    asked = parser.parse_args()
    place = asked.keep.resolve() if asked.keep else Path(tempfile.mkdtemp(prefix="ralph-session-"))
    try:
        story = Story(place / "shortener")
        story.tell()
        if asked.walkthrough:
            asked.walkthrough.write_text(page((HERE / "walkthrough.md").read_text(), story.found, story.session))
        return 0
    finally:
        if not asked.keep:
            shutil.rmtree(place)


class Story:
    """The session from the request to the branch."""

    def __init__(self, project: Path) -> None:
        shutil.copytree(HERE / "project", project)
        make_repository(project)
        self.project = project
        # In the sandbox, agents see the project and little else.
        self.begun = project / ".ralph-sessions" / "begun"
        self.found: dict[str, str] = {}
        """What the session wrote and what commands printed, by the name that the page knows it by."""

    @property
    def session(self) -> Path:
        """The directory of the session."""
        return next(path for path in (self.project / ".ralph-sessions").iterdir() if path.is_dir())

    def tell(self) -> None:
        """One command after the other, as a user would type them."""
        say("A small project: it has codes, and the session builds the rest. `acceptance.py` tests the result.")
        say("The planner limits each task to nine seconds. One task is too large for that, one fails its first review,")
        say("and one fails because facts are missing.")
        watch = Watch(self, BEGUN, self.begun)
        new = ["session", "new", REQUEST, *CHECKS, "--agent-command", AGENT, "--yes"]
        self.ralph("new", *new, expect=AWAITING, on={"split task-4": self.show_split})
        self.found |= {"progress@work": watch.awaited, "progress@feedback": self.progress}
        self.ralph("show@feedback", "session", "show")
        say(
            "A task failed three times, and the command line waits for it. The user gives feedback with the missing facts."
        )
        notes = ["--from", str(HERE / "notes.md"), "--attach", str(HERE / "app.log")]
        self.ralph("feedback", "session", "feedback", *notes)
        say("You can change the instructions: from now on, a task can take half an hour.")
        self.found["instructions.md"] = before = self.instructions.read_text()
        self.instructions.write_text(before.replace("task_wip_minutes: 0.15", "task_wip_minutes: 30"))
        self.ralph("resume", "session", "resume", expect=AWAITING)
        self.ralph("show@approval", "session", "show")
        say("Everything is done. Ralph keeps what was learned when the user approves it.")
        self.ralph("approve", "session", "approve")
        for name, command in (("show@end", "show"), ("list", "list"), ("tree", "tree")):
            self.ralph(name, "session", command)
        self.run("log", ["git", "log", "--oneline", "--first-parent"])
        self.run("tests", ["python3", "-m", "unittest", "-q"])
        self.found["progress@end"] = self.progress
        self.found |= {self.name_of(path): path.read_text() for path in self.files() if path.is_file()}

    def show_split(self) -> None:
        """How the session stands while tasks are in progress."""
        self.ralph("show@split", "session", "show")

    @property
    def instructions(self) -> Path:
        """What everybody in the session heeds, beside its directory."""
        return self.session.with_name(f"{self.session.name}.instructions.md")

    @property
    def progress(self) -> str:
        """The markers now."""
        return (self.session / "progress.md").read_text()

    def files(self) -> list[Path]:
        """The files of the session, and what it left in the project."""
        return [*self.session.rglob("*.*"), *(self.project / ".docs").rglob("*.md")]

    def name_of(self, path: Path) -> str:
        """A file by its path in the session, or in the project; the time of a batch of feedback is left out."""
        inside = path.relative_to(self.session if path.is_relative_to(self.session) else self.project).as_posix()
        return re.sub(r"\d{8}-\d{6}", "TIME", inside)

    def ralph(self, name: str, *words: str, expect: int = 0, on: dict[str, Callable[[], None]] | None = None) -> None:
        """Run the ralph command in the project, as a person would."""
        shown = shlex.join(words).replace(shlex.quote(AGENT), "'python3 agent.py'").replace(f"{HERE}/", "")
        self.run(name, [*RALPH, *words], f"ralph {shown}", expect, on)

    def run(
        self,
        name: str,
        command: list[str],
        shown: str = "",
        expect: int = 0,
        on: dict[str, Callable[[], None]] | None = None,
    ) -> None:
        """Run a command, print what it says as it says it, and do something at lines that have these words."""
        print(f"\n$ {shown or shlex.join(command)}", flush=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RALPH_")}
        environment["EXAMPLE_BEGUN"] = str(self.begun)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        lines = []
        with subprocess.Popen(command, cwd=self.project, env=environment, text=True, **pipes) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines.append(line)
                for words in [words for words in on or {} if words in line]:
                    on.pop(words)()
        self.found[name] = "".join(lines)
        if process.returncode != expect:
            sys.exit(f"`{shown or name}` ended with {process.returncode}, and should with {expect}")


class Watch:
    """Keeps the first version of progress.md that has all of some words, and then creates a file."""

    def __init__(self, story: Story, words: Sequence[str], seen: Path) -> None:
        self._story, self._words, self._seen = story, words, seen
        self._over, self._found = threading.Event(), ""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    @property
    def awaited(self) -> str:
        """The version that has the words."""
        self._over.set()
        self._thread.join()
        if not self._found:
            sys.exit(f"progress.md never had {' and '.join(self._words)}")
        return self._found

    def _look(self) -> None:
        while not self._over.wait(0.02):
            try:
                text = self._story.progress
            except (OSError, StopIteration):
                continue
            if all(words in text for words in self._words):
                self._found = text
                self._seen.touch()
                return


def page(template: str, found: dict[str, str], session: Path) -> str:
    """The page: `{{NAME}}` is what was found by that name, `{{NAME: FROM ... TO}}` a part of it, from line to line."""

    def quoted(match: re.Match[str]) -> str:
        text = steady(found[match["name"]].strip("\n"), session.name)
        return part(text, match["begin"], match["end"]) if match["begin"] else text

    return QUOTE.sub(quoted, template)


def part(text: str, begin: str, end: str) -> str:
    """The lines from the one that begins so to the one that begins so, with dots for what is left out."""
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.startswith(begin)), None)
    last = next((number for number, line in enumerate(lines) if number >= (first or 0) and line.startswith(end)), None)
    if first is None or last is None:
        sys.exit(f"walkthrough.md quotes the lines from {begin!r} to {end!r}, and they are not here:\n{text}")
    dots = (["..."] if first else []), (["..."] if last + 1 < len(lines) else [])
    return "\n".join([*dots[0], *lines[first : last + 1], *dots[1]])


def steady(text: str, session: str) -> str:
    """The text with ids, times and durations that are the same in every run."""
    for pattern, word in (
        (re.escape(session), "261116-090000"),
        (r"signal\.\d{6}-\d{6}Z-\d{6}-[0-9a-f]{4}", "signal.261116-093000Z-000000-a1b2"),
        (r"\b\d{8}-\d{6}\b", "20261116-091500"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "2026-11-16T09:00:00Z"),
        (r"(Ran \d+ tests? in) [\d.]+s", r"\1 0.01s"),
        (r"(\d+ turns, ).+", r"\g<1>25.0 s active"),
        (r"\b[0-9a-f]{7,40}\b(?= |$)", "c0ffee1"),
        # The page shows what you see with the sandbox, which is the default.
        (r"^(note|Sandbox): not isolated: .*\n", ""),
        (r"\b[0-9a-f]{64}\b", "c0ffee..."),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def make_repository(project: Path) -> None:
    """A git repository with one commit."""
    identity = ["-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false"]
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*identity, "commit", "-qm", "Codes, and what is wanted"],
    ):
        subprocess.run(["git", *command], cwd=project, check=True)


def say(text: str) -> None:
    """A line of explanation."""
    print(f"# {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

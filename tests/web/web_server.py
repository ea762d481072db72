"""A real server in a process of its own, with its own state directory, and a small client for it."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PASSPHRASE = "correct horse battery"
CHECK = "`python3 -B check.py` passes"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, str]:
        error: dict[str, str] = self.data["error"]
        return error


@dataclass
class Server:
    root: Path
    port: int
    token: str
    environment: dict[str, str]
    process: "subprocess.Popen[str]"
    proof: str = field(default="")
    stopped: str = ""
    """A run that has stopped, for tests that need any."""

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        token: str | None = None,
    ) -> Answer:
        """One request as the page sends it. `headers` replace those of the page; an empty value leaves one out."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.token if token is None else token}"}
        if method == "POST":
            sent |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}
            sent |= {"X-Ralph-Proof": self.proof} if self.proof else {}
        sent |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
            if method == "POST" and "Content-Length" not in sent:
                sent["Content-Length"] = str(len(data))
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            # In one packet: a server that refuses the headers closes, and data that comes later resets the connection.
            connection.endheaders(data or None)
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return self.request("POST", path, body, **more)

    def unlock(self) -> None:
        self.proof = self.post("/api/unlock", {"passphrase": PASSPHRASE}).data["proof"]

    def ralph(self, *arguments: str, ok: bool = True) -> str:
        """Run a command of Ralph in the project."""
        command = [sys.executable, "-P", "-m", "ralph", *arguments]
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=120)
        assert not ok or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_loop(self, scenario: str, *options: str, task: str = "Make it pass") -> str:
        """Start a loop in the background. Returns its key."""
        (self.root / "value.txt").write_text("one\ntwo\nthree\n")
        path = self.root.parent / f"scenario-{time.monotonic_ns()}.yaml"
        path.write_text(scenario)
        arguments = ("loop", task, "--until", CHECK, "--scenario", str(path), "--yes", "--detach", "--json", *options)
        run = json.loads(self.ralph(*arguments).splitlines()[-1])["run"]
        return f"{run}@{project_name(self.root)}"

    def view(self, key: str) -> Any:
        answer = self.get(f"/api/runs/{key}")
        assert answer.status == 200, answer.text
        return answer.data

    def wait_for(self, key: str, holds: Callable[[Any], object]) -> Any:
        """The view of a run, as soon as something holds for it."""
        return wait_until(lambda: view if holds(view := self.view(key)) else None, lambda: self.view(key)["headline"])

    def journal(self, key: str) -> list[dict[str, Any]]:
        path = self.root / ".ralph" / "runs" / key.partition("@")[0] / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


def wait_until(attempt: Callable[[], Any], describe: Callable[[], object] = lambda: "") -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := attempt():
            return found
        time.sleep(0.1)
    raise AssertionError(f"it never happened: {describe()}")


def project_name(root: Path) -> str:
    from ralph.store.projects import name_project

    return name_project(root)


def make_project(directory: Path, name: str = "shop") -> Path:
    """A repository with a check that fails until `value.txt` has the right content."""
    root = directory / name
    root.mkdir(parents=True)
    (root / "value.txt").write_text("one\ntwo\nthree\n")
    (root / "check.py").write_text(
        "import sys\ntext = open('value.txt').read()\nprint(text)\nsys.exit('right' not in text)\n"
    )
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "base")):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(("git", *identity, *command), cwd=root, check=True, capture_output=True)
    return root


@contextlib.contextmanager
def serving(root: Path, state: Path, *options: str, passphrase: bool = True) -> Iterator[Server]:
    """A server for a project. The state directory is that of a user of its own."""
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@e.org"}
    environment |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@e.org"}
    # Runs in the sandbox get copies of the caches of package managers. A home without any keeps them small.
    home = state.with_name(f"{state.name}-home")
    home.mkdir(exist_ok=True)
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    environment.pop("RALPH_TURN", None)
    (root / ".ralph" / "runs").mkdir(parents=True, exist_ok=True)
    if passphrase:
        program = f"from ralph.web.access import set_passphrase; set_passphrase({PASSPHRASE!r}, None)"
        if not (state / "ralph" / "web" / "passphrase.json").exists():
            subprocess.run([sys.executable, "-P", "-c", program], env=environment, check=True)
    command = [sys.executable, "-P", "-m", "ralph", "web", "--json", *(options or ("--port", "0"))]
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        link = json.loads(line)["link"]
        port, token = int(link.split(":")[2].partition("/")[0]), link.rpartition("=")[2]
        yield Server(root, port, token, environment, process)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=30)
        print(errors)
        assert "Traceback" not in errors

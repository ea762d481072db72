"""One other machine without a cluster: start a run there by ssh, and read the web page there through a tunnel."""

import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clusters import eventually, find_free_port
from engines import git, write

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SETTINGS = """Port {port}
ListenAddress 127.0.0.1
HostKey {home}/host
AuthorizedKeysFile {home}/user.pub
PidFile {home}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
"""
PLAY = 'turns:\n  - steps:\n      - run: "echo made > made.txt"\n'


@dataclass
class Box:
    """A machine that is reached by ssh: a server on the loopback address, with a project."""

    home: Path
    port: int

    def ssh(self, *options: str) -> list[str]:
        own = ("-F", "none", "-i", str(self.home / "user"), "-p", str(self.port))
        trust = ("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.home}/known", "-o", "BatchMode=yes")
        return ["ssh", *own, *trust, *options, f"{getpass.getuser()}@127.0.0.1"]

    def run(self, command: str) -> str:
        done = subprocess.run([*self.ssh(), self.in_project(command)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def in_project(self, command: str) -> str:
        """The command line for the other machine. Nothing of the environment here reaches it."""
        state = f"export XDG_STATE_HOME={self.home}/state XDG_CONFIG_HOME={self.home}/config"
        ralph = f'ralph() {{ {shlex.quote(sys.executable)} -P -m ralph "$@"; }}'
        return f"{state}; {ralph}; cd {self.home}/project && {command}"


@pytest.fixture
def box() -> Iterator[Box]:
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("the programs sshd and ssh are missing (Debian: openssh-server)")
    home = Path(tempfile.mkdtemp(prefix="rs", dir="/tmp"))
    box = Box(home, find_free_port())
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True)
    (home / "sshd_config").write_text(SETTINGS.format(port=box.port, home=home))
    if os.geteuid() == 0:
        # The directory without which a server of root does not start. Debian makes it when the machine starts.
        Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
    with (home / "sshd.log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(home / "sshd_config")], stdout=log, stderr=log)
    try:
        project = home / "project"
        project.mkdir()
        write(project, {"a.txt": "one\n", "play.yml": PLAY})
        for words in ("init -q -b main", "add -A", "commit -q -m first"):
            git(project, *words.split())
        eventually(lambda: b"Server listening" in (home / "sshd.log").read_bytes(), 20)
        yield box
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


def test_a_run_started_by_ssh_continues_after_the_connection_ends(box: Box) -> None:
    until = "'`test -e made.txt` passes'"
    box.run(f"ralph loop 'make it' --until {until} --scenario play.yml --detach --yes")
    run = next((box.home / "project" / ".ralph" / "runs").iterdir()).name
    eventually(lambda: "success" in box.run(f"ralph status {run}").lower(), 60)
    assert (box.home / "project" / "made.txt").read_text() == "made\n"


def test_the_web_page_is_reached_through_a_tunnel(box: Box) -> None:
    here, there = find_free_port(), find_free_port()
    command = box.in_project(f"ralph web --port {there}")
    with (box.home / "web.log").open("wb") as log:
        tunnel = subprocess.Popen(
            # With a terminal, the server ends with the connection.
            [*box.ssh("-tt", "-L", f"{here}:127.0.0.1:{there}"), command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: find_link(box), 60)
        # On two machines both ends have the same port, and the browser names it. Here the server has it already.
        page = fetch(find_link(box).replace(f":{there}", f":{here}", 1), f"127.0.0.1:{there}")
        assert "<title>" in page
        assert "Ralph" in page
    finally:
        tunnel.terminate()
        tunnel.wait()
    eventually(lambda: not answers(there), 20)


def find_link(box: Box) -> str:
    found = re.search(r"http://127\.0\.0\.1:\S+", (box.home / "web.log").read_text(errors="replace"))
    return found[0] if found else ""


def fetch(link: str, host: str) -> str:
    request = urllib.request.Request(link, headers={"Host": host})
    deadline = time.monotonic() + 30
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
    while True:
        try:
            return str(opener.open(request, timeout=10).read().decode())
        except (urllib.error.URLError, ConnectionError) as error:
            assert not isinstance(error, urllib.error.HTTPError), error
            assert time.monotonic() < deadline
            time.sleep(0.5)


def answers(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"http://127.0.0.1:{port}/", timeout=5)
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, ConnectionError):
        return False
    return True

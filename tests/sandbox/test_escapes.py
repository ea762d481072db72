"""Attempts to get out of the sandbox, in a turn of a real run, and as root and as an ordinary user."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_place import Place

from ralph.supervisor import sandbox as sandbox_module
from ralph.supervisor.sandbox import Sandbox, read_only, writable

ESCAPES = Path(__file__).with_name("escapes.py")
NOBODY = 65534


@pytest.fixture
def listener(place: Place) -> Iterator[Path]:
    """A Unix socket with a path in the home directory."""
    before = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(place.home)
        server.bind("service.sock")
        os.chdir(before)
        server.listen(1)
        yield place.home / "service.sock"


def facts(place: Place, listener: Path) -> str:
    return json.dumps(
        {
            "home": str(place.home),
            "beside": str(place.root.parent),
            "state": str(place.home / ".local" / "state" / "ralph"),
            "pid": os.getpid(),
            "socket": str(listener),
        }
    )


class TestTurn:
    def test_every_attempt_is_refused(self, place: Place, listener: Path) -> None:
        program = shutil.copy(ESCAPES, place.home / "escapes.py")
        script = f"{sys.executable} -S -I {program} '{facts(place, listener)}' > found.json; touch done.txt"
        place.loop(script)
        assert find_escapes(place, (place.root / "found.json").read_text()) == []

    def test_a_check_cannot_leave_either(self, place: Place) -> None:
        """The agent writes the test that the engine runs."""
        place.loop(
            "echo 'touch ~/escaped .ralph/escaped; test -f done.txt' > test.sh; touch done.txt",
            until="`sh test.sh` passes",
            code=7,  # no judge accepted the test that the agent wrote
        )
        assert not (place.home / "escaped").exists()
        assert not (place.root / ".ralph" / "escaped").exists()

    def test_another_worktree_and_another_run_are_out_of_reach(self, place: Place, tmp_path: Path) -> None:
        place.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
        place.loop(
            f"echo x > {tmp_path}/other/README; git -C {tmp_path}/other commit -qam x; ls .ralph/runs > runs.txt; touch done.txt"
        )
        assert (tmp_path / "other" / "README").read_text() == "first\n"
        assert (place.root / "runs.txt").read_text().split() == [place.run.name]


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user; an ordinary user runs the tests above"
)
class TestOrdinaryUser:
    def test_every_attempt_is_refused(
        self, place: Place, listener: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
        if python is None:
            pytest.skip("no Python outside the home directory")
        monkeypatch.setattr(sandbox_module.os, "geteuid", lambda: NOBODY)
        shutil.copy(ESCAPES, place.root / "escapes.py")
        (place.root / ".ralph").mkdir()
        state = place.home / ".local" / "state" / "ralph"
        state.mkdir(parents=True)
        (state / "journal.key").write_text("key")
        for path in [tmp_path, *tmp_path.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        open_directories(tmp_path)
        isolated = Sandbox("write", hidden=(place.home / ".ssh", state))
        mounts = [writable(place.root), read_only(place.root / ".ralph"), read_only(place.root / ".git")]
        command = (python, "-S", "-I", "escapes.py", facts(place, listener))
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(place.home)}
        argv, inside = isolated.wrap(command, environment, place.root, mounts)
        done = subprocess.run(
            argv, env=inside, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=True
        )
        assert find_escapes(place, done.stdout) == []


def find_escapes(place: Place, output: str) -> list[str]:
    """The attempts that worked."""
    found = json.loads(output)
    # Below a private /tmp or /dev/shm, the directory beside the workspace is writable, and private too.
    found["write beside the workspace"] = not (place.root.parent / "escaped").exists()
    # The server gave the kernel a relative name, which says nothing about its directory; docs/sandbox.md names this.
    found.pop("connect to a socket outside")
    return [name for name, refused in found.items() if not refused]


def open_directories(path: Path) -> None:
    """Let other users pass through the directories above the one of the test."""
    for parent in path.parents:
        if parent.stat().st_uid == 0 and parent != Path("/") and "pytest" in str(parent):
            parent.chmod(0o755)


def test_links_that_an_agent_plants_lead_nowhere(place: Place) -> None:
    """What the engine reads, copies or mounts for later turns must be inside the project."""
    secret, victim = place.home / ".ssh" / "id_rsa", place.home / "victim"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("SECRETKEY\n")
    victim.mkdir()
    (place.home / ".gradle").mkdir()
    (place.home / ".gradle" / "gradle.properties").write_text("x=1\n")
    (place.root / "AGENTS.md").write_text("Use tabs.\n")
    (place.root / ".gitignore").write_text(".cache\n.env\nseen-*\n")
    (place.root / "ralph.yml").write_text("instructions: [AGENTS.md]\nworkspace: {share: [.cache]}\n")
    place.git("add", "-A")
    place.git("commit", "-qm", "settings")
    script = (
        'cat > /dev/null; n=$(ls -d seen-* 2> /dev/null | wc -l); cp "$RALPH_PROMPT_FILE" seen-$n 2> /dev/null || touch seen-$n;'
        " ln -sf ~/.ssh/id_rsa AGENTS.md; [ -e .cache ] || ln -s ~/victim .cache; echo x > .cache/planted;"
        ' rm -rf "$XDG_CACHE_HOME/gradle"; ln -s ~/victim "$XDG_CACHE_HOME/gradle"'
    )
    place.loop(script, "--max-iterations", "3", code=None)
    prompts = [path.read_text() for path in place.root.glob(".ralph/runs/*/turns/*/prompt.md")]
    assert len(prompts) > 1
    assert not any("SECRETKEY" in prompt for prompt in prompts)
    assert "AGENTS.md is a link that leads out of the project, so it is left out." in prompts[-1] + prompts[0]
    assert list(victim.iterdir()) == []


def test_a_file_that_leads_out_is_not_copied_into_a_worktree(place: Place) -> None:
    (place.home / "secret").write_text("SECRETKEY\n")
    (place.root / "ralph.yml").write_text("workspace: {copy: [.env]}\n")
    (place.root / ".gitignore").write_text(".env\n")
    place.git("add", "-A")
    place.git("commit", "-qm", "settings")
    (place.root / ".env").symlink_to(place.home / "secret")
    said = place.loop("touch done.txt", "--worktree", code=None)
    assert f".env leads out of the project, to {place.home / 'secret'}" in " ".join(said.split())
    assert not list(place.root.glob(".ralph/worktrees/*/.env"))


def test_the_prompt_on_record_cannot_be_changed_through_standard_input(place: Place) -> None:
    place.loop("(echo forged >> /dev/stdin); (: > /dev/stdin); touch done.txt")
    [prompt] = place.root.glob(".ralph/runs/*/turns/*/prompt.md")
    assert "forged" not in prompt.read_text()
    assert "work" in prompt.read_text()


def test_an_agent_cannot_plant_a_session(place: Place) -> None:
    place.loop("mkdir -p .ralph-sessions/261118-000000-evil; touch done.txt")
    assert not (place.root / ".ralph-sessions").exists()


@pytest.mark.parametrize(
    "name",
    [
        *(".config/vivaldi/x", ".vault-token", ".cargo/credentials.toml", "snap/firefox/x", ".pypirc", ".netrc"),
        *(".config/gh/hosts.yml", ".docker/config.json", ".config/pypoetry/auth.toml", ".cache/huggingface/token"),
    ],
)
def test_more_credentials_are_hidden(place: Place, name: str) -> None:
    path = place.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("SECRET\n")
    place.loop(f"cat ~/{name} > seen.txt; touch done.txt")
    assert (place.root / "seen.txt").read_text() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read it outside")
def test_root_does_not_hand_out_what_only_root_can_read(place: Place) -> None:
    place.loop("cat /etc/shadow > seen.txt; touch done.txt")
    assert (place.root / "seen.txt").read_text() == ""


def test_settings_of_package_managers_are_visible_without_their_tokens(place: Place) -> None:
    settings = place.home / ".npmrc"
    public = "registry=https://registry.example/\nfund=false\n"
    settings.write_text(f"{public}//registry.example/:_authToken=SECRET\nproxy=http://me:SECRET@proxy.example/\n")
    (place.home / ".yarnrc.yml").write_text("enableTelemetry: false\nnpmAuthToken: SECRET\n")
    place.loop("cat ~/.npmrc > seen.txt; cat ~/.yarnrc.yml > yarn.txt; touch done.txt")
    assert (place.root / "seen.txt").read_text() == public
    assert (place.root / "yarn.txt").read_text() == "enableTelemetry: false\n"
    assert "SECRET" in settings.read_text()


def test_the_user_can_show_the_tokens(place: Place) -> None:
    (place.home / ".npmrc").write_text("//registry.example/:_authToken=SECRET\n")
    own = place.home / ".config" / "ralph" / "config.yml"
    own.parent.mkdir(parents=True)
    own.write_text("sandbox: {visible: [~/.npmrc]}\n")
    place.loop("cat ~/.npmrc > seen.txt; touch done.txt")
    assert "SECRET" in (place.root / "seen.txt").read_text()

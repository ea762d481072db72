"""Which sandbox a run gets, and where the user reads that there is none."""

import os
import shutil
from pathlib import Path

import pytest
from sandbox_place import DONE, Place

AGENT = "touch done.txt"


@pytest.fixture
def without_bubblewrap(tmp_path: Path) -> dict[str, str]:
    """A PATH with everything except bubblewrap."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for entry in os.environ["PATH"].split(os.pathsep):
        for program in Path(entry).iterdir() if Path(entry).is_dir() else ():
            if program.name != "bwrap" and not (directory / program.name).exists():
                (directory / program.name).symlink_to(program)
    return {"PATH": str(directory)}


class TestDefault:
    def test_agents_are_isolated_if_that_works_here(self, place: Place) -> None:
        said = place.loop("touch done.txt; touch ~/escaped")
        assert not (place.home / "escaped").exists()
        assert "not isolated" not in said
        [started] = place.journal("run.started")
        assert started["sandbox"] == "write"

    def test_without_bubblewrap_the_run_says_how_to_get_it(
        self, place: Place, without_bubblewrap: dict[str, str]
    ) -> None:
        said = place.loop(AGENT, **without_bubblewrap)
        assert "note: not isolated: bubblewrap is not installed." in said
        if shutil.which("apt-get"):
            assert "sudo apt-get install bubblewrap" in said
        assert (place.root / "done.txt").exists()

    def test_a_run_that_requires_the_sandbox_is_refused_without_it(
        self, place: Place, without_bubblewrap: dict[str, str]
    ) -> None:
        said = place.loop(AGENT, "--sandbox", "require", code=2, **without_bubblewrap)
        assert "bubblewrap is not installed" in said
        assert not (place.root / "done.txt").exists()


class TestWhoDecides:
    def test_a_repository_cannot_switch_it_off(self, place: Place) -> None:
        (place.root / "ralph.yml").write_text("sandbox: off\n")
        place.loop("touch done.txt; touch ~/escaped")
        assert not (place.home / "escaped").exists()
        assert "`sandbox` has no effect here" in place.ralph("doctor", code=None)

    def test_the_users_own_settings_can(self, place: Place) -> None:
        settings = place.home / ".config" / "ralph" / "config.yml"
        settings.parent.mkdir(parents=True)
        settings.write_text("sandbox: off\n")
        place.loop("touch done.txt; touch ~/escaped")
        assert (place.home / "escaped").exists()

    def test_the_option_wins_over_the_settings(self, place: Place) -> None:
        settings = place.home / ".config" / "ralph" / "config.yml"
        settings.parent.mkdir(parents=True)
        settings.write_text("sandbox: {level: off}\n")
        place.loop("touch done.txt; touch ~/escaped", "--sandbox", "write")
        assert not (place.home / "escaped").exists()

    def test_the_user_can_open_it_for_directories(self, place: Place) -> None:
        settings = place.home / ".config" / "ralph" / "config.yml"
        settings.parent.mkdir(parents=True)
        (place.home / "shared").mkdir()
        settings.write_text("sandbox: {level: auto, writable: [~/shared], visible: [~/.ssh]}\n")
        said = place.loop("touch done.txt; cp ~/.ssh/id_ed25519 ~/shared/copy")
        assert (place.home / "shared" / "copy").read_text() == "private key\n"
        assert "your settings open the sandbox for ~/.ssh, ~/shared" in said

    def test_an_unknown_level_is_refused(self, place: Place) -> None:
        said = place.loop(AGENT, code=2, RALPH_SANDBOX="on")
        assert "'on' is not a sandbox level" in said
        assert "use auto, off, write, strict, require" in said


class TestScreens:
    def test_every_screen_says_that_a_run_is_not_isolated(self, place: Place) -> None:
        said = place.loop(AGENT, "--sandbox", "off")
        assert "note: not isolated: the sandbox is off (`--sandbox auto` turns it on)." in said
        assert "Sandbox: not isolated: the sandbox is off" in said
        assert "not isolated" in place.ralph("status")
        report = place.ralph("report")
        assert report.startswith("Not isolated: the sandbox is off")
        assert "| Sandbox | not isolated: the sandbox is off" in report
        assert "not isolated" in place.ralph("logs")

    def test_the_report_names_the_level(self, place: Place) -> None:
        place.loop(AGENT)
        assert "| Sandbox | write |" in place.ralph("report")

    def test_consent_says_what_an_agent_can_reach(self, place: Place) -> None:
        said = place.ralph("loop", "x", "--until", DONE, "--agent-command", place.agent(AGENT), code=2)
        assert "It cannot change other files." in said
        exposed = place.ralph(
            "loop", "x", "--until", DONE, "--agent-command", place.agent(AGENT), "--sandbox", "off", code=2
        )
        assert "every file that you can" in exposed


def test_doctor_tries_every_promise(place: Place) -> None:
    said = place.ralph("doctor", code=None)
    assert "ok   sandbox    agents cannot change your home directory" in said
    assert "ok   sandbox    agents cannot read your keys" in said
    assert "DOES NOT HOLD" not in said


def test_doctor_tries_the_promises_of_strict(place: Place) -> None:
    said = place.ralph("doctor", code=None, RALPH_SANDBOX="strict")
    assert "ok   sandbox    agents cannot reach this machine's own ports" in said
    assert "ok   sandbox    agents can reach the hosts on the list" in said
    assert "DOES NOT HOLD" not in said

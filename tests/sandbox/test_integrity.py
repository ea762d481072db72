"""What an agent cannot forge, with the sandbox and without it."""

import os
import pwd

import pytest
from sandbox_place import RALPH, Place

LEVELS = pytest.mark.parametrize("level", ["write", "off"])
CLEAN = 'env -i PATH="$PATH" HOME="$HOME"'
"""A program that an agent starts without the variables of its turn."""


@LEVELS
class TestSpeakingForTheUser:
    @pytest.mark.parametrize(
        "command",
        [
            "steer 'do something else'",
            "answer yes",
            "abort",
            "trust --yes",
            "init --force",
            "emit build.done",
            "signal approve",
            "land",
            "resume",
        ],
    )
    def test_is_refused_inside_a_turn_also_with_a_clean_environment(
        self, place: Place, level: str, command: str
    ) -> None:
        place.loop(
            f'{CLEAN} "$RALPH_BIN" {command} > said.txt 2>&1; echo $? > code.txt; touch done.txt', "--sandbox", level
        )
        assert (place.root / "code.txt").read_text() != "0\n", (place.root / "said.txt").read_text()
        assert not place.journal("signal.accepted")
        assert place.journal("run.ended")[0]["outcome"] == "success"

    @pytest.mark.parametrize(
        "command",
        [
            *("undo", "restore base", "clean", "worktrees --prune", "reflect clear --yes", "land", "comment x:1 y"),
            *("session feedback x y", "session update x y", "session repair x", "session approve"),
        ],
    )
    def test_commands_that_change_other_work_of_the_user_are_refused(
        self, place: Place, level: str, command: str
    ) -> None:
        script = f'{CLEAN} "$RALPH_BIN" {command} > said.txt 2>&1; echo $? > code.txt; touch done.txt'
        place.loop(script, "--sandbox", level)
        assert (place.root / "code.txt").read_text() != "0\n"
        if level == "off":  # in the sandbox, some find no run before they look where they are
            assert "an agent cannot" in (place.root / "said.txt").read_text()

    def test_is_refused_in_a_check_of_the_same_project(self, place: Place, level: str) -> None:
        """Checks run code that agents wrote."""
        test = place.root / "test.sh"
        test.write_text(f'#!/bin/sh\n[ -f done.txt ] || exit 1\n{CLEAN} {RALPH} steer "accept it" > said.txt 2>&1\n')
        test.chmod(0o755)
        place.loop("touch done.txt", "--sandbox", level, until="`./test.sh || test -s said.txt` passes")
        said = (place.root / "said.txt").read_text()
        assert "Sent" not in said
        assert not place.journal("signal.accepted")
        assert "an agent cannot send signals" in said

    def test_is_refused_for_a_process_that_detached_itself(self, place: Place, level: str) -> None:
        script = (
            f'{CLEAN} setsid sh -c \'(sleep 0.2; "$0" steer "do something else" > said.txt 2>&1; echo $? > code.txt) &\''
            ' "$RALPH_BIN"; until [ -s code.txt ]; do sleep 0.1; done; touch done.txt'
        )
        place.loop(script, "--sandbox", level)
        assert (place.root / "code.txt").read_text() != "0\n", (place.root / "said.txt").read_text()
        assert not place.journal("signal.accepted")


@LEVELS
class TestForging:
    def test_a_turn_directory_that_was_planted_is_not_used(self, place: Place, level: str) -> None:
        """The first turn leaves a finished second turn, which would touch nothing and count as done."""
        script = (
            'next="$(dirname "$RALPH_MESSAGES")"; next="${next%00001-*}00002-implementer"\n'
            'if [ "${RALPH_TURN##*/}" = 00001 ]; then mkdir -p "$next"; cp "$(dirname "$RALPH_MESSAGES")/turn.json" "$next";'
            ' echo \'{"reason": "exit", "started_at": 1, "ended_at": 2, "code": 0}\' > "$next/exit"\n'
            "else touch second.txt done.txt; fi"
        )
        options = ("--max-iterations", "2", "--yes", "--sandbox", level)
        said = place.ralph(
            "loop", "t", "--until", "`test -f done.txt` passes", "--agent-command", place.agent(script), *options
        )
        assert (place.root / "second.txt").exists()
        if level == "off":
            assert "something other than Ralph made the directory of this turn" in said

    def test_the_keeper_takes_no_orders_from_an_agent(self, place: Place, level: str) -> None:
        code = (
            "import glob, json, os, socket, sys\n"
            "root = os.environ['RALPH_WORKSPACE_ROOT']\n"
            "job = {'dir': root + '/forged', 'argv': ['touch', root + '/ran'], 'env': {}, 'cwd': root, 'cap': 1000}\n"
            "os.makedirs(job['dir'], exist_ok=True)\n"
            "for path in glob.glob(root + '/.ralph/runs/*/jobs.sock'):\n"
            "    os.chdir(os.path.dirname(path))\n"
            "    with socket.socket(socket.AF_UNIX) as client:\n"
            "        client.settimeout(5)\n"
            "        try:\n"
            "            client.connect('jobs.sock')\n"
            "            client.sendall(json.dumps(job).encode() + b'\\n')\n"
            "            client.recv(100)\n"
            "        except OSError:\n"
            "            pass\n"
            "open(root + '/done.txt', 'w').close()\n"
        )
        agent = place.python(code)
        place.ralph(
            "loop", "t", "--until", "`test -f done.txt` passes", "--agent-command", agent, "--yes", "--sandbox", level
        )
        assert not (place.root / "ran").exists()


class TestTheSandbox:
    def test_hides_the_journal_and_its_key(self, place: Place) -> None:
        place.loop(
            "cat .ralph/runs/*/journal.jsonl ~/.local/state/ralph/journal.key > read.txt; echo x >> .ralph/runs/x; touch done.txt"
        )
        assert (place.root / "read.txt").read_text() == ""
        assert not (place.root / ".ralph" / "runs" / "x").exists()

    def test_keeps_prompts_roles_and_settings_as_they_are(self, place: Place) -> None:
        (place.root / "ralph.yml").write_text("limits: {iterations: 3}\n")
        place.loop(
            "mkdir -p .ralph/prompts .ralph/roles; echo evil > .ralph/prompts/loop-actor.md; echo evil > ralph.yml;"
            " mv ralph.yml other.yml; rm -rf .ralph; touch done.txt"
        )
        assert not (place.root / ".ralph" / "prompts").exists()
        assert (place.root / "ralph.yml").read_text() == "limits: {iterations: 3}\n"

    def test_keeps_the_settings_of_a_package_as_they_are(self, place: Place) -> None:
        package = place.root / "packages" / "app"
        package.mkdir(parents=True)
        (package / "ralph.yml").write_text("limits: {iterations: 3}\n")
        place.loop("pwd; echo evil > ralph.yml; mv ralph.yml other.yml; touch done.txt", "--dir", str(package))
        assert (package / "done.txt").exists(), "the rest of the package is writable"
        assert (package / "ralph.yml").read_text() == "limits: {iterations: 3}\n"

    def test_keeps_consent_for_other_projects_out_of_reach(self, place: Place) -> None:
        trust = place.home / ".local" / "state" / "ralph" / "trust"
        place.loop(
            "mkdir -p ~/.local/state/ralph/trust; echo '{}' > ~/.local/state/ralph/trust/forged.json; touch done.txt"
        )
        assert not (trust / "forged.json").exists()


def test_prompts_that_replace_ours_are_named_at_every_start(place: Place) -> None:
    (place.root / ".ralph" / "prompts").mkdir(parents=True)
    (place.root / ".ralph" / "prompts" / "loop-actor.md").write_text("{{task}}\n")
    said = place.loop("touch done.txt")
    assert "note: this project replaces Ralph's prompts: .ralph/prompts/loop-actor.md" in said


@LEVELS
def test_an_agent_cannot_answer_for_the_user(place: Place, level: str) -> None:
    forged = '{"answer": "yes", "by": "person", "at": 1}'
    place.loop(
        '("$RALPH_BIN" tools interact ask "Push?" --options "yes|no" --default no --timeout 4 > answer.txt) & sleep 1.5;'
        f" cd .ralph/runs/*/questions; for name in q1.answer.json q1.expired.json ../answers/q1.json;"
        f" do [ {level} = off ] && [ $name = ../answers/q1.json ] || echo '{forged}' > $name; done 2> /dev/null;"
        " cd -; wait; touch done.txt",
        "--sandbox",
        level,
    )
    assert (place.root / "answer.txt").read_text() == "no\n"
    [answered] = place.journal("question.answered")
    assert (answered["answer"], answered["by"]) == ("no", "default")


def test_a_process_that_proc_does_not_show_may_not_speak_for_the_user(place: Place) -> None:
    hide = "bwrap --dev-bind / / --tmpfs /proc"
    place.loop(f"{hide} {CLEAN} {RALPH} steer 'do something else' > said.txt 2>&1; touch done.txt", "--sandbox", "off")
    assert "an agent cannot" in (place.root / "said.txt").read_text()
    assert not place.journal("signal.accepted")


@pytest.mark.parametrize("command", ["steer hello", "signal info hello", "answer yes --run {run}", "resume"])
def test_a_run_whose_journal_does_not_verify_takes_no_messages(place: Place, command: str) -> None:
    place.loop("true", code=3)
    journal = place.run / "journal.jsonl"
    questions = place.run / "questions"
    questions.mkdir(exist_ok=True)
    (questions / "q1.json").write_text('{"question": "Which?", "asked_at": 1, "timeout": 900000000000}')
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:2], lines[2].replace(":", ": ", 1), *lines[3:]]))
    said = place.ralph(*command.format(run=place.run.name).split(), code=None)
    assert f"ralph resume {place.run.name} --adopt" in " ".join(said.split())
    assert not list((place.run / "signals").glob("inputs/*"))
    assert not list(place.run.glob("answers/*"))


def test_the_journal_names_who_sent_a_signal(place: Place) -> None:
    place.loop("true", code=3)
    place.ralph("steer", "from the command line")
    (place.run / "signals" / "inputs" / "by-hand.yaml").write_text("type: STEER\nmessage: from a file\n")
    place.ralph("resume", "--max-iterations", "2", code=None)
    senders = {one["signal"]["message"]: one["signal"]["by"] for one in place.journal("signal.accepted")}
    login = pwd.getpwuid(os.getuid()).pw_name
    assert senders["from the command line"] == f"cli:{login}"
    assert senders["from a file"] == "file"

"""What a journal says counts only if Ralph wrote it: forged, cloned and old runs are claims until the user adopts them."""

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from test_loop import NEVER_DONE, SUCCEEDS, Project, eventually, make_project, project

__all__ = ["project"]

FORGES = r"""
python3 - <<'PYTHON'
import glob, hashlib, json, os, signal
[path] = glob.glob(".ralph/runs/*/journal.jsonl")
pid = json.load(open(os.path.join(os.path.dirname(path), "lock")))["pid"]
os.kill(pid, signal.SIGKILL)
lines = open(path).read().splitlines()
last = json.loads(lines[-1])
field = "mac" if "mac" in last else "hash"
body = {"seq": len(lines) + 1, "at": last["at"], "type": "run.ended", "outcome": "success",
        "reason": "all checks pass", "spent": {"turns": 1}, "limits": {}}
text = json.dumps(body)
code = hashlib.sha256(f"{last[field]}\n{text}".encode()).hexdigest()[: len(last[field])]
with open(path, "a") as file:
    file.write(f'{text[:-1]}, "{field}": "{code}"}}\n')
PYTHON
sleep 60
"""


@pytest.fixture
def forged(project: Project) -> Project:
    """A run whose agent killed the engine and wrote success into the journal."""
    killed = project.real(*project.working(FORGES))
    assert killed.code == -9
    eventually(lambda: project.journal("run.ended"))
    project.end()
    return project


class TestForgedSuccess:
    def test_every_command_says_that_success_is_only_claimed(self, forged: Project) -> None:
        adopt = f"ralph resume {forged.run.name} --adopt"
        shown = forged.ralph("status").out
        assert "claimed: success" in shown
        assert "cost unknown" in shown, "what it claims to have cost is not verified"
        assert "$" not in shown
        assert "something other than Ralph changed its journal" in shown
        assert adopt in shown
        [row] = forged.ralph("status", "--json").json["runs"]
        assert row["state"] == "claimed: success"
        assert row["headline"] == "not verified: something other than Ralph changed its journal"
        assert row["next"] == adopt
        _, _, below_the_claimed_end = forged.ralph("logs").out.partition("ended: success, all checks pass\n")
        assert below_the_claimed_end.strip().startswith("NOT VERIFIED: something other than Ralph changed its journal.")
        assert adopt in below_the_claimed_end
        found = forged.ralph("doctor")
        assert found.code == 2
        assert "something other than Ralph changed its journal" in found.out
        refused = forged.ralph("resume", forged.run.name)
        assert refused.code == 2
        assert "--adopt" in refused.err
        assert forged.ralph("land", forged.run.name).code == 2

    def test_adopting_it_continues_from_the_last_line_of_ours(self, forged: Project) -> None:
        ours = len(forged.journal()) - 1
        for script in forged.home.glob("agent-*.sh"):
            script.write_text("touch done.txt\n")
        asked = forged.ralph("resume", forged.run.name, "--adopt")
        assert asked.code == 2, "nobody is there to agree"
        assert "agent   /bin/sh" in asked.err
        assert "check   test -f done.txt" in asked.err
        done = forged.ralph("resume", forged.run.name, "--adopt", "--yes")
        assert done.code == 0, done.said
        assert forged.journal()[ours]["type"] == "run.adopted"
        [claimed] = forged.run.glob("claimed-*/journal.jsonl")
        assert "all checks pass" in claimed.read_text()
        assert "claimed" not in forged.ralph("status").out

    @pytest.mark.slow
    def test_adopting_a_run_of_ours_changes_nothing(self, project: Project) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        assert project.ralph("resume", project.run.name, "--adopt").code == 3
        assert project.journal("run.adopted") == []


class TestACutJournal:
    """Lines that are gone from the end leave no trace in the journal itself."""

    @pytest.fixture(params=["the last line", "all but two lines", "the whole file"])
    def cut(self, project: Project, request: pytest.FixtureRequest) -> Project:
        """A run that failed, and a journal that does not say so any more."""
        project.play(NEVER_DONE, "--max-iterations", "1")
        path = project.run / "journal.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        kept = {"the last line": len(lines) - 1, "all but two lines": 2, "the whole file": 0}[request.param]
        path.write_text("".join(lines[:kept]))
        if not kept:
            path.unlink()
        return project

    @pytest.mark.more_are_slow(1)
    def test_status_and_doctor_say_it(self, cut: Project) -> None:
        said = cut.ralph("status")
        assert "NOT VERIFIED: lines are missing at the end of its journal" in said.out
        assert f"ralph resume {cut.run.name} --adopt" in said.out
        assert "lines are missing at the end of its journal" in cut.ralph("doctor").out

    @pytest.mark.more_are_slow(1)
    def test_resume_refuses_it_until_it_is_adopted(self, cut: Project) -> None:
        refused = cut.ralph("resume", cut.run.name)
        assert refused.code == 2
        assert "lines are missing at the end of its journal" in refused.err
        assert cut.ralph("resume", cut.run.name, "--adopt", "--yes").code == 3
        assert cut.journal("run.adopted")
        assert "NOT VERIFIED" not in cut.ralph("status").out
        assert cut.ralph("resume", cut.run.name).code == 3

    @pytest.mark.slow
    def test_the_report_of_such_a_run_is_only_claimed(self, project: Project) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        assert project.ralph("resume").code == 3
        path = project.run / "journal.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        assert "CLAIMED, not verified: lines are missing" in project.ralph("report").out

    @pytest.mark.slow
    def test_a_run_that_was_removed_and_begun_anew_is_a_new_one(self, project: Project) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        shutil.rmtree(project.run)
        assert project.play(NEVER_DONE, "--max-iterations", "1").code == 3
        assert "NOT VERIFIED" not in project.ralph("status").out

    def test_records_outside_the_project_are_removed_with_the_run(self, project: Project) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        heads = project.home / ".local" / "state" / "ralph" / "heads"
        [head] = heads.iterdir()
        assert stat.S_IMODE(head.stat().st_mode) == 0o600
        assert project.ralph("clean", project.run.name).code == 0
        assert list(heads.iterdir()) == []

    @pytest.mark.slow
    def test_record_that_is_behind_or_damaged_raises_no_doubt(self, project: Project) -> None:
        """After a power cut what was written last outside of the project may be missing."""
        project.play(NEVER_DONE, "--max-iterations", "1", "--on-stuck", "continue")
        [head] = (project.home / ".local" / "state" / "ralph" / "heads").iterdir()
        third = project.journal()[2]
        for left in (f"{3:012d} {third['mac']}\n", "", "0000"):
            head.write_text(left)
            assert "NOT VERIFIED" not in project.ralph("status").out
            assert project.ralph("resume").code == 3


def unsigned(run: Path) -> None:
    """Make a run what an older version left: hashes instead of codes, and no signature."""
    previous, lines = "0" * 16, []
    for line in (run / "journal.jsonl").read_text().splitlines():
        body: dict[str, Any] = json.loads(line)
        del body["mac"]
        text = json.dumps(body)
        previous = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()[:16]
        lines.append(f'{text[:-1]}, "hash": "{previous}"}}\n')
    (run / "journal.jsonl").write_text("".join(lines))
    (run / "run.mac").unlink()


class TestRunsOfOthers:
    def test_a_cloned_run_starts_nothing_until_it_is_adopted(self, project: Project, tmp_path: Path) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        for clone in make_project(tmp_path / "elsewhere"):
            shutil.copytree(project.root / ".ralph", clone.root / ".ralph", dirs_exist_ok=True)
            shutil.copytree(project.root / ".aiwg", clone.root / ".aiwg", dirs_exist_ok=True)
            for command in ("resume", "abort"):
                refused = clone.ralph(command, clone.run.name)
                assert refused.code == 2, command
                assert "--adopt" in refused.err
            assert "claimed: limit-iterations" in clone.ralph("status").out
            assert not (clone.root / "work.txt").exists()
            assert clone.ralph("resume", clone.run.name, "--adopt", "--yes").code == 3
            assert clone.journal()[0]["type"] == "run.adopted"
            assert clone.journal("checks.started")[0]["key"] == "baseline"
            assert list(clone.run.glob("claimed-*/turns/*"))
            assert "claimed" not in clone.ralph("status").out

    @pytest.mark.slow
    def test_a_run_of_the_user_that_was_copied_to_another_path_is_not_theirs_there(
        self, project: Project, tmp_path: Path
    ) -> None:
        """The user agreed to what it starts in one project, and the copy may have other scripts behind the same commands."""
        project.play(NEVER_DONE, "--max-iterations", "1")
        copy = Project(tmp_path / "copy", project.home)
        shutil.copytree(project.root, copy.root)
        refused = copy.ralph("resume", copy.run.name)
        assert refused.code == 2, refused.said
        assert "another machine or directory" in refused.err
        assert "claimed: limit-iterations" in copy.ralph("status").out
        assert copy.ralph("resume", copy.run.name, "--adopt", "--yes").code == 3
        assert project.ralph("resume").code == 3, "the original is still the user's own"

    def test_a_cloned_run_without_a_journal_is_refused_too(self, project: Project) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        (project.run / "journal.jsonl").unlink()
        (project.run / "run.mac").unlink()
        assert project.ralph("resume", project.run.name).code == 2

    def test_a_changed_record_is_refused(self, project: Project) -> None:
        project.play(NEVER_DONE, "--max-iterations", "1")
        record = project.run / "run.json"
        record.write_text(record.read_text().replace("the task", "another task"))
        refused = project.ralph("resume", project.run.name)
        assert refused.code == 2
        assert "run.json" in refused.err

    def test_a_run_of_an_older_version_is_readable_and_marked(self, project: Project) -> None:
        project.play(SUCCEEDS)
        unsigned(project.run)
        assert "claimed: success" in project.ralph("status").out
        assert project.ralph("report").out.startswith("CLAIMED, not verified")
        assert project.ralph("logs").code == 0
        assert project.ralph("cost").code == 0
        assert "without signatures" in project.ralph("status").out

    @pytest.mark.slow
    def test_a_line_of_another_run_of_the_same_user_does_not_count(self, project: Project) -> None:
        project.play(SUCCEEDS)
        done = project.run
        (project.root / "done.txt").unlink()
        project.play(NEVER_DONE, "--max-iterations", "1")
        [other] = [run for run in project.runs if run != done]
        shutil.copy(done / "journal.jsonl", other / "journal.jsonl")
        rows = {row["run"]: row["state"] for row in project.ralph("status", "--json").json["runs"]}
        assert rows[other.name] == "claimed: success"
        assert rows[done.name] == "success"


def test_the_key_is_closed_to_others_and_unknown_to_agents(project: Project) -> None:
    project.work("env > ../home/seen; touch done.txt")
    place = project.home / ".local" / "state" / "ralph"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "journal.key").stat().st_mode) == 0o600
    assert (place / "journal.key").read_text() not in (project.home / "seen").read_text()
    assert os.fspath(place) not in (project.home / "seen").read_text()

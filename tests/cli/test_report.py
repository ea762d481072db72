"""`ralph report`: the newest completion report, and the list of all."""

import time

import pytest
from test_loop import NEVER_DONE, SUCCEEDS, Project, project  # noqa: F401 - the fixture


def test_there_is_none_yet(project: Project) -> None:  # noqa: F811
    done = project.ralph("report")
    assert (done.code, "ralph loop" in done.err) == (2, True)
    assert project.ralph("report", "--list", "--json").json["reports"] == []
    assert "No run" in project.ralph("report", "--list").out
    assert project.ralph("report", "nope").code == 2


@pytest.mark.slow
def test_the_newest_report_of_a_run_that_ended_more_than_once(project: Project) -> None:  # noqa: F811
    project.play(NEVER_DONE, "--max-iterations", "1")
    first = project.ralph("report").out
    assert "limit-iterations" in first
    project.ralph("resume")
    done = project.ralph("report", "--json").json
    assert (done["run"], done["outcome"]) == (project.run.name, "limit-iterations")
    assert done["text"] == (project.root / done["path"]).read_text()
    listed = project.ralph("report", "--list", "--json").json["reports"]
    assert len(listed) == 2 and listed[1]["path"] == done["path"] != listed[0]["path"]
    (project.root / done["path"]).unlink()
    assert project.ralph("report", "--json").json["path"] == listed[0]["path"]


def test_a_report_that_was_edited_later_is_marked(project: Project) -> None:  # noqa: F811
    project.play(NEVER_DONE, "--max-iterations", "1")
    path = project.root / project.ralph("report", "--json").json["path"]
    assert "CHANGED" not in project.ralph("report").out
    path.write_text(path.read_text().replace("limit-iterations", "success"))
    shown = project.ralph("report").out
    assert "CHANGED after the run" in shown and "ended as limit-iterations" in shown


@pytest.mark.slow
def test_each_run_has_its_own(project: Project) -> None:  # noqa: F811
    project.play(NEVER_DONE, "--max-iterations", "1")
    (first,) = (run.name for run in project.runs)
    while first.startswith(time.strftime("%y%m%d-%H%M%S")):
        time.sleep(0.05)
    project.play(SUCCEEDS, until="`ls | grep -q ^done`")
    (second,) = (run.name for run in project.runs if run.name != first)
    assert "success" in project.ralph("report").out
    assert "limit-iterations" in project.ralph("report", first).out
    lines = project.ralph("report", "--list").out.splitlines()
    assert [(first in lines[0], "limit-iterations" in lines[0]), (second in lines[1], "success" in lines[1])] == [
        (True, True)
    ] * 2
    (project.root / ".ralph" / "runs" / second / "journal.jsonl").write_bytes(b"\xff[\n")
    assert "limit-iterations" in project.ralph("report").out, "a run with a broken journal is passed over"
    done = project.ralph("report", second)
    assert (done.code, "has no report" in done.err) == (2, True)


def test_only_reports_are_printed(project: Project) -> None:  # noqa: F811
    project.play(NEVER_DONE, "--max-iterations", "1")
    [report] = (project.root / ".aiwg" / "ralph").glob("completion-*.md")
    secret = project.home / "secret"
    secret.write_text("precious\n")
    report.unlink()
    report.symlink_to(secret)
    done = project.ralph("report")
    assert (done.code, "precious" in done.said) == (2, False)
    report.unlink()
    journal = project.run / "journal.jsonl"
    journal.write_text(journal.read_text().replace(report.name, "completion-x/../../../../home/secret.md"))
    assert "precious" not in project.ralph("report").said

"""`ralph export --html`: one page with everything that a reader wants to know about a run."""

import html
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_loop import SUCCEEDS, Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


def test_a_run_is_one_page_with_evidence_diff_timeline_and_cost(project: Project) -> None:
    assert project.play(SUCCEEDS).code == 0
    run = project.run.name
    done = project.ralph("export", run, "--html")
    assert done.code == 0, done.err
    assert f"Wrote ralph-{run}.html" in done.out
    page = (project.root / f"ralph-{run}.html").read_text()
    text = html.unescape(page)
    for words in (
        "1 / 1 check passed",
        "test -f done.txt",
        "fixed by this run",
        "done.txt",
        "Checks in iteration 1: 1 / 1 passed",
        "Turn 1, implementer: finished",
        "Made the file",
        "The run ended: success",
        "$0.01",
        "Proven",
    ):
        assert words in text, words
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")


def test_the_page_can_be_printed_and_is_not_replaced_by_accident(project: Project) -> None:
    assert project.play(SUCCEEDS).code == 0
    (project.root / "mine.html").write_text("mine")
    refused = project.ralph("export", "--html", "-o", "mine.html")
    assert (refused.code, "mine.html already exists" in refused.err, "--force" in refused.err) == (2, True, True)
    assert (project.root / "mine.html").read_text() == "mine"
    replaced = project.ralph("export", "--html", "-o", "mine.html", "--force", "--json").json
    assert (replaced["path"], replaced["run"]) == ("mine.html", project.run.name)
    printed = project.real("export", "--html", "-o", "-")
    assert printed.out.startswith("<!doctype html>") and printed.out.rstrip().endswith("</html>")
    for arguments, what in (
        (("export",), "there is no format"),
        (("export", "--html", "-o", "."), "is a directory"),
        (("export", "--html", "-o", "no/such/x.html"), "there is no directory no/such"),
        (("export", "--html", "-o", "-", "--json"), "-o - and --json cannot be used together"),
        (("export", "nothing", "--html"), "is not a run id"),
    ):
        wrong = project.ralph(*arguments)
        assert (wrong.code, what in wrong.err + wrong.out) == (2, True), wrong


@pytest.mark.slow
def test_a_run_without_snapshots_says_why_there_is_no_diff(project: Project) -> None:
    assert project.play(SUCCEEDS, "--no-snapshots").code == 0
    page = project.real("export", "--html", "-o", "-").out
    assert "There is no diff" in page and "it was started without snapshots" in page

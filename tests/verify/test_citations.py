"""What a report cites has to be there."""

from pathlib import Path

import pytest

from ralph.core.checks import Check, CheckStatus
from ralph.verify.citations import fault_of
from ralph.verify.runner import look

LENGTHS = {"src/app.py": 10, "Makefile": 3}


def fault(text: str) -> str:
    return fault_of(text, "out/report.md", LENGTHS.get)


@pytest.mark.parametrize(
    "text",
    [
        "See `src/app.py:10`.",
        "See `src/app.py:2-10` and `./Makefile:1`, served at `localhost:8080`, `127.0.0.1:80` and `http://x.org:443`.",
        "Intro\n### Major: it breaks\nat `src/app.py:1`\n### Minor: `Makefile:3` is odd\n",
        "```\n`gone.py:1`\n### no heading\n```\n`src/app.py:1`",
    ],
)
def test_lines_that_exist(text: str) -> None:
    assert fault(text) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it cites no line"),
        ("`src/app.py:1`\n### One\nIt listens on `localhost:8080`.", "`### One` cites no line"),
        ("All is well, see src/app.py:3", "it cites no line"),
        ("`src/app.py:11`", "src/app.py:11: the file has 10 lines"),
        ("`src/app.py:0`", "src/app.py:0: the file has 10 lines"),
        ("`src/app.py:9-4`", "src/app.py:9-4: the file has 10 lines"),
        ("`src/gone.py:1` and `src/app.py:1`", "src/gone.py:1: there is no such file"),
        ("`../../etc/passwd:1`", "../../etc/passwd:1: there is no such file"),
        ("### Major: it breaks\nsomewhere\n### Minor: this\n`src/app.py:1`", "`### Major: it breaks` cites no line"),
        ("`out/report.md:1`", "it cites what is in out/ itself"),
        (" ".join(f"`gone{number}.py:1`" for number in range(7)), "and 2 more"),
    ],
)
def test_what_is_wrong_with_them_is_told(text: str, told: str) -> None:
    assert told in fault(text)


def test_a_report_at_the_top_proves_nothing_either() -> None:
    lengths = {**LENGTHS, "report.md": 9}
    assert fault_of("See `./report.md:1`.", "report.md", lengths.get) == "it cites itself"
    assert fault_of("See `Makefile:1`.", "report.md", lengths.get) == ""


def test_files_are_looked_at_in_the_workspace_alone(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "out").mkdir(parents=True)
    (tmp_path / "secret").write_text("one\n")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "app.py").write_text("one\ntwo\n")
    check = Check(path="out/report.md", cites=True)
    assert look(root, check) == (CheckStatus.FAILED, "out/report.md does not exist")
    report = root / "out" / "report.md"
    report.write_text("`app.py:2`")
    assert look(root, check) == (CheckStatus.PASSED, "")
    for text, told in (("`link:1`", "link:1: there is no such file"), ("`out:1`", "out:1: there is no such file")):
        report.write_text(text)
        assert look(root, check) == (CheckStatus.FAILED, f"out/report.md: {told}")

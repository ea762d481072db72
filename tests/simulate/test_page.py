"""The page about simulated runs shows what the command really prints; `RALPH_WRITE_PAGES=1` writes it anew."""

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from ralph.cli.main import cli
from ralph.simulate.profile import Profile, parse, shipped

PAGE = Path(__file__).parents[2] / "docs" / "simulate.md"
BLOCK = re.compile(r"```console\n\$ ralph (.*)\n([^`]*(?:`[^`]+`[^`]*)*)```")


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()

    def shown(found: re.Match[str]) -> str:
        done = CliRunner().invoke(cli, shlex.split(found[1]), env={"HOME": str(tmp_path)}, catch_exceptions=False)
        return f"```console\n$ ralph {found[1]}\n{done.output}```"

    written, count = BLOCK.subn(shown, text)
    if os.environ.get("RALPH_WRITE_PAGES"):
        PAGE.write_text(written)
    assert count == 4
    assert text == written, "the page is out of date: RALPH_WRITE_PAGES=1 pytest tests/simulate/test_page.py"


def test_the_page_knows_every_agent_and_every_key() -> None:
    page = PAGE.read_text()
    assert [name for name in shipped() if f"| `{name}` |" not in page] == []
    yaml = page.partition("```yaml\n")[2].partition("```")[0]
    assert (
        parse(yaml, "page")
        == parse(shipped()["competent"], "competent")
        == Profile(about="works well and errs now and then")
    )
    assert [key for key in Profile.model_fields if f"{key}:" not in yaml] == []

"""What the checks run, followed through recipes, scripts and pipelines: it may ask for more, never for less."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import FileChange, finding, is_ignored, is_test_path, language_of
from ralph.verify.guards.commands import NEUTRAL, eased, lines_of, lost
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.settings import settings_of

_PIPELINE = re.compile(
    r"(^|/)\.(github/workflows|circleci|buildkite|woodpecker)/"
    r"|(^|/)(\.gitlab-ci\.ya?ml|\.travis\.ya?ml|azure-pipelines\.ya?ml|Jenkinsfile|bitbucket-pipelines\.yml|\.drone\.yml)$"
)
_RECIPES = re.compile(r"(^|/)(GNU)?([Mm]akefile|[Jj]ustfile)$|\.mk$")
_SHELL = re.compile(r"\.(sh|bash|zsh)$|(^|/)(\.husky/|Dockerfile|noxfile\.py$)")
_IDLE = re.compile(r"(?:echo\b.*|true|:|exit 0|node -e .*exit\(0\).*)$")
_FAILS = re.compile(r"\bassert\b|\braise\b|\bthrow\b|exit\s*\((?!\s*0?\s*\))|\bfail\w*\(|check=True|returncode")
_HOOK = re.compile(r"pytest_(?!addoption|generate_tests|make_parametrize_id|report_header)\w+$")
_ALTERS = re.compile(
    r"\boutcome\b|exitstatus|wasxfail|\bskip\b|\bxfail\b|deselect|items \[ : \]|items \. (?:clear|remove|pop)|force_result|longrepr|_exit\b|sys \. exit|"
    r"return True|del items|testsfailed|option \. (?:keyword|markexpr|deselect|ignore)|excinfo ="
)
_SHADOW = re.compile(r"^(?:src/|lib/|tests?/)?(?:pytest|unittest|_pytest|nose|jest|vitest|mocha|assert|sitecustomize|usercustomize)(?:/__init__|/index)?\.(?:py|js|ts)$")  # fmt: skip


def verifier_findings(work: Comparison) -> Iterator[Finding]:
    """All findings about what the checks run."""
    yield from _Verifier(work).findings()
    yield from _hooks(work)


@dataclass(frozen=True)
class _Verifier:
    work: Comparison

    @cached_property
    def files(self) -> list[FileChange]:
        return [change for change in self.work.files if not is_ignored(change.path) and change.old != change.new]

    @cached_property
    def before(self) -> _Tree:
        return _Tree(
            {**self.work.unchanged, **{c.renamed_from or c.path: c.old for c in self.files if c.old is not None}}
        )

    @cached_property
    def now(self) -> _Tree:
        return _Tree({**self.work.unchanged, **{c.path: c.new for c in self.files if c.new is not None}})

    def findings(self) -> Iterator[Finding]:
        if not self.files:
            return
        for command in self.work.checks:
            yield from self._compared(command)
        yield from self._pipelines()
        reached = frozenset(self.before.reached)
        for change in self.files:
            path, old = change.renamed_from or change.path, change.old
            if old is None and _SHADOW.search(path):
                sentence = f"{path} stands in the place of a test framework."
                yield finding(Rule.VERIFIER_EDITED, path, 1, sentence)
            elif old is not None and path in reached:
                yield from self._code(change, old) if language_of(path) else ()
            elif _SHELL.search(path):
                yield from self._script(change)

    def _compared(self, command: str) -> Iterator[Finding]:
        """A command of the checks before and now."""
        was, now = self.before.run_by([command]), self.now.run_by([command])
        if was != now:
            is_idle = now == [command] or all(map(_IDLE.match, now))
            gone = was if is_idle else [step.text for step in lost(was, now)]
            yield from self._edited([*eased(was, now), *gone], f"the check `{command[:60]}`", self.files)

    def _pipelines(self) -> Iterator[Finding]:
        """All pipelines together, for jobs move between them."""
        files = [c for c in self.files if _PIPELINE.search(c.path) or _PIPELINE.search(c.renamed_from or "")]
        was = self.before.run_by([line for c in files for line in lines_of(c.old or "")])
        now = self.now.run_by([line for c in files for line in lines_of(c.new or "")])
        gone = [step.text for step in lost(was, now) if step.is_known]
        yield from self._edited(
            [*eased(was, now), *gone, *sorted(_events(was) - _events(now))], "which runs checks", files
        )

    def _code(self, change: FileChange, old: str) -> Iterator[Finding]:
        """A script of the checks that is a program: the ways in which it can fail count."""
        text = change.new or ""
        gone = [step.text for step in lost(lines_of(old), lines_of(text)) if step.is_known]
        if len(_FAILS.findall(text)) < len(_FAILS.findall(old)):
            gone += [line.strip() for line in old.splitlines() if _FAILS.search(line) and line not in text]
        yield from self._edited(gone, "which the checks run", [change])

    def _script(self, change: FileChange) -> Iterator[Finding]:
        """A script of which it is not known that checks run it."""
        was, now = lines_of(change.old or ""), lines_of(change.new or "")
        for text in eased(was, now) if change.new is not None else ():
            sentence = f"A failure in {change.path} no longer counts: `{text[:100]}`."
            yield finding(Rule.ERROR_SWALLOWED, change.path, _line_of(change.new, text), sentence, text)

    def _edited(self, texts: Sequence[str], what: str, files: Sequence[FileChange]) -> Iterator[Finding]:
        for text in texts[:1]:
            holds = (file for file in files if text in " ".join(f"{file.new} {file.old}".split()))
            file = next(holds, files[0])
            sentence = f"{file.path} asks for less than before ({what}): see `{text[:100]}`."
            yield finding(Rule.VERIFIER_EDITED, file.path, _line_of(file.new, text), sentence, text)


def _hooks(work: Comparison) -> Iterator[Finding]:
    """Hooks of pytest that decide what a result is; to run slow tests only on request is a known way."""
    marked = {
        mark
        for unit in work.fresh
        if unit.is_test and unit in work.origin
        for mark in re.findall(r"mark \. (\w+)", unit.head_text)
    }
    for unit in work.fresh:
        if _HOOK.match(unit.name) and _ALTERS.search(unit.body_text):
            on_request = "getoption (" in unit.text and ". keywords" in unit.text
            on_request = on_request and not marked & set(re.findall(r'"(\w+)"', unit.text))
            sentence = f"The hook {unit.name} in {unit.path} alters what tests report."
            yield finding(Rule.VERIFIER_EDITED, unit.path, unit.line, sentence, unit.text, warn=on_request)


def _events(lines: list[str]) -> set[str]:
    """The events that start a pipeline."""
    heads = (line for line in lines if re.match(r"on:|(push|pull_request):?", line))
    return {word for line in heads for word in re.findall(r"\b(push|pull_request)\b", line)}


def _line_of(text: str | None, wanted: str) -> int:
    lines = (text or "").splitlines()
    return next((number for number, line in enumerate(lines, 1) if wanted and wanted in " ".join(line.split())), 1)

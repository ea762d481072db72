"""What the checks run: scripts, recipes, CI and hooks that were changed so that they ask less."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import FileChange, finding, is_ignored, is_test_path
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.config import flags_loosened
from ralph.verify.guards.settings import settings_of

_CI = re.compile(
    r"(^|/)\.(github/workflows|circleci|buildkite|woodpecker)/|(^|/)(\.gitlab-ci\.ya?ml|\.travis\.ya?ml|azure-pipelines\.ya?ml|Jenkinsfile|bitbucket-pipelines\.yml|\.drone\.yml)$"
)
_TRIGGER = re.compile(r"\b(push|pull_request|merge_request_event)\b")
_RECIPES = re.compile(r"(^|/)(GNU)?([Mm]akefile|[Jj]ustfile)$|\.mk$")
_SCRIPT = re.compile(
    r"\.(sh|bash|zsh|ps1|bat)$|(^|/)(scripts?|ci|tools?|bin|hack|\.ci|\.husky|dev)/|(check|verify|test|lint|ci|smoke|e2e)[\w-]*\.\w+$"
)
_SHELL = re.compile(r"\.(sh|bash|zsh)$|(^|/)(\.husky/|Dockerfile|tox\.ini$|noxfile\.py$)")
_RUNS_CHECKS = re.compile(
    r"\b(pytest|unittest|tox|nox|npm (?:run )?(?:test|lint|check)|npm ci|yarn (?:test|lint)|pnpm (?:test|lint)|jest|vitest|mocha|eslint|tsc|go (?:test|vet)|golangci-lint|staticcheck|"
    r"cargo (?:test|clippy|check|fmt)|mvn|mvnw|gradlew?|make \w*(?:test|check|lint)|ruff|flake8|mypy|pylint|pyright|coverage|bandit|prettier|playwright|check\w*\.(?:sh|py)|verify\w*\.(?:sh|py)|run_tests\S*)\b"
)
_NEUTRAL = re.compile(
    r"\|\|\s*(?:true|:|exit 0|echo\b)|;\s*(?:true|exit 0|:)\s*(?:$|[\"'])|&\s*exit 0|^\s*set \+\w*e|(?:^|\s)exit 0\s*$|continue-on-error:\s*true|allow_failure:\s*true|^\s*if:\s*(?:\$\{\{ *)?[\"']?false|"
    r"trap\s.*exit 0|--exit-zero|when:\s*(?:manual|never)|set -\w*n\b"
)
_IDLE = re.compile(r"^(?:echo\b.*|true|:|exit 0|node -e .*exit\(0\).*)$")
_HOOK = re.compile(
    r"pytest_(?:runtest|collection|sessionfinish|ignore_collect|pyfunc_call|report_teststatus|exception_interact|configure|cmdline_main|itemcollected|deselected|fixture_post_finalizer|unconfigure|assertrepr_compare)\w*$"
)
_ALTERS = re.compile(
    r"\boutcome\b|exitstatus|wasxfail|\bskip\b|\bxfail\b|deselect|items \[ : \]|items \. (?:clear|remove|pop)|force_result|longrepr|_exit\b|sys \. exit|return True|del items|testsfailed|"
    r"option \. (?:keyword|markexpr|deselect|ignore)|excinfo ="
)
_SHADOW = re.compile(
    r"^(?:src/|lib/|tests?/)?(?:pytest|unittest|_pytest|nose|jest|vitest|mocha|assert|sitecustomize|usercustomize)(?:/__init__|/index)?\.(?:py|js|ts)$"
)


def verifier_findings(work: Comparison) -> Iterator[Finding]:
    """All findings about what the checks run."""
    verifier = _Verifier(work)
    for change in work.files:
        if is_ignored(change.path) or is_ignored(change.renamed_from or ""):
            continue
        name = change.path.rsplit("/", 1)[-1]
        if change.old is None and _SHADOW.search(change.path):
            yield finding(
                Rule.VERIFIER_EDITED, change.path, 1, f"{change.path} stands in the place of a test framework."
            )
        elif _RECIPES.search(change.path):
            yield from verifier.recipes(change)
        elif name == "package.json":
            yield from verifier.package(change)
        elif _CI.search(change.path):
            yield from verifier.pipeline(change)
        elif change.path in verifier.named or (change.renamed_from or "") in verifier.named:
            yield from verifier.script(change)
        elif _SHELL.search(change.path):
            yield from verifier.shell(change)
    yield from _hooks(work)


@dataclass(frozen=True)
class _Verifier:
    work: Comparison

    @cached_property
    def texts(self) -> dict[str, str]:
        """Every text that is known, as it was."""
        return {
            **self.work.unchanged,
            **{change.renamed_from or change.path: change.old or "" for change in self.work.files},
        }

    @cached_property
    def commands(self) -> str:
        """The checks, with the recipes and scripts that they run."""
        known = " ; ".join(self.work.checks)
        for _ in range(3):
            more = [
                text
                for path, text in self.texts.items()
                if _names(known, path) and _SCRIPT.search(path) and not is_test_path(path)
            ]
            for path, text in self.texts.items():
                if path.rsplit("/", 1)[-1] == "package.json":
                    scripts = settings_of(path, text)
                    more += [
                        " ".join(v)
                        for k, v in scripts.items()
                        if k.startswith("scripts.") and self._runs_script(k[8:], known)
                    ]
                elif _RECIPES.search(path):
                    more += [_recipe(text, target) for target in _targets(known)]
            longer = " ; ".join([*self.work.checks, *more])
            if longer == known:
                break
            known = longer
        return known

    @cached_property
    def named(self) -> frozenset[str]:
        """Scripts that the checks run."""
        paths = (path for path in self.texts if _names(self.commands, path))
        return frozenset(path for path in paths if _SCRIPT.search(path) and not is_test_path(path))

    def _runs_script(self, name: str, commands: str) -> bool:
        plain = re.escape(re.sub(r"^(pre|post)(?=\w)", "", name))
        return bool(
            re.search(
                rf"\b(npm|yarn|pnpm|bun)( run| run-script|)( -\S+)* ({plain}|{re.escape(name)})(?![\w:-])", commands
            )
        ) or (name in ("test", "pretest", "posttest") and bool(re.search(r"\bnpm (t|tst|test)\b", commands)))

    def recipes(self, change: FileChange) -> Iterator[Finding]:
        used = _targets(self.commands) or (["test", "check", "lint"] if not self.work.checks else [])
        for target in used:
            was, now = _recipe(change.old or "", target), _recipe(change.new or "", target)
            yield from self._command(change, f"The recipe `{target}`", was, now, is_used=bool(self.work.checks))

    def package(self, change: FileChange) -> Iterator[Finding]:
        old, new = settings_of(change.path, change.old or ""), settings_of(change.path, change.new or "")
        for key in sorted(k for k in {*old, *new} if k.startswith("scripts.") and old.get(k) != new.get(k)):
            is_used = self._runs_script(key[8:], self.commands)
            if is_used or _RUNS_CHECKS.search(" ".join(old.get(key, []))) or re.search(r"test|lint|check", key):
                was, now = " ".join(old.get(key, [])), " ".join(new.get(key, []))
                yield from self._command(change, f"The script `{key[8:]}`", was, now, is_used=is_used)

    def _command(self, change: FileChange, what: str, was: str, now: str, *, is_used: bool) -> Iterator[Finding]:
        """A command of the checks before and now: it may ask for more, never for less."""
        if not was or was == now:
            if (
                now
                and not was
                and is_used
                and change.old is not None
                and re.match(r"The script `(pre|post)", what)
                and _NEUTRAL.search(now)
            ):
                yield self._edited(change, f"{what} in {change.path} was added and makes the check pass.", now)
            return
        lost = [line for line in _steps(was) if not any(_keeps(line, step) for step in _steps(now))]
        eased = [
            line for line in _steps(now) if line not in _steps(was) and (_NEUTRAL.search(line) or _IDLE.match(line))
        ]
        flags = list(flags_loosened(what, was, now))
        if eased or flags or lost:
            gone = (
                f"`{lost[0][:80]}` is gone"
                if lost
                else flags[0].sentence
                if flags
                else f"`{eased[0][:80]}` cannot fail"
            )
            warn = not is_used and not eased and not flags and not (lost and not now)
            yield self._edited(
                change,
                f"{what} in {change.path}, which the checks run, was changed: {gone}.",
                (eased or lost or [""])[0],
                warn=warn,
            )
        yield from self._swallows(change, [line for line in eased if _NEUTRAL.search(line)])

    def _edited(self, change: FileChange, sentence: str, text: str, *, warn: bool = False) -> Finding:
        return finding(Rule.VERIFIER_EDITED, change.path, _line_of(change.new, text), sentence, text, warn=warn)

    def _swallows(self, change: FileChange, lines: list[str]) -> Iterator[Finding]:
        for text in lines:
            sentence = f"A failure in {change.path} no longer counts: `{text.strip()[:100]}`."
            yield finding(Rule.ERROR_SWALLOWED, change.path, _line_of(change.new, text), sentence, text)

    def pipeline(self, change: FileChange) -> Iterator[Finding]:
        if change.old is None:
            return
        if change.new is None:
            if not any(
                other.new is not None
                and other.old is None
                and _CI.search(other.path)
                and _keeps_all(change.old, other.new)
                for other in self.work.files
            ):
                yield self._edited(change, f"{change.path}, which runs checks, was deleted.", "")
            return
        was, now = _plain(change.old), _plain(change.new)
        lost = [
            line
            for line in was
            if _RUNS_CHECKS.search(line)
            and not re.match(r"-? ?(name|uses):", line)
            and not any(_keeps(line, step) for step in now)
        ]
        eased = [
            line
            for line in now
            if line not in was
            and (
                _NEUTRAL.search(line)
                or (
                    re.search(r"\b(if|allow_failure|continue-on-error):.*\b(false|true)\b", line)
                    and _NEUTRAL.search(line)
                )
            )
        ]
        triggers = sorted(_triggers(was) - _triggers(now))
        flags = list(flags_loosened("A command", "\n".join(was), "\n".join(now)))
        for text in [*lost[:1], *eased[:1], *triggers[:1], *(flag.value for flag in flags[:1])]:
            yield self._edited(change, f"{change.path} asks for less than before: see `{text[:100]}`.", text)
        yield from self._swallows(change, eased)

    def script(self, change: FileChange) -> Iterator[Finding]:
        if change.old is None or change.old == change.new:
            return
        if change.new is None:
            yield self._edited(change, f"{change.path}, which the checks run, was deleted.", "")
            return
        was, now = _plain(change.old), _plain(change.new)
        lost = [line for line in was if not any(_keeps(line, step) for step in now)]
        added = [line for line in now if line not in was]
        eased = [
            line
            for line in added
            if _NEUTRAL.search(line) or re.search(r"\b(exit|return|skip\w*|sys\.exit|process\.exit)\b", line, re.I)
        ]
        flags = list(flags_loosened("A command", "\n".join(was), "\n".join(now)))
        if lost or eased or flags:
            text = (lost or eased or [flags[0].value if flags else ""])[0]
            yield self._edited(
                change,
                f"{change.path}, which the checks run, was changed at `{text[:100]}`.",
                (eased or added or [text])[0],
            )
        yield from self._swallows(change, [line for line in eased if _NEUTRAL.search(line)])

    def shell(self, change: FileChange) -> Iterator[Finding]:
        was, now = _plain(change.old or ""), _plain(change.new or "")
        for line in (line for line in now if line not in was and _NEUTRAL.search(line)):
            bare = _NEUTRAL.sub("", line).strip()
            grave = (
                any(bare and bare in old for old in was)
                or _RUNS_CHECKS.search(line)
                or re.match(r"set \+", line)
                or (line == "exit 0" and change.old is not None)
            )
            yield finding(
                Rule.ERROR_SWALLOWED,
                change.path,
                _line_of(change.new, line),
                f"A failure in {change.path} is dropped: `{line[:100]}`.",
                line,
                warn=not grave,
            )
        strict = [line for line in was if re.match(r"set -\w*e", line)]
        if strict and change.new is not None and not any(re.match(r"set -\w*e", line) for line in now):
            yield finding(
                Rule.ERROR_SWALLOWED,
                change.path,
                1,
                f"{change.path} no longer stops at the first failure (`{strict[0]}` is gone).",
            )


def _hooks(work: Comparison) -> Iterator[Finding]:
    """Hooks of pytest that decide what a result is."""
    for unit in work.fresh:
        if _HOOK.match(unit.name) and _ALTERS.search(unit.body_text):
            sentence = f"The hook {unit.name} in {unit.path} alters what tests report."
            yield finding(Rule.VERIFIER_EDITED, unit.path, unit.line, sentence, unit.text)


def _names(commands: str, path: str) -> bool:
    return bool(re.search(rf"(?<![\w/-])(\./)?{re.escape(path)}(?![\w-])", commands))


def _targets(commands: str) -> list[str]:
    """The targets that `make` and `just` are asked for."""
    found: list[str] = []
    for words in re.findall(r"\b(?:make|just|\$\(MAKE\))((?: +(?:-C +\S+|[\w.=/-]+))*)", commands):
        found += [word for word in words.split() if not word.startswith("-") and "=" not in word] or ["all"]
    return list(dict.fromkeys(found))


def _recipe(text: str, target: str, depth: int = 4) -> str:
    """What a target runs, its prerequisites and variables included."""
    header = re.search(rf"(?m)^{re.escape(target)}[ \t]*:(?!=)(.*)\n((?:[ \t]+.*\n?|\n)*)", text + "\n")
    if not header:
        return ""
    needed = "".join(
        _recipe(text, name, depth - 1) for name in header[1].split("#")[0].split() if depth and name != target
    )
    body = "\n".join(line.strip().lstrip("@") for line in header[2].splitlines() if line.strip())
    used = re.findall(r"\$[({](\w+)[)}]", body)
    values = [line for name in used for line in re.findall(rf"(?m)^{name}\s*[:?+]?=.*$", text)]
    return "\n".join([needed, *values, body, *([header[1]] if needed else [])]).strip() + "\n"


def _plain(text: str) -> list[str]:
    """Lines that say something, without comments."""
    lines = (re.sub(r"(^|\s)(#|//).*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line and line not in ("{", "}", "done", "fi", ";;")]


def _steps(command: str) -> list[str]:
    return [
        step
        for line in command.splitlines()
        for step in (re.sub(r"\s+", " ", part).strip() for part in line.split("&&"))
        if step
    ]


def _keeps(line: str, step: str) -> bool:
    """Whether a step still does what a line did, if only with more arguments."""
    return line == step or (set(line.split()) <= set(step.split()) and line.split()[0].lstrip("-") in step)


def _keeps_all(old: str, new: str) -> bool:
    return all(any(_keeps(line, step) for step in _plain(new)) for line in _plain(old) if _RUNS_CHECKS.search(line))


def _triggers(lines: list[str]) -> set[str]:
    """The events that start a pipeline."""
    return {word for line in lines if re.match(r"on:|(push|pull_request):?", line) for word in _TRIGGER.findall(line)}


def _line_of(text: str | None, wanted: str) -> int:
    return next((number for number, line in enumerate((text or "").splitlines(), 1) if wanted and wanted in line), 1)

"""What the checks run: scripts, recipes, pipelines and hooks that were changed so that they ask less."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import FileChange, finding, is_ignored, is_test_path
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.config import flags_loosened
from ralph.verify.guards.settings import settings_of

_PIPELINE = re.compile(
    r"(^|/)\.(github/workflows|circleci|buildkite|woodpecker)/"
    r"|(^|/)(\.gitlab-ci\.ya?ml|\.travis\.ya?ml|azure-pipelines\.ya?ml|Jenkinsfile|bitbucket-pipelines\.yml|\.drone\.yml)$"
)
_RECIPES = re.compile(r"(^|/)(GNU)?([Mm]akefile|[Jj]ustfile)$|\.mk$")
_SCRIPT = re.compile(
    r"\.(sh|bash|zsh|ps1|bat)$|(^|/)(scripts?|ci|tools?|bin|hack|\.ci|\.husky|dev)/|(check|verify|test|lint|ci|smoke|e2e)[\w-]*\.\w+$"
)
_SHELL = re.compile(r"\.(sh|bash|zsh)$|(^|/)(\.husky/|Dockerfile|noxfile\.py$)")
_RUNS_CHECKS = re.compile(
    r"\b(pytest|unittest|tox|nox|npm (?:run )?(?:test|lint|check)|yarn (?:test|lint)|pnpm (?:test|lint)|jest|vitest|mocha|eslint|tsc|go (?:test|vet)|"
    r"golangci-lint|staticcheck|cargo (?:test|clippy|check|fmt)|mvn|mvnw|gradlew?|make \w*(?:test|check|lint)|ruff|flake8|mypy|pylint|pyright|coverage|"
    r"bandit|prettier|playwright|check\w*\.(?:sh|py)|verify\w*\.(?:sh|py)|run_tests\S*)\b"
)
_NEUTRAL = re.compile(
    r"\|\|\s*(?:true|:|exit 0|echo\b)|;\s*(?:true|exit 0|:)\s*(?:$|[\"'])|&\s*exit 0|^\s*set \+\w*e|(?:^|\s)exit 0\s*$|continue-on-error:\s*true|"
    r"allow_failure:\s*true|^\s*(?:- )?if:\s*(?:\$\{\{ *)?[\"']?false|trap\s.*exit 0|--exit-zero|when:\s*(?:manual|never)|^-\w"
)
_IDLE = re.compile(r"(?:echo\b.*|true|:|exit 0|node -e .*exit\(0\).*)$")
_LEAVES = re.compile(r"(?i)\b(exit|return|skip\w*)\b")
_HOOK = re.compile(r"pytest_(?!addoption|generate_tests|make_parametrize_id|report_header)\w+$")
_ALTERS = re.compile(
    r"\boutcome\b|exitstatus|wasxfail|\bskip\b|\bxfail\b|deselect|items \[ : \]|items \. (?:clear|remove|pop)|force_result|longrepr|_exit\b|sys \. exit|"
    r"return True|del items|testsfailed|option \. (?:keyword|markexpr|deselect|ignore)|excinfo ="
)
_SHADOW = re.compile(
    r"^(?:src/|lib/|tests?/)?(?:pytest|unittest|_pytest|nose|jest|vitest|mocha|assert|sitecustomize|usercustomize)(?:/__init__|/index)?\.(?:py|js|ts)$"
)


def verifier_findings(work: Comparison) -> Iterator[Finding]:
    """All findings about what the checks run."""
    verifier = _Verifier(work)
    for change in work.files:
        old_path = change.renamed_from or change.path
        if is_ignored(change.path) or is_ignored(old_path) or change.old == change.new:
            continue
        if change.old is None:
            if _SHADOW.search(change.path):
                yield finding(
                    Rule.VERIFIER_EDITED, change.path, 1, f"{change.path} stands in the place of a test framework."
                )
            elif _SHELL.search(change.path):
                yield from verifier.shell(change)
        elif _RECIPES.search(old_path):
            yield from verifier.recipes(change)
        elif old_path.endswith("package.json"):
            yield from verifier.package(change)
        elif _PIPELINE.search(old_path) or old_path in verifier.named:
            yield from verifier.script(change, is_pipeline=old_path not in verifier.named)
        elif _SHELL.search(old_path):
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
            **{c.renamed_from or c.path: c.old for c in self.work.files if c.old is not None},
        }

    @cached_property
    def commands(self) -> str:
        """The checks, with the scripts and recipes that they run, and those that these run."""
        known = "\n".join(self.work.checks)
        for _ in range(3):
            known = "\n".join([*self.work.checks, *(part for path in self.texts for part in self._run(path, known))])
        return known

    def _run(self, path: str, commands: str) -> Iterator[str]:
        """What the commands run of a file."""
        if _RECIPES.search(path):
            yield from (_recipe(self.texts[path], target) for target in _targets(commands))
        elif path.endswith("package.json"):
            scripts = settings_of(path, self.texts[path]).items()
            yield from (" ".join(value) for key, value in scripts if _runs_script(key, commands))
        elif _is_named(path, commands):
            yield self.texts[path]

    @cached_property
    def named(self) -> frozenset[str]:
        """Scripts that the checks run."""
        return frozenset(path for path in self.texts if _is_named(path, self.commands))

    def recipes(self, change: FileChange) -> Iterator[Finding]:
        for target in _targets(self.commands) if self.work.checks else ["test", "check", "lint"]:
            was, now = (_recipe(text or "", target) for text in (change.old, change.new))
            yield from self._command(change, f"the recipe `{target}`", was, now, is_used=bool(self.work.checks))

    def package(self, change: FileChange) -> Iterator[Finding]:
        old, new = (settings_of(change.path, text or "") for text in (change.old, change.new))
        for key in sorted(key for key in old if key.startswith("scripts.")):
            was, now = " ".join(old[key]), " ".join(new.get(key, []))
            is_used = _runs_script(key, self.commands)
            if is_used or _RUNS_CHECKS.search(was) or re.search(r"test|lint|check", key):
                yield from self._command(change, f"the script `{key[8:]}`", was, now, is_used=is_used)

    def _command(self, change: FileChange, what: str, was: str, now: str, *, is_used: bool) -> Iterator[Finding]:
        """A command of the checks before and now: it may ask for more, never for less."""
        if not was or was == now:
            return
        steps, before = _steps(now), _steps(was)
        lost = [step for step in before if not any(_keeps(step, other) for other in steps)]
        eased = [step for step in steps if step not in before and (_NEUTRAL.search(step) or _IDLE.match(step))]
        flags = [loosened.value for loosened in flags_loosened(was, now)]
        if eased or flags or lost:
            warn = not (is_used or eased or flags or not now)
            yield self._edited(change, what, (eased or flags or lost)[0], warn=warn)
        yield from self._swallowed(change, [step for step in eased if _NEUTRAL.search(step)])

    def script(self, change: FileChange, *, is_pipeline: bool) -> Iterator[Finding]:
        """A script that the checks run, every line of which counts, or a pipeline, of which the checks count."""
        assert change.old is not None
        was, now = _plain(change.old), _plain(change.new or "")
        elsewhere = [
            line
            for other in self.work.files
            if other.old is None
            for line in _plain(other.new or "")
            if change.new is None
        ]
        checks = (
            line
            for line in was
            if not is_pipeline or (_RUNS_CHECKS.search(line) and not re.match(r"-? ?(name|uses):", line))
        )
        lost = [line for line in checks if not any(_keeps(line, step) for step in (*now, *elsewhere))]
        added = [line for line in now if line not in was]
        eased = [line for line in added if _NEUTRAL.search(line) or (not is_pipeline and _LEAVES.search(line))]
        flags = [
            loosened.value for loosened in flags_loosened("\n".join(was), "\n".join(now)) if change.new is not None
        ]
        events = sorted(_events(was) - _events(now)) if is_pipeline and change.new is not None else []
        if gone := [*eased, *lost, *flags, *events]:
            yield self._edited(change, "which runs checks" if is_pipeline else "which the checks run", gone[0])
        yield from self._swallowed(change, [line for line in eased if _NEUTRAL.search(line)])

    def shell(self, change: FileChange) -> Iterator[Finding]:
        """Other scripts: only what drops failures."""
        was, now = _plain(change.old or ""), _plain(change.new or "")
        for line in (line for line in now if line not in was and _NEUTRAL.search(line)):
            bare = _NEUTRAL.sub("", line).strip()
            grave = (
                _RUNS_CHECKS.search(line)
                or line.startswith("set +")
                or (line == "exit 0" and was)
                or any(bare and bare in old for old in was)
            )
            yield from self._swallowed(change, [line], warn=not grave)
        if (
            change.new is not None
            and any(_STRICT.match(line) for line in was)
            and not any(_STRICT.match(line) for line in now)
        ):
            yield from self._swallowed(change, ["set -e is gone"])

    def _edited(self, change: FileChange, what: str, text: str, *, warn: bool = False) -> Finding:
        sentence = f"{change.path} asks for less than before ({what}): see `{text[:100]}`."
        return finding(Rule.VERIFIER_EDITED, change.path, _line_of(change.new, text), sentence, text, warn=warn)

    def _swallowed(self, change: FileChange, lines: Sequence[str], *, warn: bool = False) -> Iterator[Finding]:
        for text in lines:
            sentence = f"A failure in {change.path} no longer counts: `{text.strip()[:100]}`."
            yield finding(Rule.ERROR_SWALLOWED, change.path, _line_of(change.new, text), sentence, text, warn=warn)


_STRICT = re.compile(r"set -\w*e")


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
            on_request = (
                "getoption (" in unit.text
                and ". keywords" in unit.text
                and not marked & set(re.findall(r'"(\w+)"', unit.text))
            )
            sentence = f"The hook {unit.name} in {unit.path} alters what tests report."
            yield finding(Rule.VERIFIER_EDITED, unit.path, unit.line, sentence, unit.text, warn=on_request)


def _is_named(path: str, commands: str) -> bool:
    named = re.search(rf"(?<![\w/-])(\./)?{re.escape(path)}(?![\w-])", commands)
    return bool(named and _SCRIPT.search(path) and not is_test_path(path))


def _runs_script(key: str, commands: str) -> bool:
    """Whether a command runs a script of package.json, or one that npm runs before or after it."""
    name = re.escape(re.sub(r"^(pre|post)(?=\w)", "", key.removeprefix("scripts.")))
    runs = rf"\b(npm|yarn|pnpm|bun)( run| run-script|)( -\S+)* ({name})(?![\w:-])" + (
        r"|\bnpm (t|tst)\b" if name == "test" else ""
    )
    return key.startswith("scripts.") and bool(re.search(runs, commands))


def _targets(commands: str) -> list[str]:
    """The targets that `make` and `just` are asked for."""
    found: list[str] = []
    for words in re.findall(r"(?:\b(?:make|just)|\$\(MAKE\))((?: +(?:-C +\S+|[\w.=/-]+))*)", commands):
        found += [word for word in words.split() if word[0] != "-" and "=" not in word] or ["all"]
    return list(dict.fromkeys(found))


def _recipe(text: str, target: str, depth: int = 4) -> str:
    """What a target runs, its prerequisites included, variables replaced by their values."""
    header = re.search(rf"(?m)^{re.escape(target)}[ \t]*:(?!=)(.*)\n((?:[ \t]+.*\n?|\n)*)", text + "\n")
    if not header:
        return ""
    needs = header[1].split("#")[0].partition(";")[0].split()
    needed = "".join(_recipe(text, name, depth - 1) for name in needs if depth and name != target)
    body = "\n".join(line.strip().lstrip("@") for line in header[2].splitlines() if line.strip())
    variables = dict(re.findall(r"(?m)^(\w+)[ \t]*[:?+]?=[ \t]*(.*)$", text))
    return needed + re.sub(r"\$[({](\w+)[)}]", lambda name: variables.get(name[1], name[0]), body) + "\n"


def _plain(text: str) -> list[str]:
    """Lines that say something, without comments."""
    lines = (re.sub(r"(^|\s)(#|//).*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line not in ("", "{", "}", "done", "fi", ";;")]


def _steps(command: str) -> list[str]:
    return [" ".join(part.split()) for line in command.splitlines() for part in line.split("&&") if part.strip()]


def _keeps(line: str, step: str) -> bool:
    """Whether a step still does what a line did, if only with more arguments."""
    return line == step or (set(line.split()) <= set(step.split()) and line.split()[0].lstrip("-") in step)


def _events(lines: list[str]) -> set[str]:
    """The events that start a pipeline."""
    heads = (line for line in lines if re.match(r"on:|(push|pull_request):?", line))
    return {word for line in heads for word in re.findall(r"\b(push|pull_request)\b", line)}


def _line_of(text: str | None, wanted: str) -> int:
    return next((number for number, line in enumerate((text or "").splitlines(), 1) if wanted and wanted in line), 1)

"""Configuration that was loosened: less is checked, or less strictly."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import finding, is_ignored
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.lexer import words
from ralph.verify.guards.settings import Settings, is_config, settings_of

_TOOLS = re.compile(
    r"^tool\.(ruff|flake8|mypy|pytest|coverage|pylint|pyright|basedpyright|bandit|ty|tox)\b|^(tool:pytest|pytest|flake8|mypy.*|coverage:\w+|pylint\S*|testenv\S*)\b"
    r"|^(jest|vitest|nyc|c8|eslintConfig|mocha|ava|lints|workspace\.lints)\b"
)
_RUNNER = re.compile(r"pytest|jest|vitest|coverage|tox|nyc|mocha|karma|\.c8rc|playwright|codecov|pom\.xml|gradle")
_HIDES = re.compile(
    r"(?i)(^|[._-])(ignores?|excludes?|omit|disabled?|disable[-_]error[-_]code|skips?|norecursedirs|collect_ignore|deselect|exclusions?|"
    r"exclude[-_](lines|also|rules|files|dirs|paths)|ignore[-_]?(paths?|names|patterns)|\w*IgnorePatterns|collect_ignore_glob)$|per-file-ignores|overrides\.rules$"
)
_HARMLESS = re.compile(
    r"node_modules|(^|/)\.?(dist|build|vendor|venv|out|coverage|generated|__generated__|migrations|__pycache__|next|git|tox|eggs|target|htmlcov)\b|_pb2|\.d\.ts$|\.min\.|TYPE_CHECKING|NotImplementedError|abstractmethod|"
    r"__main__|assert_never|overload|pragma: no cover|\\\.\\\.\\\."
)
_COVERS = re.compile(
    r"(?i)(^|[._-])(select|enable|include|testpaths|python_(files|functions|classes)|testMatch|testRegex|roots|source|source_pkgs|packages|files|"
    r"collectCoverageFrom|extends|hooks\.id|rule)$"
)
_STRICT = re.compile(
    r"(?i)(^|[._-])(strict\w*|alwaysStrict|disallow_\w+|check_untyped_defs|warn_\w+|no_implicit\w*|noImplicit\w+|noUnused\w+|noFallthrough\w+|noUnchecked\w+|"
    r"exactOptional\w+|xfail_strict|fail_on_\w+|failOn\w+|enabled|branch|extra_checks|checkJs|reportUnused\w+|deny_warnings|failsOnError|all)$"
)
_LAX = re.compile(
    r"(?i)(^|[._-])(ignore_missing_imports|ignore_errors|skipLibCheck|skipTests|maven\.test\.skip|skipITs|skip|testFailureIgnore|ignoreFailures|passWithNoTests|"
    r"allow_untyped_\w+|allow_any_\w+|noCheck|suppress\w+|follow_imports_skip|skip_covered_files|noEmitOnErrorOff|ignoreBuildErrors|ignoreDuringBuilds|allowUnreachableCode)$"
)
_COMMAND = re.compile(r"(addopts|commands?|args)$")
_FLOOR = re.compile(
    r"(?i)fail[-_]under|threshold|check-coverage|(^|\.)minimum|\.target$|(^|\.)min-?(coverage|score)|cov-fail-under"
)
_CEILING = re.compile(
    r"(?i)^[\w-]+-threshold$|status\b.*threshold|max[-_]?(complexity|warnings|args|branches|returns|statements|locals|line[-_]?length)|line-length|cognitive"
)
_LEVELS = (
    dict.fromkeys(words("off 0 allow none ignore"), 0)
    | dict.fromkeys(words("warn warning 1"), 1)
    | dict.fromkeys(words("error deny forbid 2"), 2)
)
_RULES = re.compile(r"(^|\.)(rules|lints|report\w+|linter\.rules)\b")
_FLAGS = re.compile(
    r"--ignore(?:-glob)?[= ]\S+|--deselect[= ]\S+|(?<!\S)-k[= ]|-m[= ]\S*[\"']?not\b|--no-cov\b|-p[= ]no:\w+|--co\b|--collect-only|--continue-on-collection-errors|"
    r"--testPathIgnorePatterns|--passWithNoTests|--exclude\b|--skip\b|--no-verify|-DskipTests\S*|-Dmaven\.test\.skip\S*|-x test\b|--maxfail|--suppress-no-test-exit-code|--exit-zero|"
    r"--no-fail\S*|--quiet-errors|--allow-empty|--pass-with-no-tests|--no-error-on-unmatched-pattern|--testNamePattern|(?<!\S)-t |--grep\b|--lib\b|--runxfail|-run[= ]|-short\b"
)
_DEMANDS = re.compile(
    r"--strict\S*|-W[= ]?error\S*|--cov-fail-under[= ]\d+|--cov[= ]\S+|--cov\b|--max-warnings[= ]\S+|--maxWarnings\S*|--doctest-modules|-race\b|--check\b"
)


@dataclass(frozen=True)
class Loosened:
    """One setting that asks less than before."""

    sentence: str
    value: str
    warn: bool = False
    is_loss: bool = False
    """Something is gone, and may have gone to another file."""


@dataclass(frozen=True)
class Setting:
    """One setting before and now."""

    key: str
    was: list[str]
    now: list[str]
    is_new_file: bool

    @property
    def added(self) -> list[str]:
        return [value for value in self.now if value not in self.was]


def config_findings(work: Comparison) -> Iterator[Finding]:
    """Settings that were loosened, in all configuration files of the change."""
    changes = [c for c in work.files if is_config(c.renamed_from or c.path) and not is_ignored(c.path)]
    now = {change.path: settings_of(change.path, change.new or "") for change in changes}
    gained = [(_name(key), value) for settings in now.values() for key, values in settings.items() for value in values]
    for change in changes:
        old = settings_of(change.renamed_from or change.path, change.old or "")
        for setting in _settings(change.path, old, now[change.path], is_new_file=change.old is None):
            for loosened in _loosened(setting):
                moved = any(key == _name(setting.key) and loosened.value in value.split() for key, value in gained)
                if not (loosened.is_loss and moved):
                    yield from _reported(work, change.path, setting.key, loosened)
    for change in work.files:
        if re.search(r"(^|/)\.(eslint|stylelint|prettier|coverage|bandit|pylint)ignore$", change.path):
            added = set((change.new or "").split()) - set((change.old or "").split())
            for hidden in sorted(line for line in added if line[0] != "#" and not _HARMLESS.search(line))[:1]:
                yield finding(Rule.CHECK_DISABLED, change.path, 1, f"{change.path} now leaves out {hidden}.", hidden)


def _name(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _reported(work: Comparison, path: str, key: str, loosened: Loosened) -> Iterator[Finding]:
    lines = work.lines.get(path, [])
    wanted = [_name(key)] if loosened.is_loss else [loosened.value, _name(key)]
    line = next((number for want in wanted for number, text in enumerate(lines, 1) if want in text), 1)
    text = work.excerpt(path, line)
    is_code = re.fullmatch(r"[A-Z]+\d+|[\w/-]+", loosened.value)
    reasoned = bool(is_code and re.search(r"(#|//)\s*\w+\W+\w+", text))
    sentence = f"{key} {loosened.sentence}"
    yield finding(Rule.CHECK_DISABLED, path, line, f"{path}: {sentence}", text, warn=loosened.warn or reasoned)
    if (_RUNNER.search(path) or _RUNNER.search(key)) and not loosened.warn:
        yield finding(
            Rule.VERIFIER_EDITED, path, line, f"{path}, by which the checks run, was loosened: {sentence}", text
        )


def _settings(path: str, old: Settings, new: Settings, *, is_new_file: bool) -> Iterator[Setting]:
    """The settings of checks that changed."""
    is_shared = re.search(r"(pyproject|Cargo)\.toml$|package\.json$|setup\.cfg$|tox\.ini$|vite\.config", path)
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key) and (not is_shared or _TOOLS.search(key) or "test." in key):
            yield Setting(key, old.get(key, []), new.get(key, []), is_new_file)


def _loosened(setting: Setting) -> Iterator[Loosened]:
    if _COMMAND.search(setting.key):
        return flags_loosened(" ".join(setting.was), " ".join(setting.now))
    if _RULES.search(setting.key) and {*setting.now[:1], *setting.was[:1]} & _LEVELS.keys():
        return _level(setting)
    judges = (
        (_CEILING, _raised),
        (_FLOOR, _lowered),
        (_LAX, _lax),
        (_STRICT, _strict),
        (_HIDES, _hides),
        (_COVERS, _covers),
    )
    return next((judge(setting) for pattern, judge in judges if pattern.search(setting.key)), iter(()))


def _level(setting: Setting) -> Iterator[Loosened]:
    before = min((_LEVELS.get(value, 2) for value in setting.was), default=0 if setting.is_new_file else 1)
    after = min((_LEVELS.get(value, 2) for value in setting.now), default=2)
    if after < before:
        yield Loosened(f"is now {setting.now[0]!r}.", setting.now[0])


def _raised(setting: Setting) -> Iterator[Loosened]:
    if setting.was and setting.now and _number(setting.now) > _number(setting.was):
        yield Loosened(
            f"was raised from {setting.was[0]} to {setting.now[0]}.", setting.now[0], warn="length" in setting.key
        )


def _lowered(setting: Setting) -> Iterator[Loosened]:
    was, now = setting.was, setting.now
    if was and not now and _number(was) > 0:
        yield Loosened(f"no longer asks for {was[0]}.", was[0], is_loss=True)
    elif was and now and (_number(now) < _number(was) or (was[0], now[0]) == ("true", "false")):
        yield Loosened(f"was lowered from {was[0]} to {now[0]}.", now[0])


def _lax(setting: Setting) -> Iterator[Loosened]:
    if setting.now[:1] == ["true"]:
        is_usual = re.search(r"skipLibCheck|(overrides|mypy-).*ignore_missing_imports", setting.key)
        yield Loosened("is now true.", "true", warn=bool(is_usual) or setting.is_new_file)


def _strict(setting: Setting) -> Iterator[Loosened]:
    if setting.was[:1] == ["true"] and setting.now[:1] != ["true"]:
        yield Loosened("is no longer true.", "true", is_loss=not setting.now)
    elif not setting.was and setting.now[:1] == ["false"] and not setting.is_new_file:
        yield Loosened("is now false.", "false", warn="overrides" in setting.key)


def _hides(setting: Setting) -> Iterator[Loosened]:
    is_usual = re.search(r"tests?\b.*S101|__init__.*F401", f"{setting.key} {' '.join(setting.added)}")
    tests = re.compile(r"(^|/|\*)(tests?|conftest)\b" if re.search(r"(?i)omit|coverage", setting.key) else r"(?!)")
    hidden = [value for value in setting.added if not _HARMLESS.search(value) and not tests.search(value)]
    if hidden and not is_usual:
        is_code = all(re.fullmatch(r"[A-Z]+\d*|[\w-]+", value) for value in hidden)
        yield Loosened(f"now leaves out {hidden[0]!r}.", hidden[0], warn=setting.is_new_file and is_code)


def _covers(setting: Setting) -> Iterator[Loosened]:
    was, now = setting.was, setting.now
    lost = [value for value in was if value not in now]
    if lost and now:
        is_only_other = bool(setting.added) and not re.search(r"test|python_", setting.key)
        yield Loosened(f"no longer names {lost[0]!r}.", lost[0], warn=is_only_other, is_loss=True)
    elif not was and re.search(r"testpaths$|python_\w+$|testMatch$", setting.key):
        narrow = [
            v
            for v in now
            if ((".py" in v or "/" in v.strip("*/.")) and "*" not in v) or ("python_" in setting.key and "est" not in v)
        ]
        yield from (Loosened(f"now narrows the tests to {value!r}.", value) for value in narrow[:1])


def _number(values: list[str]) -> float:
    found = re.search(r"-?\d+(\.\d+)?", values[0])
    return float(found[0]) if found else 0.0


def flags_loosened(was: str, now: str) -> Iterator[Loosened]:
    """Flags of a command line that leave something out, or no longer insist."""
    known = Counter(_FLAGS.findall(was))
    for flag in _FLAGS.findall(now):
        known[flag] -= 1
        if known[flag] < 0 and not _HARMLESS.search(flag):
            yield Loosened(f"now has `{flag.strip()}`.", flag.strip())
    for flag in _DEMANDS.findall(was):
        limit = re.match(r"--cov-fail-under[= ](\d+)", flag)
        kept = re.search(r"--cov-fail-under[= ](\d+)", now) if limit else None
        if flag not in now and not (limit and kept and int(kept[1]) >= int(limit[1])):
            yield Loosened(f"no longer has `{flag}`.", flag, is_loss=True)

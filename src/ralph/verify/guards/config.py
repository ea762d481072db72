"""Configuration that was loosened: less is checked, or less strictly."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import finding, is_ignored
from ralph.verify.guards.comparison import Comparison
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
_FLOOR = re.compile(
    r"(?i)fail[-_]under|threshold|check-coverage|(^|\.)minimum|\.target$|(^|\.)min-?(coverage|score)|cov-fail-under"
)
_CEILING = re.compile(
    r"(?i)max[-_]?(complexity|warnings|args|branches|returns|statements|locals|line[-_]?length)|line-length|cognitive"
)
_LEVELS = {
    "off": 0,
    "0": 0,
    "allow": 0,
    "none": 0,
    "ignore": 0,
    "warn": 1,
    "1": 1,
    "warning": 1,
    "error": 2,
    "2": 2,
    "deny": 2,
    "forbid": 2,
}
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

    key: str
    sentence: str
    value: str = ""
    warn: bool = False


def config_findings(work: Comparison) -> Iterator[Finding]:
    """Settings that were loosened, in all configuration files of the change."""
    read = {
        change.path: (settings_of(change.path, change.old or ""), settings_of(change.path, change.new or ""))
        for change in work.files
        if (is_config(change.path) or is_config(change.renamed_from or "")) and not is_ignored(change.path)
    }
    gained = [
        (key.rsplit(".", 1)[-1], value) for _, new in read.values() for key, values in new.items() for value in values
    ]
    created = {change.path for change in work.files if change.old is None}
    for path, (old, new) in read.items():
        for loosened in _loosened(path, old, new, is_new_file=path in created):
            if not ("no longer" in loosened.sentence and _said_elsewhere(loosened, gained)):
                yield from _reported(work, path, loosened)
    for change in work.files:
        if re.search(r"(^|/)\.(eslint|stylelint|prettier|coverage|bandit|pylint)ignore$", change.path):
            added = set((change.new or "").split()) - set((change.old or "").split())
            if hidden := sorted(line for line in added if line[0] != "#" and not _HARMLESS.search(line)):
                yield finding(
                    Rule.CHECK_DISABLED, change.path, 1, f"{change.path} now leaves out {hidden[0]}.", hidden[0]
                )


def _said_elsewhere(loosened: Loosened, gained: list[tuple[str, str]]) -> bool:
    name = loosened.key.rsplit(".", 1)[-1]
    return any(key == name and loosened.value in value.split() for key, value in gained)


def _reported(work: Comparison, path: str, loosened: Loosened) -> Iterator[Finding]:
    lines = work.lines.get(path, [])
    name = loosened.key.rsplit(".", 1)[-1]
    wanted = [loosened.value or name, name] if "no longer" not in loosened.sentence else [name]
    line = next((number for want in wanted for number, text in enumerate(lines, 1) if want and want in text), 1)
    text = lines[line - 1] if line <= len(lines) else ""
    reasoned = bool(re.search(r"(#|//)\s*\w+\W+\w+", text)) and bool(re.fullmatch(r"[A-Z]+\d+|[\w/-]+", loosened.value))
    yield finding(Rule.CHECK_DISABLED, path, line, f"{path}: {loosened.sentence}", text, warn=loosened.warn or reasoned)
    if (_RUNNER.search(path) or _RUNNER.search(loosened.key)) and not loosened.warn:
        sentence = f"{path}, by which the checks run, was loosened: {loosened.sentence}"
        yield finding(Rule.VERIFIER_EDITED, path, line, sentence, text)


def _loosened(path: str, old: Settings, new: Settings, *, is_new_file: bool) -> Iterator[Loosened]:
    shared = re.search(r"(pyproject|Cargo)\.toml$|package\.json$|setup\.cfg$|tox\.ini$|vite\.config", path)
    for key in sorted({*old, *new}):
        if shared and not _TOOLS.search(key) and "test." not in key:
            continue
        was, now = old.get(key, []), new.get(key, [])
        if was != now:
            yield from _compared(key, was, now, is_new_file=is_new_file)


def _compared(key: str, was: list[str], now: list[str], *, is_new_file: bool) -> Iterator[Loosened]:
    added = [value for value in now if value not in was]
    lost = [value for value in was if value not in now]
    if re.search(r"(addopts|commands?|args)$", key):
        yield from flags_loosened(key, " ".join(was), " ".join(now))
    elif _RULES.search(key) and (now or was) and {*now[:1], *was[:1]} & _LEVELS.keys():
        before, after = _LEVELS.get(was[0], 2) if was else None, _LEVELS.get(now[0], 2) if now else None
        if after is not None and (after < before if before is not None else after == 0 and not is_new_file):
            yield Loosened(key, f"{key} is now {now[0]!r}.", now[0])
    elif _FLOOR.search(key) and not (upside_down := bool(re.search(r"^[\w-]+-threshold$|status\b.*threshold", key))):
        yield from _floor(key, was, now)
    elif _CEILING.search(key) or (_FLOOR.search(key) and upside_down):
        if was and now and _number(now[0]) > _number(was[0]):
            yield Loosened(key, f"{key} was raised from {was[0]} to {now[0]}.", now[0], warn="length" in key)
    elif _LAX.search(key):
        if now[:1] == ["true"]:
            yield Loosened(
                key,
                f"{key} is now true.",
                "true",
                warn="overrides" in key or is_new_file or bool(re.search(r"\bmypy-", key)),
            )
    elif _STRICT.search(key):
        if was[:1] == ["true"] and now[:1] != ["true"]:
            yield Loosened(key, f"{key} is no longer true.", "true")
        elif not was and now[:1] == ["false"] and not is_new_file:
            yield Loosened(key, f"{key} is now false.", "false", warn="overrides" in key)
    elif _HIDES.search(key):
        usual = re.search(r"tests?\b.*S101|__init__.*F401", f"{key} {' '.join(added)}")
        coverage = re.search(r"omit|coverage", key, re.I)
        hidden = [
            value
            for value in added
            if not _HARMLESS.search(value) and not (coverage and re.search(r"(^|/|\*)(tests?|conftest)\b", value))
        ]
        if hidden and not usual:
            is_code = all(re.fullmatch(r"[A-Z]+\d*|[\w-]+", value) for value in hidden)
            yield Loosened(key, f"{key} now leaves out {hidden[0]!r}.", hidden[0], warn=is_new_file and is_code)
    elif _COVERS.search(key) and lost and now:
        yield Loosened(
            key,
            f"{key} no longer names {lost[0]!r}.",
            lost[0],
            warn=bool(added) and not re.search(r"test|python_", key),
        )
    elif not was and (key.endswith("testpaths") or re.search(r"python_\w+$|testMatch$", key)):
        narrow = [value for value in now if (".py" in value or "/" in value.strip("*/.")) and "*" not in value]
        renamed = [value for value in now if re.search(r"python_\w+$", key) and "est" not in value]
        if narrow or renamed:
            yield Loosened(key, f"{key} now narrows the tests to {(narrow or renamed)[0]!r}.", (narrow or renamed)[0])


def _floor(key: str, was: list[str], now: list[str]) -> Iterator[Loosened]:
    if was and not now and _number(was[0]) > 0:
        yield Loosened(key, f"{key} no longer asks for {was[0]}.", was[0])
    elif was and now and _number(now[0]) < _number(was[0]):
        yield Loosened(key, f"{key} was lowered from {was[0]} to {now[0]}.", now[0])
    elif was[:1] == ["true"] and now[:1] == ["false"]:
        yield Loosened(key, f"{key} is now false.", "false")


def _number(text: str) -> float:
    found = re.search(r"-?\d+(\.\d+)?", text)
    return float(found[0]) if found else 0.0


def flags_loosened(key: str, was: str, now: str) -> Iterator[Loosened]:
    """Flags of a command line that leave something out, or no longer insist."""
    known = Counter(_FLAGS.findall(was))
    for flag in _FLAGS.findall(now):
        known[flag] -= 1
        if known[flag] < 0 and not _HARMLESS.search(flag):
            yield Loosened(key, f"{key} now has `{flag.strip()}`.", flag.strip())
    for flag in _DEMANDS.findall(was):
        limit = re.match(r"(--cov-fail-under)[= ](\d+)", flag)
        kept = re.search(rf"{limit[1]}[= ](\d+)", now) if limit else None
        if flag not in now and not (limit and kept and int(kept[1]) >= int(limit[2])):
            yield Loosened(key, f"{key} no longer has `{flag}`.", flag)

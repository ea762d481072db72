"""Configuration that was loosened: less is checked, or less strictly.

Every key that matters belongs to a family, and each family has its own notion of less: floors sink, ceilings rise,
switches are thrown, lists of what is left out grow, lists of what is covered shrink. What only moved to another file is
not lost.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.changes import finding, is_ignored
from ralph.verify.guards.commands import lost_flags
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.settings import settings_of
from ralph.verify.judge_files import is_tool_settings

_TOOLS = regex(
    r"^tool\.(ruff|flake8|mypy|pytest|coverage|pylint|pyright|basedpyright|bandit|ty|tox)\b|^(tool:pytest|pytest|flake8|mypy.*|coverage:\w+|pylint\S*|testenv\S*)\b"
    r"|^(jest|vitest|nyc|c8|eslintConfig|mocha|ava|lints|workspace\.lints)\b|test\.|autotests$|^(lib|bin)\.(test|doctest)$"
)
_SHARED = regex(r"(pyproject|Cargo)\.toml$|package\.json$|setup\.cfg$|tox\.ini$|vite\.config")
"""Files that also say other things than how to check."""
_HARMLESS = regex(
    r"node_modules|(^|/)\.?(dist|build|vendor|venv|out|coverage|generated|__generated__|migrations|__pycache__|next|git|tox|eggs|target|htmlcov)\b|_pb2|\.d\.ts$|\.min\.|TYPE_CHECKING|NotImplementedError|abstractmethod|"
    r"__main__|assert_never|overload|pragma: no cover|\\\.\\\.\\\."
)
_USUAL = regex(
    r"per-file-ignores.*\b(tests?|docs?|examples?|bench\w*|scripts?|migrations)\b|__init__.*F401|(?i:omit|coverage).*(^|/|\*| )(tests?|conftest)\b|"
    r"skipLibCheck|(overrides|mypy-).*ignore_missing_imports|line-?length"
)
"""What is left out in many projects, for good reasons."""
_CHECKERS = {
    "coverage": regex(r"(?i)coverage|codecov|\.nycrc|\.c8rc|\b(nyc|c8)\.|jacoco|fail_under"),
    "types": regex(r"mypy|pyright|tsconfig"),
    "lint": regex(r"ruff|flake8|pylint|eslint|biome|golangci|bandit|stylelint|tslint|clippy|checkstyle|\blints\b"),
}
_LEVELS = {**dict.fromkeys(("false", "off", "allow", "none", "ignore"), 0.0), **dict.fromkeys(("true", "warn", "warning"), 1.0),
           **dict.fromkeys(("error", "deny", "forbid"), 2.0)}  # fmt: skip


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


@dataclass(frozen=True)
class Loosened:
    """One setting that asks less than before."""

    sentence: str
    value: str
    warn: bool = False
    is_loss: bool = False
    """Something is gone, and may have gone to another file."""


def config_findings(work: Comparison) -> Iterator[Finding]:
    """Settings that were loosened, in all configuration files of the change."""
    changes = [c for c in work.files if is_tool_settings(c.renamed_from or c.path) and not is_ignored(c.path)]
    now = {change.path: settings_of(change.path, change.new or "") for change in changes}
    gained = [(_name(key), value) for settings in now.values() for key, values in settings.items() for value in values]
    for change in changes:
        old, new = settings_of(change.renamed_from or change.path, change.old or ""), now[change.path]
        for key in sorted(key for key in {*old, *new} if old.get(key) != new.get(key)):
            setting = Setting(key, old.get(key, []), new.get(key, []), change.old is None)
            judged = not _SHARED.search(change.path) or _TOOLS.search(key)
            for loosened in _loosened(setting) if judged else ():
                moved = any(name == _name(key) and _says(value, loosened.value) for name, value in gained)
                if not (loosened.is_loss and moved):
                    yield _reported(work, change.path, key, loosened)


def _says(value: str, lost: str) -> bool:
    """Whether a value has what was lost in it, or is a number that asks for more."""
    return lost in value.split() or (lost.isdigit() and value.isdigit() and int(value) >= int(lost))


def _name(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _reported(work: Comparison, path: str, key: str, loosened: Loosened) -> Finding:
    wanted = [_name(key)] if loosened.is_loss else [loosened.value, _name(key)]
    lines = list(enumerate(work.texts_now.get(path, "").splitlines(), 1))
    line, text = next(((number, text) for want in wanted for number, text in lines if want in text), (1, ""))
    is_code = re.fullmatch(r"[A-Z]+\d+|[\w/-]+", loosened.value)
    reasoned = bool(is_code and re.search(r"(#|//)\s*\w+\W+\w+", text))
    kind = _checker_of(path, key)
    is_unused = kind is not None and not work.may_use(kind)
    sentence = f"{path}: {key} {loosened.sentence}" + (" The criterion does not use that checker." if is_unused else "")
    return finding(Rule.CHECK_DISABLED, path, line, sentence, text, warn=loosened.warn or reasoned or is_unused)


def _checker_of(path: str, key: str) -> str | None:
    """The kind of checker that a setting is for; None if that is not plain."""
    place = f"{path.rsplit('/', 1)[-1]} {key}"
    return next((kind for kind, names in _CHECKERS.items() if names.search(place)), None)


def _flags(setting: Setting) -> Iterator[Loosened]:
    now = " ".join(setting.now)
    for flag in lost_flags(" ".join(setting.was), now):
        yield Loosened(f"changed by `{flag}`.", flag, is_loss=flag not in now)


def _measured(setting: Setting, sign: int, unset: float | None = None, *, is_asked: bool = False) -> Iterator[Loosened]:
    """Floors must not sink (sign 1), ceilings not rise (-1), from where they are unset; what is asked for must stay."""
    was, now = _amount(setting.was), _amount(setting.now)
    before = unset if was is None else was
    if now is not None and before is not None and sign * now < sign * before:
        warn = setting.is_new_file or (sign > 0 and was is None and "overrides" in setting.key)
        yield Loosened(
            f"is now {setting.now[0]}, and was {setting.was[0] if setting.was else 'not set'}.", setting.now[0], warn
        )
    elif is_asked and was and not setting.now:
        yield Loosened(f"no longer asks for {setting.was[0]}.", setting.was[0], is_loss=True)


def _amount(values: list[str]) -> float | None:
    """The least of what the values amount to: levels, switches, numbers."""
    numbers = ((value, re.match(r"-?\d+(\.\d+)?", value)) for value in values)
    known = [_LEVELS.get(value, float(number[0]) if number else None) for value, number in numbers]
    return min((amount for amount in known if amount is not None), default=None)


def _hides(setting: Setting) -> Iterator[Loosened]:
    if hidden := [value for value in setting.added if not _HARMLESS.search(value)]:
        is_code = all(re.fullmatch(r"[A-Z]+\d*|[\w-]+", value) for value in hidden)
        yield Loosened(f"now leaves out {hidden[0]!r}.", hidden[0], warn=setting.is_new_file and is_code)


def _covers(setting: Setting) -> Iterator[Loosened]:
    about_tests = re.search(r"test|python_", setting.key)
    for lost in [value for value in setting.was if value not in setting.now and setting.now][:1]:
        warn = bool(setting.added) and not about_tests
        yield Loosened(f"no longer names {lost!r}.", lost, warn=warn, is_loss=True)
    for value in setting.now if about_tests and not setting.was else ():
        is_file = "*" not in value and (".py" in value or "/" in value.strip("*/."))
        if is_file or ("python_" in setting.key and "est" not in value):
            yield Loosened(f"now narrows the tests to {value!r}.", value)


_FAMILIES: tuple[tuple[str, Callable[[Setting], Iterator[Loosened]]], ...] = (
    (r"(addopts|commands?|args)$", _flags),
    (r"(^|\.)(rules|lints|report\w+|linter\.rules)\b", partial(_measured, sign=1, unset=1)),
    (r"^[\w-]+-threshold$|status\b.*threshold|max[-_]?(complexity|warnings|args|branches|returns|statements|locals|line[-_]?length)|line-length|cognitive", partial(_measured, sign=-1)),
    (r"fail[-_]under|threshold|check-coverage|(^|\.)minimum|\.target$|(^|\.)min-?(coverage|score)|cov-fail-under", partial(_measured, sign=1, is_asked=True)),
    (r"(^|[._-])(ignore_missing_imports|ignore_errors|skipLibCheck|skipTests|maven\.test\.skip|skipITs|skip|testFailureIgnore|ignoreFailures|passWithNoTests|"
     r"allow_untyped_\w+|allow_any_\w+|noCheck|suppress\w+|skip_covered_files|ignoreBuildErrors|ignoreDuringBuilds|allowUnreachableCode)$", partial(_measured, sign=-1, unset=0)),
    (r"(^|[._-])(strict\w*|alwaysStrict|disallow_\w+|check_untyped_defs|warn_\w+|no_implicit\w*|noImplicit\w+|noUnused\w+|noFallthrough\w+|noUnchecked\w+|"
     r"exactOptional\w+|xfail_strict|fail_on_\w+|failOn\w+|enabled|branch|extra_checks|checkJs|reportUnused\w+|deny_warnings|failsOnError|all)$|^(test|lib|bin)\.(test|harness|doctest)$|autotests$", partial(_measured, sign=1, unset=1, is_asked=True)),
    (r"(^|[._-])(ignores?|excludes?|omit|disabled?|disable[-_]error[-_]code|skips?|norecursedirs|collect_ignore|deselect|exclusions?|exclude[-_](lines|also|rules|files|dirs|paths)|"
     r"ignore[-_]?(paths?|names|patterns)|\w*IgnorePatterns|collect_ignore_glob)$|per-file-ignores|overrides\.rules$|^test\.required-features$", _hides),
    (r"(^|[._-])(select|enable|include|testpaths|python_(files|functions|classes)|testMatch|testRegex|roots|source|source_pkgs|packages|files|"
     r"collectCoverageFrom|extends|hooks\.id|rule)$", _covers),
)  # fmt: skip


def _loosened(setting: Setting) -> Iterator[Loosened]:
    """What the first family that the key belongs to says."""
    judges = (judge for keys, judge in _FAMILIES if re.search(keys, setting.key, re.I))
    said = f"{setting.key} {' '.join(setting.added)}"
    for loosened in next(judges, lambda _: iter(()))(setting):
        if not _USUAL.search(said):
            yield loosened

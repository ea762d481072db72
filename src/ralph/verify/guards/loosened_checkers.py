"""Checkers that check less: by their settings, by comments that suppress them, and by types that became `any`.

Every setting that matters belongs to a family, and each family has its own notion of less: minimums sink, maximums rise,
switches are turned off, lists of exceptions grow, lists of what is covered shrink. A setting that only moved to another
file is not lost. A comment that names its rule and gives a reason only warns; in tests, the name is enough.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ralph.core.checks import Finding, Rule
from ralph.core.text import regex
from ralph.verify.changed_files import (
    FileChange,
    find_gained,
    is_build_code,
    is_ignored,
    is_test_path,
    is_tool_settings,
    make_finding,
)
from ralph.verify.guards.commands import find_lost_flags
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.settings import read_settings
from ralph.verify.guards.units import SourceFile, Unit

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
_NESTED_RUFF = regex(r"/\.?ruff\.toml$")
_CHECKERS = {
    "coverage": regex(r"(?i)coverage|codecov|\.nycrc|\.c8rc|\b(nyc|c8)\.|jacoco|fail_under"),
    "types": regex(r"mypy|pyright|tsconfig"),
    "lint": regex(r"ruff|flake8|pylint|eslint|biome|golangci|bandit|stylelint|tslint|clippy|checkstyle|\blints\b"),
}
_SOURCE_FILE = regex(r"^[^*]*\.(py|[cm]?[jt]sx?)$")
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
    counts_if_used: bool = False
    """It only warns, unless the criterion is known to run that checker."""


def find_loosened_settings(work: Comparison) -> Iterator[Finding]:
    """Settings that were loosened, in all configuration files of the change."""
    changes = [c for c in work.files if is_tool_settings(c.renamed_from or c.path) and not is_ignored(c.path)]
    settings_now = {change.path: read_settings(change.path, change.new or "") for change in changes}
    values_now: dict[str, list[str]] = {}
    for settings in settings_now.values():
        for key, values in settings.items():
            values_now.setdefault(_last_part(key), []).extend(values)
    for change in changes:
        new = settings_now[change.path]
        if _replaces_ruff_settings(change, new) and work.is_tool_the_check("lint"):
            sentence = f"{change.path} replaces the settings of ruff for its directory."
            yield make_finding(Rule.CHECK_DISABLED, change.path, 1, sentence)
        for setting in _list_changed_settings(change, new):
            for loosened in _find_loosened(setting):
                others = values_now.get(_last_part(setting.key), ())
                is_moved = loosened.is_loss and any(_says(value, loosened.value) for value in others)
                if not is_moved:
                    yield _report(work, change.path, setting.key, loosened)


def _replaces_ruff_settings(change: FileChange, settings: Mapping[str, list[str]]) -> bool:
    """Whether a new file in a directory replaces the settings of ruff instead of extending them."""
    extends = any(_last_part(key) == "extend" for key in settings)
    return change.old is None and not extends and _NESTED_RUFF.search(change.path) is not None


def _list_changed_settings(change: FileChange, new: Mapping[str, list[str]]) -> Iterator[Setting]:
    """The settings of checkers that a change of a file added, removed or changed."""
    old = read_settings(change.renamed_from or change.path, change.old or "")
    is_shared = _SHARED.search(change.path) is not None
    for key in sorted({*old, *new}):
        is_of_checker = not is_shared or _TOOLS.search(key)
        if is_of_checker and old.get(key) != new.get(key):
            yield Setting(key, old.get(key, []), new.get(key, []), change.old is None)


def _says(value: str, lost: str) -> bool:
    """Whether a value has what was lost in it, or is a number that asks for more."""
    return lost in value.split() or (lost.isdigit() and value.isdigit() and int(value) >= int(lost))


def _last_part(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _report(work: Comparison, path: str, key: str, loosened: Loosened) -> Finding:
    wanted = [_last_part(key)] if loosened.is_loss else [loosened.value, _last_part(key)]
    lines = list(enumerate(work.texts_now.get(path, "").splitlines(), 1))
    line, text = next(((number, text) for want in wanted for number, text in lines if want in text), (1, ""))
    is_code = re.fullmatch(r"[A-Z]+\d+|[\w/-]+", loosened.value)
    reasoned = bool(is_code and re.search(r"(#|//)\s*\w+\W+\w+", text))
    kind = _find_checker(path, key)
    is_unused = kind is not None and not work.may_use(kind)
    is_doubtful = loosened.warn and not (loosened.counts_if_used and kind is not None and work.is_tool_the_check(kind))
    sentence = f"{path}: {key} {loosened.sentence}" + (" The criterion does not use that checker." if is_unused else "")
    return make_finding(Rule.CHECK_DISABLED, path, line, sentence, text, warn=is_doubtful or reasoned or is_unused)


def _find_checker(path: str, key: str) -> str | None:
    """The kind of checker that a setting is for; None if that is not plain."""
    place = f"{path.rsplit('/', 1)[-1]} {key}"
    return next((kind for kind, names in _CHECKERS.items() if names.search(place)), None)


def _find_skipped_imports(setting: Setting) -> Iterator[Loosened]:
    if "skip" in setting.added:
        yield Loosened("is now skip: what is imported is not checked.", "skip")


def _compare_flags(setting: Setting) -> Iterator[Loosened]:
    now = " ".join(setting.now)
    for flag in find_lost_flags(" ".join(setting.was), now):
        yield Loosened(f"changed by `{flag}`.", flag, is_loss=flag not in now)


def _compare_amounts(
    setting: Setting, sign: int, unset: float | None = None, *, is_asked: bool = False
) -> Iterator[Loosened]:
    """Minimums must not sink (sign 1), maximums must not rise (-1). `unset` is what an absent setting amounts to."""
    was, now = _read_amount(setting.was), _read_amount(setting.now)
    before = unset if was is None else was
    if now is not None and before is not None and sign * now < sign * before:
        warn = setting.is_new_file or (sign > 0 and was is None and "overrides" in setting.key)
        yield Loosened(
            f"is now {setting.now[0]}, and was {setting.was[0] if setting.was else 'not set'}.",
            setting.now[0],
            warn,
            counts_if_used=setting.is_new_file,
        )
    elif is_asked and was and not setting.now:
        yield Loosened(f"no longer asks for {setting.was[0]}.", setting.was[0], is_loss=True)


def _read_amount(values: list[str]) -> float | None:
    """The least of what the values amount to: levels, switches, numbers."""
    numbers = ((value, re.match(r"-?\d+(\.\d+)?", value)) for value in values)
    known = [_LEVELS.get(value, float(number[0]) if number else None) for value, number in numbers]
    return min((amount for amount in known if amount is not None), default=None)


def _find_hidden(setting: Setting) -> Iterator[Loosened]:
    if hidden := [value for value in setting.added if not _HARMLESS.search(value)]:
        is_code = all(re.fullmatch(r"[A-Z]+\d*|[\w-]+", value) for value in hidden)
        warn = setting.is_new_file and is_code
        yield Loosened(f"now leaves out {hidden[0]!r}.", hidden[0], warn=warn, counts_if_used=True)


def _find_uncovered(setting: Setting) -> Iterator[Loosened]:
    is_about_tests = re.search(r"test|python_", setting.key) is not None
    if setting.was:
        yield from _find_lost_value(setting, is_about_tests=is_about_tests)
    elif is_about_tests:
        yield from _find_narrowed_tests(setting)
    else:
        source = next(filter(_SOURCE_FILE.search, setting.now), None)
        if source is not None:
            yield Loosened(f"now names {source!r} alone.", source, warn=True, counts_if_used=True)


def _find_lost_value(setting: Setting, *, is_about_tests: bool) -> Iterator[Loosened]:
    lost = next((value for value in setting.was if value not in setting.now), None)
    if lost is None or not setting.now:
        return
    warn = bool(setting.added) and not is_about_tests
    is_narrowed = any(value.startswith(f"{lost.rstrip('/*')}/") for value in setting.added)
    yield Loosened(f"no longer names {lost!r}.", lost, warn=warn, is_loss=True, counts_if_used=is_narrowed)


def _find_narrowed_tests(setting: Setting) -> Iterator[Loosened]:
    for value in setting.now:
        is_file = "*" not in value and (".py" in value or "/" in value.strip("*/."))
        if is_file or ("python_" in setting.key and "est" not in value):
            yield Loosened(f"now narrows the tests to {value!r}.", value)


_FAMILIES: tuple[tuple[str, Callable[[Setting], Iterator[Loosened]]], ...] = (
    (r"(addopts|commands?|args)$", _compare_flags),
    (r"(^|\.)follow_imports$", _find_skipped_imports),
    (r"(^|\.)(rules|lints|report\w+|linter\.rules)\b", partial(_compare_amounts, sign=1, unset=1)),
    (r"^[\w-]+-threshold$|status\b.*threshold|max[-_]?(complexity|warnings|args|branches|returns|statements|locals|line[-_]?length)|line-length|cognitive", partial(_compare_amounts, sign=-1)),
    (r"fail[-_]under|threshold|check-coverage|(^|\.)minimum|\.target$|(^|\.)min-?(coverage|score)|cov-fail-under", partial(_compare_amounts, sign=1, is_asked=True)),
    (r"(^|[._-])(ignore_missing_imports|ignore_errors|skipLibCheck|skipTests|maven\.test\.skip|skipITs|skip|testFailureIgnore|ignoreFailures|passWithNoTests|"
     r"allow_untyped_\w+|allow_any_\w+|noCheck|suppress\w+|skip_covered_files|ignoreBuildErrors|ignoreDuringBuilds|allowUnreachableCode)$", partial(_compare_amounts, sign=-1, unset=0)),
    (r"(^|[._-])(strict\w*|alwaysStrict|disallow_\w+|check_untyped_defs|warn_\w+|no_implicit\w*|noImplicit\w+|noUnused\w+|noFallthrough\w+|noUnchecked\w+|"
     r"exactOptional\w+|xfail_strict|fail_on_\w+|failOn\w+|enabled|branch|extra_checks|checkJs|reportUnused\w+|deny_warnings|failsOnError|all)$|^(test|lib|bin)\.(test|harness|doctest)$|autotests$", partial(_compare_amounts, sign=1, unset=1, is_asked=True)),
    (r"(^|[._-])(ignores?|excludes?|omit|disabled?|disable[-_]error[-_]code|skips?|norecursedirs|collect_ignore|deselect|exclusions?|exclude[-_](lines|also|rules|files|dirs|paths)|"
     r"ignore[-_]?(paths?|names|patterns)|\w*IgnorePatterns|collect_ignore_glob)$|per-file-ignores|overrides\.rules$|^test\.required-features$", _find_hidden),
    (r"(^|[._-])(select|enable|include|testpaths|python_(files|functions|classes)|testMatch|testRegex|roots|source|source_pkgs|packages|files|"
     r"collectCoverageFrom|extends|hooks\.id|rule)$", _find_uncovered),
)  # fmt: skip


def _find_loosened(setting: Setting) -> Iterator[Loosened]:
    """What the first family that the key belongs to says."""
    judges = (judge for keys, judge in _FAMILIES if re.search(keys, setting.key, re.I))
    wording = f"{setting.key} {' '.join(setting.added)}"
    for loosened in next(judges, lambda _: iter(()))(setting):
        if not _USUAL.search(wording):
            yield loosened


_DIRECTIVE = regex(
    r"(?:^\s*|[#*/]\s*|\s{2,})(?P<what>(?:ruff: |flake8: )?noqa\b|type:\s*ignore|mypy:\s*(?:ignore|disable|allow)[\w-]*|pragma:\s*no\s*(?:cover|branch)|pylint:\s*disable|"
    r"pyright:\s*(?:ignore|basic)|pyre-ignore|nosec\b|eslint-disable(?:-next-line|-line)?|oxlint-disable[\w-]*|@ts-ignore|@ts-nocheck|@ts-expect-error|"
    r"tslint:disable[\w:-]*|biome-ignore\b|deno-lint-ignore[\w-]*|nolint\b|lint:ignore\b|NOSONAR\b|NOLINT\w*|(?:istanbul|c8|v8) ignore|"
    r"CHECKSTYLE:OFF|noinspection\b|coverage:ignore\w*|shellcheck disable)(?P<rest>[^\n]*)"
)
_ABOUT_TYPES = regex(r"type:|mypy:|pyright:|pyre-|@ts-|@(\w+\.)?no_type_check")
_ABOUT_COVERAGE = regex(r"pragma:\s*no|(istanbul|c8|v8) ignore|coverage:ignore")
_UNNAMED = regex(r"pragma|@ts-|NOSONAR|ignore (next|if|else|file|start)|(istanbul|c8|v8) ignore|CHECKSTYLE|coverage")  # fmt: skip
_WHOLE = regex(r"(ruff|flake8|mypy): ?|pyright: basic|eslint-disable$|ts-nocheck|tslint:disable$|ignore-file")
_CODE = regex(r"\s*[:=\[(]?\s*([@\w][\w@./:-]*(?:\s*,\s*[@\w][\w@./:-]*)*)[\])]?")
_ATTRIBUTE = regex(r"@ SuppressWarnings \( (?P<java>[^)]*) \)|@ SuppressFBWarnings\b|# !? ?\[ (?:allow|expect) \( (?P<rust>[^\]]*) \]|@ (?:\w+ \. )?no_type_check\b")  # fmt: skip
_BROAD = regex(
    r'#!|"all"|no_type_check|clippy::all|warnings|unused\)|dead_code|clippy::(pedantic|correctness|suspicious)'
)
_COMPILER_WARNING = regex(
    r'@SuppressWarnings\(\{?(?:,?"(?:unchecked|rawtypes|deprecation|removal|serial|unused|cast)")+\}?\)'
)
"""Warnings of javac, which fail no build unless it asks for that."""
_PLAIN = regex(r"TYPE_CHECKING|__main__|abstractmethod|NotImplementedError|@overload|^\s*\.\.\.")


@dataclass(frozen=True)
class Suppression:
    """One such place."""

    path: str
    what: str
    line: int
    text: str
    is_narrow: bool
    """It names a rule, and holds for a line or a function."""
    reasoned: bool
    """It says why."""
    directive: str = ""
    """What it says, without the rule that it names."""


def find_suppressions(work: Comparison) -> Iterator[Finding]:
    """Places that are new; a line that was moved is not."""
    was = [place for path, source in work.before.items() for place in _read_suppressions(source, path)]
    now = [place for source in work.new for place in _read_suppressions(source, source.path)]
    gone = list(find_gained(now, was, _get_text))
    fresh = list(find_gained(was, now, _get_text))
    kept = list(find_gained(fresh, gone, _get_place))
    added = list(find_gained(gone, fresh, _get_place))
    # One that names its rule now and did not before turns off less.
    widened = Counter((place.path, place.directive) for place in kept if not place.is_narrow)
    for place in added:
        if place.is_narrow and widened[place.path, place.directive]:
            widened[place.path, place.directive] -= 1
        else:
            yield _report_suppression(work, place)


def _get_text(place: Suppression) -> str:
    return place.text


def _get_place(place: Suppression) -> tuple[str, str]:
    return place.path, place.what


def _report_suppression(work: Comparison, place: Suppression) -> Finding:
    if not place.is_narrow:
        how = " without naming a rule, or for a whole file"
    elif not place.reasoned:
        how = " without a reason"
    else:
        how = ", with a reason"
    kind = _find_checker_of_comment(place.what)
    is_used = work.may_use(kind) and not _COMPILER_WARNING.fullmatch(place.what)
    unused = "" if is_used else " The criterion does not use that checker."
    sentence = f"`{place.what}` turns a check off in {place.path}{how}.{unused}"
    # Words excuse nothing if the checker decides: `@ts-expect-error` names no rule, and to pass may be all that is asked.
    is_excused = place.reasoned and not (kind != "lint" and work.is_only_check(kind))
    is_excused = is_excused and not (place.directive == "@ts-expect-error" and work.is_tool_the_check(kind))
    warn = not is_used or (place.is_narrow and (is_excused or is_test_path(place.path)))
    return make_finding(Rule.CHECK_DISABLED, place.path, place.line, sentence, place.text, warn=warn)


def _find_checker_of_comment(directive: str) -> str:
    """The kind of checker that a directive speaks to."""
    if _ABOUT_TYPES.match(directive):
        return "types"
    return "coverage" if _ABOUT_COVERAGE.match(directive) else "lint"


def _read_suppressions(source: SourceFile, path: str) -> Iterator[Suppression]:
    lines = ["", *(line.strip() for line in source.text.splitlines()), ""]
    comments = [(line, text) for line, text in source.comments if line < len(lines)]
    plain = [line for line, text in comments if not _DIRECTIVE.search(text) and len(text.split()) > 2]
    # A comment above a line may say why.
    explained = {line + 1 for line in plain if lines[line][:1] in "#/*"}
    for line, text in comments:
        for match in _DIRECTIVE.finditer(re.sub(r"^(#|//|/\*+|\")!?", "", text)):
            yield _read_directive(match, path, line, lines[line], is_explained=line in explained)
    for unit in source.everything:
        for match in _ATTRIBUTE.finditer(unit.text):
            line, what = unit.line_of(match.start()), match[0].replace(" ", "")
            beside = re.search(r"(//|/\*)\s*\S+ \S+", lines[line]) or 'reason = "' in match[0] or line in explained
            yield Suppression(
                path=path,
                what=what,
                line=line,
                text=lines[line],
                is_narrow=not _BROAD.search(what),
                reasoned=bool(beside),
            )


def _read_directive(match: re.Match[str], path: str, line: int, text: str, *, is_explained: bool) -> Suppression:
    """A comment that turns a checker off, such as `# noqa: F401  the plugin registers itself`."""
    what, rest = re.sub(r":\s*", ": ", match["what"]), match["rest"]
    has_no_name = _UNNAMED.search(what) or re.match(r"\s+(-|#|//)", rest)
    named = None if has_no_name else _CODE.match(rest)
    words = re.sub(r"[^\w ]", "", rest[named.end() if named else 0 :]).split()
    is_usual = what == "@ts-expect-error" or bool("no" in what and _PLAIN.search(text))
    has_reason = len(words) > 1 or is_explained or (is_usual and what[0] != "@")
    return Suppression(
        path=path,
        what=f"{what} {named[1]}" if named else what,
        line=line,
        text=text,
        is_narrow=(named is not None or is_usual) and not _WHOLE.search(what),
        reasoned=has_reason,
        directive=what,
    )


_STUBS = regex(r"(^|/)(stubs?|typings|types|typeshed|[\w-]+-stubs)/")
"""Where stubs of other people's packages are kept."""


def find_hiding_stubs(work: Comparison) -> Iterator[Finding]:
    """New `.pyi` files: a type checker reads them in place of the modules beside them."""
    for change in work.files:
        is_new_stub = change.path.endswith(".pyi") and change.old is None and not _STUBS.search(change.path)
        if is_new_stub and work.is_tool_the_check("types"):
            sentence = f"{change.path} hides the module of that name from the type checker."
            yield make_finding(Rule.CHECK_DISABLED, change.path, 1, sentence)


_TYPED = regex(r"(?<!\.d)\.([cm]?tsx?|pyi?)$")
_ANYS = {
    "js": regex(
        r"(?P<cast>\bas any\b|\bas unknown as\b|(?<=[=(,:] )< any >)|\w+ [!?]? ?(?P<whole>: any)\b(?! [(:.])|[<,|] (?P<part>any) [>,|\[]"
    ),
    "python": regex(
        r'(?P<cast>\bcast \( (?:\w+ \. )?"?Any\b)|(?<!\* )\b\w+ (?P<whole>: (?:\w+ \. )?Any)\b(?! [\[.])|(?P<result>-> (?:\w+ \. )?Any)\b'
    ),
}
_CAUGHT = regex(r"catch \( \w+ $")


def find_any_types(work: Comparison) -> Iterator[Finding]:
    """Files with a new `any`, if the change has more of them in all than before."""
    was, now = (
        [(unit, match) for unit in units for match in _find_anys(unit)]
        for units in (work.replaced_units, work.changed_units)
    )
    found: dict[str, list[tuple[Unit, re.Match[str]]]] = {}
    for place in find_gained(was, now, lambda place: place[1][0]) if len(now) > len(was) else ():
        found.setdefault(place[0].path, []).append(place)
    for path, places in found.items():
        silent = [place for place in places if _silences(work, *place)]
        unit, match = (silent or places)[0]
        others = f" and {len(places) - 1} more" if len(places) > 1 else ""
        sentence = f"`{match[0]}`{others} in {path}: a type checker does not check `any`."
        yield work.report(Rule.CHECK_DISABLED, path, unit.line_of(match.start()), sentence, warn=not silent)


def _silences(work: Comparison, unit: Unit, match: re.Match[str]) -> bool:
    """Whether a checker runs, and would have had something to say: of code that is new, Python's may be honestly `Any`."""
    before, origin, is_js = work.before.get(unit.path), work.origin.get(unit), unit.language == "js"
    was_typed = before is None or bool(_TYPED.search(before.path))
    annotation = rf"\b{re.escape(match[0].split()[0])} [:=]" if match.lastgroup != "result" else "->"
    was_annotated = origin is not None and (is_js or bool(re.search(annotation, origin.text)))
    is_bent = match.lastgroup == "cast" or (match.lastgroup == "whole" and is_js)
    return "types" in work.kinds and was_typed and (is_bent or was_annotated)


def _find_anys(unit: Unit) -> Iterator[re.Match[str]]:
    """A `cast`, the `whole` type of a name, a `part` of one, or the `result` of a function."""
    judged = not unit.in_tests and not is_build_code(unit.path) and _TYPED.search(unit.path)
    for match in _ANYS[unit.language].finditer(unit.text) if judged else ():
        if not _CAUGHT.search(unit.text[: match.start(match.lastgroup or 0)]):
            yield match

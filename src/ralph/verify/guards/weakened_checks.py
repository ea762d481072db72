"""What the checks run, followed through recipes, scripts and pipelines: it may ask for more, never for less."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ralph.core.checks import Finding, Rule
from ralph.core.text import regex
from ralph.verify.changed_files import FileChange, detect_language, is_ignored, is_pipeline, is_recipe, make_finding
from ralph.verify.guards.commands import CommandTree, find_eased, find_lost_steps, runs_check, split_commands
from ralph.verify.guards.comparison import Comparison

_SHELL = regex(r"\.(sh|bash|zsh)$|(^|/)(\.husky/|Dockerfile|noxfile\.py$)")
_CHECKS = regex(r"(?i)(^|[/_.-])(run_?(all|tests?)|check|verify|validate|tests?|accept|smoke|lint|ci|e2e)[^/]*$|(^|/)(scripts?|tools?|ci|hack)/")  # fmt: skip
"""Programs that are there to check, going by their names; others are run by checks because they are the product."""
_MATRIX = regex(r"(?m)^\s*([\w-]+):\s*\[([^\]\n]*)\]")
_CELL = regex(r"\$\{\{\s*matrix\.([\w-]+)\s*\}\}")
_FIRST = regex(r"(^|/)GNUmakefile$")
"""What is taken before a file of another name, which need not be known here."""
_JOB = regex(r"(?m)^( +)([\w-]+):")
_STEP = regex(r"(?m)^( +)- ")
_IDLE = regex(r"(?:echo\b.*|true|:|exit 0|node -e .*exit\(0\).*)$")
_FAILS = regex(r"\bassert\b|\braise\b|\bthrow\b|exit\s*\((?!\s*0?\s*\))|\bfail\w*\(|check=True|returncode")
_HOOK = regex(r"pytest_(?!addoption|generate_tests|make_parametrize_id|report_header)\w+$")
_ALTERS = regex(
    r"\boutcome\b|exitstatus|wasxfail|\bskip\b|\bxfail\b|deselect|items \[ : \]|items \. (?:clear|remove|pop)|force_result|longrepr|_exit\b|sys \. exit|"
    r"return True|del items|testsfailed|option \. (?:keyword|markexpr|deselect|ignore)|excinfo ="
)
_SHADOW = regex(r"^(?:src/|lib/|tests?/)?(?:pytest|unittest|_pytest|nose|jest|vitest|mocha|assert|sitecustomize|usercustomize)(?:/__init__|/index)?\.(?:py|js|ts)$")  # fmt: skip


def find_weakened_checks(work: Comparison) -> Iterator[Finding]:
    """All findings about what the checks run."""
    yield from _find_altering_hooks(work)
    files = [change for change in work.files if not is_ignored(change.path) and change.old != change.new]
    if not files:
        return
    reached: set[str] = set()
    if work.checks:
        # A script that the checks named before it was there is what the task asked for.
        created = [c for c in files if c.old is None and c.renamed_from is None and not is_recipe(c.path)]
        before = CommandTree({**{c.path: c.new or "" for c in created}, **work.texts_before})
        for command in work.checks:
            yield from _compare_command(command, before, work.tree_now, files)
            before.expand([command], reached)
    yield from _compare_pipelines(work, files)
    for change in files:
        yield from _compare_file(change, is_reached=(change.renamed_from or change.path) in reached)


def _compare_file(change: FileChange, *, is_reached: bool) -> Iterator[Finding]:
    """A file that may be run by the checks, or is known to be."""
    path, old = change.renamed_from or change.path, change.old
    is_check = bool(_CHECKS.search(path))
    is_shell = bool(_SHELL.search(path))
    if old is None and _SHADOW.search(path):
        yield make_finding(Rule.VERIFIER_EDITED, path, 1, f"{path} replaces a test framework.")
    elif is_reached and old is not None:
        if is_check and detect_language(path):
            yield from _compare_program(change, old)
    elif is_reached:
        if is_check or is_shell:
            yield _report_new_check(change)
    elif is_shell:
        yield from _compare_script(change)


def _compare_command(
    command: str, before: CommandTree, now: CommandTree, changes: Sequence[FileChange]
) -> Iterator[Finding]:
    """A command of the checks before and now."""
    reached_before: set[str] = set()
    reached: set[str] = set()
    asked, asks = before.expand([command], reached_before), now.expand([command], reached)
    is_idle = asks == [command] or all(map(_IDLE.match, asks))
    gone = asked if is_idle else [step.text for step in find_lost_steps(asked, asks)]
    files = [c for c in changes if {c.path, c.renamed_from} & (reached_before | reached)]
    if asked == asks:
        return
    if reached_before or is_idle or any(_FIRST.search(file.path) for file in files):
        yield from _report_less([*find_eased(asked, asks), *gone], f"the check `{command[:60]}`", files)
    else:
        yield from map(_report_new_check, files)


def _compare_pipelines(work: Comparison, changes: Sequence[FileChange]) -> Iterator[Finding]:
    """All pipelines together, for jobs move between them."""
    files = [c for c in changes if is_pipeline(c.path) or is_pipeline(c.renamed_from or "")]
    if not files:
        return
    was = work.tree_before.expand([line for c in files for line in _expand_matrix(c.old or "")])
    kept = [drop_added_jobs(c.old or "", c.new or "") for c in files]
    known = work.tree_now.expand([line for text in kept for line in _expand_matrix(text)])
    now = work.tree_now.expand([line for c in files for line in _expand_matrix(c.new or "")])
    gone = [
        *(step.text for step in find_lost_steps(was, now) if step.is_known),
        *sorted(_read_events(was) - _read_events(now)),
    ]
    yield from _report_less([*find_eased(was, known), *gone], "which runs checks", files)


def drop_added_jobs(old: str, new: str) -> str:
    """A pipeline without the jobs and steps that it gained: they cannot ask for less than what was there before."""
    known = dict(_read_jobs(old))
    kept = new
    for name, block in _read_jobs(new):
        if name not in known:
            kept = kept.replace(block, "", 1) if known else kept
            continue
        had, has = _read_steps(known[name]), _read_steps(block)
        if Counter(had) - Counter(has):
            continue
        for step in Counter(has) - Counter(had):
            kept = kept.replace(step, "", 1)
    return kept


def _read_jobs(text: str) -> list[tuple[str, str]]:
    """The jobs of a GitHub workflow, with their lines."""
    _, _, jobs = text.partition("\njobs:")
    keys = list(_JOB.finditer(jobs))
    depth = min((len(key[1]) for key in keys), default=0)
    heads = [key for key in keys if len(key[1]) == depth]
    ends = [*(head.start() for head in heads), len(jobs)]
    return [(head[2], jobs[head.start() : end]) for head, end in zip(heads, ends[1:], strict=True)]


def _read_steps(job: str) -> list[str]:
    """The steps of a job, with their lines."""
    heads = list(_STEP.finditer(job))
    depth = min((len(head[1]) for head in heads), default=0)
    starts = [head.start() for head in heads if len(head[1]) == depth]
    ends = [*starts, len(job)]
    return [job[start:end].rstrip("\n") for start, end in zip(starts, ends[1:], strict=True)]


def _compare_program(change: FileChange, old: str) -> Iterator[Finding]:
    """A script of the checks that is a program: the ways in which it can fail count."""
    text = change.new or ""
    gone = [step.text for step in find_lost_steps(split_commands(old), split_commands(text)) if step.is_known]
    if len(_FAILS.findall(text)) < len(_FAILS.findall(old)):
        gone += [line.strip() for line in old.splitlines() if _FAILS.search(line) and line not in text]
    yield from _report_less(gone, "which the checks run", [change])


def _compare_script(change: FileChange) -> Iterator[Finding]:
    """A script of which it is not known that checks run it."""
    was, now = split_commands(change.old or ""), split_commands(change.new or "")
    for text in find_eased(was, now) if change.new is not None else ():
        sentence = f"A failure in {change.path} no longer counts: `{text[:100]}`."
        warn = change.old is None and not runs_check(text)
        yield make_finding(Rule.ERROR_SWALLOWED, change.path, _find_line(change.new, text), sentence, text, warn=warn)


def _report_less(texts: Sequence[str], what: str, files: Sequence[FileChange]) -> Iterator[Finding]:
    for text in texts[:1] if files else ():
        holds = (file for file in files if text in " ".join(f"{file.new} {file.old}".split()))
        file = next(holds, files[0])
        sentence = f"{file.path} asks for less than before ({what}): see `{text[:100]}`."
        yield make_finding(Rule.VERIFIER_EDITED, file.path, _find_line(file.new, text), sentence, text)


def _report_new_check(change: FileChange) -> Finding:
    """A check that was not there before is what the task asked for, and yet the agent's own."""
    sentence = f"The run wrote the part of {change.path} that the checks execute, so it wrote its own check."
    return make_finding(Rule.VERIFIER_EDITED, change.path, 1, sentence, warn=True)


def _expand_matrix(text: str) -> Iterator[str]:
    """The lines of a pipeline, once for each value of its matrix that they name."""
    values = {name: re.split(r"\s*,\s*", inside.strip()) for name, inside in _MATRIX.findall(text)}
    for line in split_commands(text):
        name = next((name for name in _CELL.findall(line) if name in values), None)
        yield from (_CELL.sub(value.strip("'\""), line) for value in values[name]) if name else (line,)


def _find_altering_hooks(work: Comparison) -> Iterator[Finding]:
    """Hooks of pytest that decide what a result is; to run slow tests only on request is a known way."""
    heads = " ".join(unit.head_text for unit in work.changed_units if unit.is_test and unit in work.origin)
    marked = set(re.findall(r"mark \. (\w+)", heads))
    for unit in work.changed_units:
        if _HOOK.match(unit.name) and _ALTERS.search(unit.body_text):
            on_request = "getoption (" in unit.text and ". keywords" in unit.text
            on_request = on_request and not marked & set(re.findall(r'"(\w+)"', unit.text))
            sentence = f"The hook {unit.name} in {unit.path} alters what tests report."
            yield make_finding(Rule.VERIFIER_EDITED, unit.path, unit.line, sentence, unit.text, warn=on_request)


def _read_events(lines: list[str]) -> set[str]:
    """The events that start a pipeline."""
    heads = " ".join(line for line in lines if re.match(r"on:|(push|pull_request):?", line))
    return set(re.findall(r"\b(push|pull_request)\b", heads))


def _find_line(text: str | None, wanted: str) -> int:
    lines = (text or "").splitlines()
    return next((number for number, line in enumerate(lines, 1) if wanted and wanted in " ".join(line.split())), 1)

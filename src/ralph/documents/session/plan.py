"""What a session is planned from and what planning writes, as far as the engine reads it.

`<session>.instructions.md` has the limits that the user or the planner set, in front matter or as bullets.
`feedbacks/<stamp>/feedbacks.md` has the user's feedback on an iteration: roles read it, the engine only sees changes.
`plan.md` has goal and success criteria. `questions/<category>.md` has what was asked and answered in each cycle.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ralph.core.errors import StateError
from ralph.documents.session.markdown import BOM, Page, Section, bare, fields, parse_bullets, row
from ralph.documents.session.values import (
    Reader,
    choice,
    count,
    find_first,
    number_of,
    read_front_matter,
    read_front_values,
    read_text,
    read_words,
    with_front_matter,
)
from ralph.documents.yaml_codec import dump

_SETTING_BULLET = re.compile(r"\s*[-*+]\s+[*_`]*([A-Za-z][\w.]*)[*_`]*\s*:[*_`]*\s*(.*?)(?:\s+#.*)?")
_CATEGORY = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class SessionLimits:
    """The limits of a session."""

    max_cycles: int = 2
    max_retries: int | None = None
    """How often a failed turn is tried again; None for the default of the engine."""
    task_wip_minutes: float = 60
    max_executors: int = 3
    max_reviewers: int = 3
    max_questioners: int = 3
    rework_attempts: int = 3
    """Attempts at a task in an iteration before it waits for the user."""
    categories: tuple[str, ...] = ("technical", "requirements", "constraints", "assumptions", "risks")
    approval: str = "auto"
    """`auto`, `signal` or `skip`: who says that what was learned is kept."""
    approval_minutes: float | None = None
    """How long a run waits for the user's word on what was learned; None if it ends at once and waits for a command."""
    severity_threshold: str = "any"
    """`any`, `major` or `critical`: the issues of a review that count."""
    max_critique_cycles: int = 1
    """How often a review may send the session back by itself."""


def _read_minutes(value: Any) -> float:
    try:
        minutes = float(re.sub(r"\s*min(?:ute)?s?$", "", read_text(value)))
    except ValueError:
        minutes = 0
    if not 0 < minutes < 1e6:
        raise ValueError("a number of minutes")
    return minutes


def _read_categories(value: Any) -> tuple[str, ...]:
    names = read_words(value)
    if not names or not all(_CATEGORY.fullmatch(name) for name in names):
        raise ValueError("a list of words in lower case")
    return names


_SETTINGS: Mapping[str, tuple[str, Reader]] = {
    "planning.max_cycles": ("max_cycles", count(0)),
    "planning.categories": ("categories", _read_categories),
    "retries.max_subagent_retries": ("max_retries", count(0)),
    "timeouts.task_wip_minutes": ("task_wip_minutes", _read_minutes),
    "concurrency.max_parallel_executors": ("max_executors", count(1)),
    "concurrency.max_parallel_reviewers": ("max_reviewers", count(1)),
    "concurrency.max_parallel_questioners": ("max_questioners", count(1)),
    "rework.max_attempts": ("rework_attempts", count(1)),
    "knowledge.approval": ("approval", choice(("auto", "signal", "skip"))),
    "knowledge.approval_timeout_minutes": ("approval_minutes", _read_minutes),
    "session_review.issue_severity_threshold": ("severity_threshold", choice(("any", "major", "critical"))),
    "session_review.max_critique_cycles": ("max_critique_cycles", count(0)),
}
_SETTING_PATHS = {key.rpartition(".")[2]: key for key in _SETTINGS} | {key: key for key in _SETTINGS}


def parse_instructions(text: str, where: str = "") -> SessionLimits:
    """The limits in a file; what it does not set stays as usual, and one that cannot be read is an error."""
    found: dict[str, Any] = {}
    faults = []
    for line, key, value in _find_settings(text, where):
        name, read = _SETTINGS[key]
        if read_text(value) not in ("", "null", "~"):
            try:
                found[name] = read(value)
            except ValueError as error:
                faults.append(f"line {line}: `{key}` must be {error}, and is {read_text(value)[:40]}")
    if faults:
        raise StateError("\n".join(faults), where=where, todo="correct the file")
    return SessionLimits(**found)


def render_instructions(session: str, home: str, *, is_parallel: bool) -> str:
    """The instructions of a session for which nobody wrote any: the usual limits that hold in it, to be changed."""
    usual = SessionLimits()
    front: dict[str, Any] = {"applyTo": f"{home}/**"}
    if is_parallel:
        front["concurrency"] = {
            "max_parallel_executors": usual.max_executors,
            "max_parallel_reviewers": usual.max_reviewers,
            "max_parallel_questioners": usual.max_questioners,
        }
    front["planning"] = {"max_cycles": usual.max_cycles}
    front["rework"] = {"max_attempts": usual.rework_attempts}
    front["timeouts"] = {"task_wip_minutes": int(usual.task_wip_minutes)}
    if is_parallel:
        front["knowledge"] = {"approval": usual.approval}
    text = "Every role reads this file. Change the limits above, or add what every role must know."
    return f"---\n{dump(front)}---\n# Instructions for session {session}\n\n{text}\n"


_REQUEST_HEADING = "## The user's request"


def with_request(text: str, request: str) -> str:
    """Instructions that also say what the user asked for. If all other files are lost, Ralph reads it there.

    It is quoted, so that no line of it counts as a limit or a heading.
    """
    if find_request(text) or not request.strip():
        return text
    quoted = "\n".join(f"> {line}".rstrip() for line in request.strip().splitlines())
    return f"{text.rstrip()}\n\n{_REQUEST_HEADING}\n\n{quoted}\n"


def find_request(text: str) -> str:
    """What the user asked for, by the instructions; empty if they do not say it."""
    _, _, below = text.replace("\r\n", "\n").rpartition(f"\n{_REQUEST_HEADING}\n")
    quoted = [line[1:].removeprefix(" ") for line in below.splitlines() if line.startswith(">")]
    return "\n".join(quoted).strip()


def without_request(text: str) -> str:
    """Instructions without what the user asked for, which roles read elsewhere."""
    above, heading, _ = text.replace("\r\n", "\n").rpartition(f"\n{_REQUEST_HEADING}\n")
    return f"{above.rstrip()}\n" if heading and find_request(text) else text


def _find_settings(text: str, where: str) -> Iterator[tuple[int, str, Any]]:
    """The line, path and value of every setting; those that count come last."""
    page = Page(text)
    front = read_front_matter(page, where)
    front_paths = [path for path in _SETTING_PATHS if front.has(path)]
    front_keys = {_SETTING_PATHS[path] for path in front_paths}
    for number, line in enumerate(page.prose, 1):
        match = _SETTING_BULLET.fullmatch(line)
        key = _SETTING_PATHS.get(match[1]) if match else None
        if match and key and key not in front_keys:
            yield number, key, match[2].strip("*`\"' ")
    for path in front_paths:
        yield front.line(path), _SETTING_PATHS[path], front.get(path)


def hash_feedback(text: str) -> str:
    """A hash that changes with a batch, but not with the ends of its lines or blank lines at its end."""
    plain = text.removeprefix(BOM).replace("\r\n", "\n").rstrip()
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def complete_feedback(
    text: str, iteration: int, stamp: str, timestamp: str, artifacts: Sequence[str] = (), earlier: Iterable[str] = ()
) -> str:
    """Feedback of any form as a batch: with front matter, a heading, and an index of its files.

    A text without any heading becomes one critical issue, and a list one for each item. `earlier` are the other batches
    of the session: no issue gets an id that one of them has.
    """
    page = Page(text.replace("\r\n", "\n"))
    taken = {id for batch in earlier for id in list_issue_ids(batch)}
    body = "\n".join(page.lines[page.body :]).strip()
    if not page.sections:
        body = "\n".join(["## Critical Issues", *_list_issues(body, taken)])
    front = {"iteration": iteration, "timestamp": timestamp, "previous_iteration": iteration - 1}
    whole = _complete_page(page, body, heading=f"Feedback Batch: {stamp}", front=front, artifacts=artifacts)
    return renumber_issues(whole, taken)[0]


def complete_update(text: str, number: int, timestamp: str, artifacts: Sequence[str] = ()) -> str:
    """An update of a classic session, of any form: with front matter, a heading, and an index of its files."""
    page = Page(text.replace("\r\n", "\n"))
    body = "\n".join(page.lines[page.body :]).strip()
    front = {"update": number, "timestamp": timestamp}
    return _complete_page(page, body, heading=f"Update {number}", front=front, artifacts=artifacts)


def _complete_page(
    page: Page, body: str, *, heading: str, front: Mapping[str, object], artifacts: Sequence[str]
) -> str:
    """The body of a page with front matter, a heading, and an index of its files, as far as the page has none."""
    if not any(section.level == 1 for section in page.sections):
        body = f"# {heading}\n\n{body}"
    index = page.section("artifacts index")
    rows = [row(name, "") for name in artifacts if index is None or name not in "\n".join(index.lines)]
    if index is None:
        body += "\n\n" + "\n".join(("## Artifacts Index", *_INDEX_HEAD, *rows))
    kept = page.front if page.body else ""
    whole = f"---\n{kept.strip()}\n---\n\n{body}\n" if kept.strip() else f"{body}\n"
    if index is not None and rows:
        at = Page(whole)
        found = at.section("artifacts index")
        whole = at.insert_lines(found.end, rows) if found else whole
    given = read_front_values(page)
    # A copy of earlier feedback has other numbers, and the place says which this is.
    changed = {key: value for key, value in front.items() if key not in given or key != "timestamp"}
    return with_front_matter(whole, "feedbacks.md", changed)


def renumber_issues(text: str, taken: Collection[str]) -> tuple[str, dict[str, str]]:
    """A batch of feedback in which no issue has an id that is taken, and the new ids by the old ones."""
    own = list_issue_ids(text)
    new_ids: dict[str, str] = {}
    for id in own:
        if id in taken and id not in new_ids:
            prefix = id.rpartition("-")[0]
            new_ids[id] = _find_free_id(prefix, {*taken, *own, *new_ids.values()})
    renumbered = _ISSUE_ID.sub(lambda found: new_ids.get(found[0], found[0]), text) if new_ids else text
    return renumbered, new_ids


def _find_free_id(prefix: str, taken: Iterable[str]) -> str:
    """The id of a new issue: one more than the highest that is taken."""
    numbers = [int(id.rpartition("-")[2]) for id in taken if id.rpartition("-")[0] == prefix]
    return f"{prefix}-{max(numbers, default=0) + 1:03d}"


def list_issue_ids(text: str) -> list[str]:
    """The ids of the issues that a batch of feedback defines. Those in comments are examples."""
    return [found[1] for line in Page(text).prose if (found := _ISSUE.match(line))]


_ISSUE_ID = re.compile(r"\b(?:ISS|Q)-\d{1,6}\b")
_ISSUE = re.compile(r"\s*[-*+] +(?:\[.\] +)?\**((?:ISS|Q)-\d{1,6})\b")


def _list_issues(text: str, taken: Collection[str]) -> list[str]:
    """A text without headings as critical issues. Lines that are no item of a list belong to the issue before them."""
    lines: list[str] = []
    ids = set(taken)
    for line in text.split("\n"):
        item = _ITEM.fullmatch(line)
        if item or not lines:
            id = _find_free_id("ISS", ids)
            ids.add(id)
            lines.append(f"- [ ] **{id}**: {(item[1] if item else line).strip()}")
        else:
            lines.append(f"  {line}".rstrip())
    return lines


_ITEM = re.compile(r"[-*] (?:\[.\] )?(?:\*\*ISS-\d+\*\*: )?(.*)")


def render_feedback_form(iteration: int, stamp: str, timestamp: str, artifacts: Iterable[str] = ()) -> str:
    """A form to fill in."""
    front = {"iteration": iteration, "timestamp": timestamp, "previous_iteration": iteration - 1}
    files = "\n".join((*_INDEX_HEAD, *(row(name, "") for name in artifacts)))
    return f"---\n{dump(front)}---\n\n# Feedback Batch: {stamp}\n{_FEEDBACK_FORM}\n## Artifacts Index\n{files}\n"


_INDEX_HEAD = (row("File", "Description"), "|------|-------------|")
_FEEDBACK_FORM = """
## Critical Issues
<!-- What must be fixed, one entry each:
- [ ] **ISS-001**: What is wrong
  - Evidence: app.log, lines 45-60
  - Suggested Fix: what could be done
-->

## Quality Issues
<!--
- [ ] **Q-001**: What could be better
-->

## New Requirements
<!--
- What else is wanted
-->
"""


_PLAN_LINE = re.compile(
    r"(?:[-*+]\s+)?[*_]*(Goal|Success Criteria|Target Files|Context|Approach)[*_]*\s*:[*_]*\s*(.*)", re.IGNORECASE
)
_UNFILLED = re.compile(r"\[[^\]]*\]|_?to be filled.*", re.IGNORECASE)


@dataclass(frozen=True)
class Plan:
    """What a plan is for."""

    goal: str = ""
    criteria: tuple[str, ...] = ()


def parse_plan(text: str) -> Plan:
    """The plan in a file, in sections or in lines, as far as it can be read."""
    page = Page(text)
    goal, criteria = _find_section(page, "goal"), _find_section(page, "success criteria")
    if not (goal or criteria):
        return _parse_key_lines(page)
    goal_lines = goal.own if goal else ()
    criteria_lines = criteria.own if criteria else ()
    goal_text = "\n".join(line for line in goal_lines if line.strip())
    bullets = [bullet for bullet in parse_bullets(criteria_lines) if not _UNFILLED.fullmatch(bullet.text)]
    return Plan(goal_text.strip(), tuple(bullet.whole for bullet in bullets))


def find_plan_problems(text: str) -> list[str]:
    """What the plan lacks, a sentence each."""
    plan = parse_plan(text)
    found = (("goal", plan.goal), ("success criteria", plan.criteria))
    return [f"line 1: the plan has no {name}" for name, value in found if not value]


def _find_section(page: Page, name: str) -> Section | None:
    """The section of that name, or one whose title begins with it or has it as a part."""
    near = [section for section in page.sections if section.level == 2 and name in re.split(r" & |/", section.name)]
    return page.section(name) or (near[-1] if near else None)


def _parse_key_lines(page: Page) -> Plan:
    """A plan of `Key: value` lines."""
    lines_by_key: dict[str, list[str]] = {}
    key = ""
    for line in page.prose:
        match = _PLAN_LINE.fullmatch(line)
        if match:
            key = match[1].casefold()
            lines_by_key[key] = [match[2]] if match[2] else []
        elif key and line.strip():
            lines_by_key[key].append(line)

    lines = lines_by_key.get("success criteria", [])
    found = [bullet.text for bullet in parse_bullets(lines)]
    if not found:
        found = ";".join(lines).split(";")
    criteria = [bare(text) for text in found]
    filled = tuple(text for text in criteria if text and not _UNFILLED.fullmatch(text))
    return Plan("\n".join(lines_by_key.get("goal", [])).strip(), filled)


CYCLE_SKIPPED = "Cycle skipped due to max_cycles"
_QUESTION_ID = re.compile(r"\bQ(?:-[A-Za-z]{1,8})?-\d{1,6}\b")
_CYCLE = re.compile(r".*\bcycle (\d{1,6})\b.*")


@dataclass(frozen=True)
class PlanQuestion:
    """How much a question matters, and whether it was answered."""

    priority: str = "Medium"
    """High, Medium or Low."""
    status: str = "Unanswered"
    """Unanswered, Answered or Research Needed."""


@dataclass(frozen=True)
class PlanQuestions:
    """The questions of a category."""

    cycle: int = 0
    """The highest cycle that there is; 0 before the first."""
    questions: Mapping[str, PlanQuestion] = field(default_factory=dict)

    @property
    def unanswered(self) -> list[str]:
        """Those without an answer and without research."""
        return [id for id, one in self.questions.items() if one.status == "Unanswered"]

    @property
    def open_high(self) -> list[str]:
        """The open ones of high priority."""
        return [id for id, one in self.questions.items() if one.status != "Answered" and one.priority == "High"]


def parse_questions(text: str) -> PlanQuestions:
    """The questions in a file, as far as they can be read."""
    page = Page(text)
    found: dict[str, PlanQuestion] = {}
    cycle = number_of(read_front_values(page).get("cycle")) or 0
    for section in page.sections:
        if match := _CYCLE.fullmatch(section.name):
            cycle = max(cycle, int(match[1]))
        said = fields(section.own)
        id = _QUESTION_ID.search(section.title) or _QUESTION_ID.search(said.get("id", ""))
        if id or (section.name.startswith("question ") and said):
            name = id[0] if id else bare(said.get("id", "")) or section.title
            found[name] = _merge_question(found.get(name, PlanQuestion()), said)
    return PlanQuestions(max(cycle, bool(found)), found)


def count_cycles(texts: Iterable[str]) -> int:
    """How many cycles of questions there were, in all files of them."""
    return max((parse_questions(text).cycle for text in texts), default=0)


def merge_questions(old: str, new: str) -> str:
    """The questions after another turn. Earlier questions stay, even if the turn left them out."""
    before, after = parse_questions(old), parse_questions(new)
    is_kept = after.cycle >= before.cycle and before.questions.keys() <= after.questions.keys()
    return new if is_kept or not old.strip() else f"{old.rstrip()}\n\n{new}"


def _merge_question(question: PlanQuestion, said: dict[str, str]) -> PlanQuestion:
    """A question with what a further section says of it: the question itself, or its answer."""
    status = _find_word(("Unanswered", "Answered", "Research Needed"), said.get("status", ""))
    if status != "Research Needed" and said.get("answer"):
        status = "Answered"
    priority = _find_word(("High", "Medium", "Low"), said.get("priority", ""))
    return PlanQuestion(priority or question.priority, status or question.status)


def _find_word(words: tuple[str, ...], text: str) -> str:
    """The word that a field holds; empty in a form that is not filled in."""
    return find_first(text, [(rf"\b{word}\b", word) for word in words]) or ""

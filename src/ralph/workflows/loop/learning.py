"""What an iteration teaches the next: what it changed about the failures, why they are there, and what to try.

What the agent or a reflector says comes first; else the failing checks say it by rule. An iteration about which nothing is
known teaches nothing. Prompts get the latest few lessons that are about what still fails, as many as the type of the task
deserves.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ralph.core.check_output import LONGEST_LINE, find_error_lines
from ralph.core.checks import Attribution, CheckStatus, Rule, Verdict
from ralph.documents.reflection import ReflectedCheck, Reflection, render
from ralph.workflows.loop.report import attribute_checks, find_newly_failing, list_names, name_check, name_iterations
from ralph.workflows.loop.state import PROFILES, Attempt, Iteration, LoopParameters, LoopState

Statuses = tuple[CheckStatus, ...]
CAP = 300
"""Characters of each part of a lesson."""
MAX_NAMES = 50
"""Failing tests that an iteration is remembered with."""
MAX_TRIED = 60
"""Different things that were tried without progress and are remembered; the oldest give way."""
_NAMED = 5
"""Tests that a lesson names."""
_SHARED = [field.name for field in fields(Reflection) if field.name in Iteration.__dataclass_fields__]
"""What a reflection says as its iteration does."""
_PLACE = re.compile(r'([\w./-]+\.\w{1,5}):(\d+)|File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Lesson:
    """What an iteration teaches."""

    what_failed: str
    why: str
    try_next: str
    news: str = ""
    """Which tests pass or fail since it."""

    @property
    def text(self) -> str:
        """The lesson in sentences, for the user. Empty if there is nothing to say."""
        then = f"Next to try: {_sentence(self.try_next)}" if self.try_next else ""
        return " ".join(part for part in (_sentence(self.why), then) if part) or self.news


def derive_lesson(iteration: Iteration, verdict: Verdict, state: LoopState) -> Lesson:
    """The lesson of an iteration whose checks did not pass: what the agent says first, then what the failure itself says."""
    why = iteration.why or _find_cause(iteration, verdict, state)
    then = iteration.try_next or _find_next_step(verdict)
    return Lesson(
        describe_failure(verdict),
        _shorten(why),
        _shorten(then),
        describe_changed_results(iteration.fixed, iteration.broken),
    )


def describe_failure(verdict: Verdict) -> str:
    """What fails: the tests by name, else the check, with the line that says most."""
    parts = []
    for result in verdict.not_passed:
        which = f"{list_names(result.failing, _NAMED)} ({name_check(result)})" if result.failing else name_check(result)
        parts.append(f"{which}: {' | '.join(find_error_lines(result.output, 2)) or result.reason}")
    parts += [f"[{f.rule}] {f.place} {f.sentence}" for f in verdict.blocking_findings]
    return _shorten("; ".join(parts))


def describe_changed_results(fixed: Sequence[str], broken: Sequence[str]) -> str:
    """What passes and what fails since an iteration; empty if that is the same as before."""
    sentences = []
    if fixed:
        sentences.append(f"Now passes: {list_names(fixed, _NAMED)}.")
    if broken:
        sentences.append(f"Now fails: {list_names(broken, _NAMED)}.")
    return " ".join(sentences)


def _find_cause(iteration: Iteration, verdict: Verdict, state: LoopState) -> str:
    """Why the checks fail, if it follows from what the run did; what they print is in the prompt anyway."""
    if verdict.blocking_findings:
        rules = {finding.rule for finding in verdict.blocking_findings}
        if rules == {Rule.OUT_OF_SCOPE}:
            return "the turn changed files outside the scope of the run"
        if rules == {Rule.CLEAN_ROOM}:
            return "the checks pass here, but not in a clean checkout of what git carries"
        return "the guards found changes that can make the checks pass without the work"
    if state.agent_error:
        return f"the agent's turn failed: {state.agent_error}"
    if flaky := [name_check(r) for r in verdict.not_passed if r.flaky]:
        return f"{', '.join(flaky)} is flaky: it gave different results for the same tree"
    changes = attribute_checks(verdict, state.baseline)
    regressed = [name_check(result) for result, what in changes if what is Attribution.REGRESSED]
    if regressed:
        return f"the changes broke {', '.join(regressed)}, which passed before"
    if failing := find_newly_failing(verdict, state.failed_before)[:3]:
        return f"{', '.join(failing)} did not fail before the run, and now {'does' if len(failing) == 1 else 'do'}"
    return "the turn changed no files" if not iteration.files and iteration.snapshot else ""


def _find_next_step(verdict: Verdict) -> str:
    """What to do first, as far as a rule can tell: nothing that the next prompt says anyway."""
    if verdict.blocking_findings and all(finding.rule is Rule.CLEAN_ROOM for finding in verdict.blocking_findings):
        return "make the checks pass with the files that git carries, without ignored files"
    if verdict.blocking_findings:
        places = ", ".join(dict.fromkeys(f.place for f in verdict.blocking_findings if f.line))
        what = f"the change at {places[:150]}" if places else "these changes"
        return f"undo {what}; if the task asks for it, keep it and say why"
    if flaky := [name_check(r) for r in verdict.not_passed if r.flaky]:
        return (
            f"find out why {flaky[0]} gives different results (time, order, network, randomness), and remove the cause"
        )
    for result in verdict.not_passed:
        for line in (*find_error_lines(result.output, 10), *result.output.splitlines()):
            if place := _PLACE.search(line[:LONGEST_LINE]):
                file, number = place[1] or place[3], place[2] or place[4]
                return f"find the cause of the first failure that {name_check(result)} reports, at {file}:{number}"
    return ""


def choose_lessons(state: LoopState, window: int) -> list[Iteration]:
    """The past iterations that the next prompt describes: the latest ones that say something about what still fails.

    Two that say the same are one; the later one counts. The last one is always there, if only to say what it did.
    """
    last = state.iterations[-1:]
    taught = [iteration for iteration in state.iterations[:-1] if iteration.learnings]
    still = set(state.failing)
    relevant = [*(one for one in taught if _is_relevant(one, still)), *last]
    different = {_lesson_of(one): one for one in relevant}
    return sorted(different.values(), key=lambda one: one.number)[-window:]


def _is_relevant(iteration: Iteration, still: set[str]) -> bool:
    """Whether something that failed then fails now; if the names do not say it, it may be."""
    known = iteration.failing
    return not known or not still or len(known) >= MAX_NAMES or bool(still.intersection(known))


def _lesson_of(iteration: Iteration) -> str:
    """What an iteration teaches, without what differs from one to the next."""
    lesson = f"{iteration.why} {iteration.try_next}".strip() or iteration.learnings
    return " ".join(lesson.lower().split())


def render_lessons(iterations: Sequence[Iteration], last: int, tried: Sequence[Attempt] = ()) -> str:
    """What past iterations did and learned, as a prompt says it. What is new since the last has a part of its own.

    `tried` is what had no success. It is named even if its lesson is not shown, so that no turn repeats it.
    """
    lines = [_render_lesson(iteration, tells_news=iteration.number != last) for iteration in iterations]
    shown = {iteration.number for iteration in iterations}
    others = [one for one in tried if shown.isdisjoint(one.iterations)]
    if others:
        lines += ["Also tried, and the same failures remained:", *(f"- {_name_attempt(one)}" for one in others)]
    return "\n".join(lines)


def _render_lesson(iteration: Iteration, *, tells_news: bool) -> str:
    """One past iteration: what it did, what failed then, why, and what it would do next."""
    own = Lesson("", iteration.why, iteration.try_next, describe_changed_results(iteration.fixed, iteration.broken))
    lines = [f"- Iteration {iteration.number}", f"  Did: {_shorten(iteration.action)}"]
    if failed := iteration.what_failed or iteration.result:
        lines.append(f"  Failed: {_shorten(failed)}")
    if own.news and tells_news:
        lines.append(f"  {own.news}")
    if iteration.learnings not in (own.text, own.news):
        # The user wrote something else into the document.
        if iteration.learnings:
            lines.append(f"  Learned: {_shorten(iteration.learnings)}")
        return "\n".join(lines)
    if iteration.why:
        lines.append(f"  Why: {_shorten(iteration.why)}")
    if iteration.try_next:
        lines.append(f"  Next: {_shorten(iteration.try_next)}")
    return "\n".join(lines)


def add_attempt(tried: Sequence[Attempt], iteration: Iteration) -> tuple[Attempt, ...]:
    """What was tried without progress, with one more iteration; the same action again is only counted."""
    action = _shorten(iteration.action)
    result = _shorten(iteration.what_failed or iteration.result, CAP // 2)
    same = next((one for one in tried if one.action == action), None)
    if same is None:
        return (*tried, Attempt(action, result, (iteration.number,)))[-MAX_TRIED:]
    again = replace(same, result=result, iterations=(*same.iterations, iteration.number)[-MAX_NAMES:])
    return tuple(again if one is same else one for one in tried)


def render_attempts(tried: Sequence[Attempt]) -> str:
    """All that was tried without progress, as a prompt says it."""
    return "\n".join(f"- {_name_attempt(one)} -> {one.result}" for one in tried)


def _name_attempt(attempt: Attempt) -> str:
    return f"{name_iterations(attempt.iterations)}: {attempt.action}"


def with_lesson(iteration: Iteration, lesson: Lesson) -> Iteration:
    """The iteration with what it teaches."""
    return replace(
        iteration,
        what_failed=lesson.what_failed,
        why=lesson.why,
        try_next=lesson.try_next,
        learnings=lesson.text,
    )


def render_reflection(state: LoopState, settings: LoopParameters, now: float) -> str:
    """The text of the reflection on the last iteration."""
    last = state.iterations[-1]
    before = state.iterations[-2].score if len(state.iterations) > 1 else None
    reflection = Reflection(
        **{name: getattr(last, name) for name in _SHARED},
        gaming=last.blocking,
        loop=settings.run_id,
        iteration=last.number,
        at=now,
        task=state.task,
        task_type=settings.type,
        outcome="success" if last.passed else "failure",
        reward=last.score,
        reward_before=before,
        strategy="pivot" if last.pivot else "",
        window=PROFILES[settings.type].window,
    )
    return render(reflection)


def list_reflected_checks(verdict: Verdict, baseline: Statuses) -> tuple[ReflectedCheck, ...]:
    """The checks of a verdict, as a reflection holds them."""
    change = {result.title: str(what) for result, what in attribute_checks(verdict, baseline)}
    checks = []
    for result in verdict.results:
        check = ReflectedCheck(
            title=result.title,
            status=result.status,
            reason=_shorten(result.reason),
            attribution=change.get(result.title, ""),
            value=result.value,
            tests_passed=result.tests.passed if result.tests else None,
            tests_failed=result.tests.failed if result.tests else None,
        )
        checks.append(check)
    return tuple(checks)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _shorten(text: str, most: int = CAP) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: max(most - 3, 0)] + "..."

"""What an iteration teaches the next: what failed, why, and what to try.

The words are the agent's own, or those of a reflector's turn, where there are any; else they are distilled from the
failing checks by rule. Prompts carry them within fixed budgets: the latest few, as many as the type of the task deserves.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ralph.core.checks import Attribution, CheckStatus, Verdict
from ralph.core.findings import Rule
from ralph.documents.reflection import JudgedCheck, Reflection, render
from ralph.workflows.loop.kinds import KINDS
from ralph.workflows.loop.state import Fixed, Iteration, LoopState
from ralph.workflows.loop.verdicts import LONGEST, attributed, name, newly_red, telling_lines

Statuses = tuple[CheckStatus, ...]
CAP = 300
"""Characters of each part of a lesson."""
_SHARED = [field.name for field in fields(Reflection) if field.name in Iteration.__dataclass_fields__]
"""What a reflection says as its iteration does."""
_PLACE = re.compile(r'([\w./-]+\.\w{1,5}):(\d+)|File "([^"]+)", line (\d+)')
_CAUSES = {
    r"SyntaxError|IndentationError|Unexpected token|syntax error|unexpected end of": "the code does not parse",
    r"ModuleNotFoundError|ImportError|Cannot find module|cannot find package|unresolved import"
    r"|no required module": "something that is imported is not there",
    r"NameError|ReferenceError|is not defined|undefined: "
    r"|cannot find (?:name|value|function)": "a name is used that is not defined",
    r"TypeError|error TS\d|incompatible type|mismatched types|cannot use .+ as|AttributeError"
    r"|is not a function": "types or attributes do not fit",
    r"[Tt]imed? ?out|TimeoutError|deadline exceeded": "something takes too long",
    r"PermissionError|EACCES|[Pp]ermission denied": "something may not be read or written",
    r"AssertionError|assert|[Ee]xpected|not equal|FAIL": "the code does not yet do what the checks expect",
}


@dataclass(frozen=True)
class Lesson:
    """The three things that an iteration teaches."""

    what_failed: str
    why: str
    try_next: str

    @property
    def text(self) -> str:
        """All of it, for a person or a prompt."""
        said = (
            _sentence(self.why) if self.why else "",
            f"Next to try: {_sentence(self.try_next)}" if self.try_next else "",
        )
        return " ".join(filter(None, said))


def distilled(pending: Iteration, verdict: Verdict, state: LoopState) -> Lesson:
    """The lesson of an iteration whose checks did not pass: the agent's words first, then what the failure itself says."""
    why, then = pending.why or _why(pending, verdict, state), pending.try_next or _next(pending, verdict)
    return Lesson(what_failed(verdict), _capped(why), _capped(then))


def what_failed(verdict: Verdict) -> str:
    """The failing checks, each with the line that says most."""
    parts = [f"{name(r)}: {' / '.join(telling_lines(r.output, 2)) or r.reason}" for r in verdict.failed]
    parts += [f"[{f.rule}] {f.place} {f.sentence}" for f in verdict.gamed]
    return _capped("; ".join(parts))


def _why(pending: Iteration, verdict: Verdict, state: LoopState) -> str:
    if verdict.gamed:
        outside = all(finding.rule is Rule.OUT_OF_SCOPE for finding in verdict.gamed)
        gamed = "the checks were made to pass instead of the work being done"
        return "files were changed that may not be" if outside else gamed
    if state.agent_error:
        return f"the agent's turn failed: {state.agent_error}"
    if flaky := [name(r) for r in verdict.failed if r.flaky]:
        return f"{', '.join(flaky)} is flaky: it said different things of the same tree"
    regressed = [name(r) for r, what in attributed(verdict, state.baseline) if what is Attribution.REGRESSED]
    if regressed := [*regressed, *newly_red(verdict, state.red)[:3]]:
        return f"the changes broke {', '.join(regressed)}, which passed before"
    if not pending.files and pending.snapshot:
        return "nothing was changed"
    output = "\n".join(r.output for r in verdict.failed)
    causes = (cause for pattern, cause in _CAUSES.items() if re.search(pattern, output))
    return next(causes, "the checks do not pass yet")


def _next(pending: Iteration, verdict: Verdict) -> str:
    if verdict.gamed:
        places = ", ".join(dict.fromkeys(f.place for f in verdict.gamed if f.line))
        return f"undo {f'the change at {places[:150]}' if places else 'that'} and make the product code right"
    if flaky := [name(r) for r in verdict.failed if r.flaky]:
        return f"find what {flaky[0]} depends on beside the code (time, order, network, chance), and make it the same every time"
    for result in verdict.failed:
        for line in (*telling_lines(result.output, 10), *result.output.splitlines()):
            if place := _PLACE.search(line[:LONGEST]):
                file, number = place[1] or place[3], place[2] or place[4]
                return f"begin at {file}:{number}, the first place that {name(result)} complains about"
    failed = verdict.failed[0] if verdict.failed else None
    return f"run {name(failed)} and work on the first thing that it reports" if failed else ""


def remembered(state: LoopState, window: int) -> list[Iteration]:
    """The past iterations that the next prompt is told of: the latest, without those that no longer matter.

    One no longer matters when everything that failed then passes now; the very last one always does.
    """
    taught = [iteration for iteration in state.iterations if iteration.learnings]
    now = set(state.failing)
    relevant = [i for i in taught if i is taught[-1] or not i.failing or not now or now & i.failing]
    return relevant[-window:]


def lessons_text(iterations: Sequence[Iteration], budget: int) -> str:
    """What past iterations did and learned, as a prompt says it."""
    share = budget // max(1, len(iterations))
    return "\n".join(f"- {line(iteration, share)}" for iteration in iterations)


def line(iteration: Iteration, most: int) -> str:
    """One past iteration in a line."""
    each = most // 3
    parts = (
        f"Iteration {iteration.number}: {_capped(iteration.action, each)}",
        f"-> {_capped(iteration.what_failed or iteration.result, each)}.",
        _capped(iteration.learnings, each),
    )
    return " ".join(filter(None, parts))


def with_lesson(iteration: Iteration, lesson: Lesson) -> Iteration:
    """The iteration with what it teaches."""
    return replace(iteration, **vars(lesson), learnings=lesson.text)


def reflection_of(state: LoopState, fixed: Fixed, now: float) -> str:
    """The text of the reflection on the last iteration."""
    last = state.iterations[-1]
    before = state.iterations[-2].score if len(state.iterations) > 1 else None
    reflection = Reflection(
        **{name: getattr(last, name) for name in _SHARED},
        loop=fixed.loop,
        iteration=last.number,
        at=now,
        task=state.task,
        task_type=fixed.type,
        outcome="success" if last.passed else "failure",
        reward=last.score,
        reward_before=before,
        strategy="pivot" if last.pivot else "",
        window=KINDS[fixed.type].window,
    )
    return render(reflection)


def judged_checks(verdict: Verdict, baseline: Statuses) -> tuple[JudgedCheck, ...]:
    """The checks of a verdict, as a reflection holds them."""
    change = {result.title: str(what) for result, what in attributed(verdict, baseline)}
    return tuple(
        JudgedCheck(
            r.title,
            r.status,
            _capped(r.reason),
            change.get(r.title, ""),
            r.value,
            r.tests.passed if r.tests else None,
            r.tests.failed if r.tests else None,
        )
        for r in verdict.results
    )


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _capped(text: str, most: int = CAP) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: max(most - 3, 0)] + "..."

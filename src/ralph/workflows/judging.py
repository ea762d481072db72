"""What follows from the answer of a judge, an independent turn that decides about changed tests and settings.

A judge may also write tests of its own, which the engine tries in a clean checkout. Each workflow decides what it does with work
that is sent back. `build_judge_prompt` (`workflows/loop/prompt.py`) builds the prompt.
"""

from dataclasses import dataclass, replace

from ralph.core.check_output import excerpt_output
from ralph.core.checks import Evidence, Grade, Verdict
from ralph.core.events import TurnEnded
from ralph.core.text import count

_MAX_NAMES = 50
_OUTPUT_CHARS = 2000
"""How much the agent sees of what the tests of a judge print."""
JudgeTests = tuple[tuple[str, str], ...]
"""The tests that a judge wrote: paths and contents."""


@dataclass(frozen=True)
class Judgment:
    """What follows from a judge: nothing (`problem`), the work goes back (`reasons`), or it is accepted."""

    problem: str = ""
    """Why the judgment does not count; empty if it does."""
    reasons: tuple[str, ...] = ()
    """Why the judge does not accept the work; empty if it does."""
    what: str = ""
    """What it does not accept, in a phrase."""
    findings: tuple[str, ...] = ()
    """What the agent that did the work reads in its next prompt."""
    tests: JudgeTests = ()
    """The tests that the work still has to pass."""
    said_of_tests: str = ""
    """What the evidence says about the tests of the judge."""


def read_judgment(evidence: Evidence, event: TurnEnded) -> Judgment:
    """What a judge made of the work and the changed judge files. Only a judge that accepts all of it makes the work done."""
    answer = event.result.answer or {}
    work = answer.get("work") or {}
    opinions = {one["path"].removeprefix("./"): one for one in answer.get("files", ())}
    if event.change and event.change.files:
        return Judgment("the judge changed files, so its judgment does not count")
    missing = [path for path in evidence.to_judge if path not in opinions]
    if missing:
        return Judgment(f"the judge did not say anything about {', '.join(missing[:_MAX_NAMES])}")
    if not evidence.to_judge and not work:
        return Judgment("the judge did not say whether it accepts the work")
    rejected = [opinions[path] for path in evidence.to_judge if not opinions[path]["accept"]]
    rejection = [f"{one['path']}: {one['why']}" for one in rejected]
    if work and not work["accept"]:
        findings = (
            "An independent reviewer read the work, and does not accept it:",
            f"- {work['why']}",
            *(f"- {line}" for line in rejection),
            "Make the work right. If the reviewer is wrong, keep the work and say why in `summary`.",
        )
        return Judgment(reasons=(work["why"],), what="a reviewer did not accept the work", findings=findings)
    if not rejected:
        return Judgment(tests=tuple((one["path"].removeprefix("./"), one["text"]) for one in answer.get("tests", ())))
    findings = (
        "An independent reviewer read the changed tests and settings, and rejects these changes:",
        *(f"- {line}" for line in rejection),
        "Undo each of them by editing, and do the work instead. If one is right, keep it and say why in `summary`.",
    )
    return Judgment(reasons=tuple(rejection), what="a reviewer rejected changed tests or settings", findings=findings)


def read_trial(tests: JudgeTests, ran_before: int | None, verdict: Verdict) -> Judgment:
    """What the tests of the judge show. Only checks that pass with them make the work done."""
    named = f"its own {count(len(tests), 'test file')} ({', '.join(path for path, _ in tests)})"
    if unrunnable := verdict.first_unrunnable:
        return Judgment(f"the judge accepted the changes, and {named} could not be run: {unrunnable.reason}")
    if not verdict.not_passed:
        return Judgment(said_of_tests=_describe_passed_tests(ran_before, count_tests(verdict), named))
    failed = verdict.not_passed[0]
    findings = (
        "An independent reviewer wrote tests from the request and the documentation. The work fails them:",
        f"- `{failed.command or failed.title}`: {failed.reason}",
        excerpt_output(failed.output, _OUTPUT_CHARS)[0],
        "These are the tests. They are not in the project:",
        *(f"`{path}`:\n```\n{text.rstrip()}\n```" for path, text in tests),
        "Make the work right, so that it passes them. If a test contradicts the request, keep the work and say why in `summary`.",
    )
    return Judgment(reasons=(failed.reason,), what="the work fails tests of a reviewer", findings=findings)


def _describe_passed_tests(before: int | None, now: int | None, named: str) -> str:
    """What it says of the work that the checks pass with the tests of the judge. They may not run these tests at all."""
    if before is None or now is None:
        return (
            f" The checks also pass with {named}, but print no number of tests, so it is not certain that they ran it."
        )
    if now <= before:
        return f" No check ran {named}: no more tests ran with it than without."
    return f" The checks also pass with {named}, which is not part of the work."


def count_tests(verdict: Verdict) -> int | None:
    """How many tests all checks together ran; None if no check prints a number."""
    counts = [result.tests.ran for result in verdict.results if result.tests]
    return sum(counts) if counts else None


def mark_judged(evidence: Evidence, said_of_tests: str = "", *, judge: str = "An independent turn") -> Evidence:
    """The evidence of work that a judge accepted. If judge files changed, its grade is judged; otherwise it stays proven."""
    if not evidence.to_judge:
        return replace(evidence, reason=f"{evidence.reason} {judge} accepted the work.{said_of_tests}")
    read = count(len(evidence.to_judge), "changed test or settings file", "changed tests and settings files")
    reason = f"The checks also pass in a clean checkout. {judge} read and accepted {read}."
    return replace(evidence, grade=Grade.JUDGED, reason=reason + said_of_tests, to_judge=())

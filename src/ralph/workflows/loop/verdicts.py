"""Verdicts in words: for prompts, reports and people."""

import re
from collections.abc import Collection

from ralph.core.checks import Attribution, CheckResult, CheckStatus, Verdict, attribution

LONGEST = 300
"""Characters of a line that are looked at: what says something says it at its beginning."""
QUOTED = 3000
"""How many characters of the failing checks' output the next prompt quotes."""
_STRONG = re.compile(
    r"^E\s+\S|\b\w*(?:Error|Exception|Panic)\b[:(]|\berror(?:\[\w+\]|\s+TS\d+)?:|^\S+:\d+(?::\d+)?:\s"
    r"|\bpanicked at|^[A-Z]{1,5}\d{2,5}\s"
    r"|(?i:\bassert\w* .*(?:==|!=|failed))"
)
_WEAK = re.compile(
    r"(?i)\b(?:error|fail|assert|exception|expected|received|panic|undefined|cannot|not ok|not found|missing)|[✕✗×]"
)
_SAYS_NOTHING = re.compile(
    r"(?i)^[=\-_*#\s]*(?:failures?|errors?|short test summary info|traceback \(.*|failed|fail|ok|"
    r".*\b\d+ (?:failed|passed|errors?|warnings?)\b.*|found \d+ errors?\.?)[=\-_*#:\s]*$|^[=\-_*#|^~\s]+$|^>\s"
)
_PATHS = re.compile(r"(?:[\w.@+~-]*/)+")


def verdict_summary(verdict: Verdict) -> str:
    """One line: which checks passed, how the others did not, and what the guards found."""
    checks = "; ".join(f"{name(r)} {how(r)}" for r in (verdict.failed or verdict.results))
    return f"{checks}; but {' '.join(f.sentence for f in verdict.gamed)}" if verdict.gamed else checks


def failure_text(verdict: Verdict, baseline: tuple[CheckStatus, ...] = (), red: Collection[str] = ()) -> str:
    """What the next prompt quotes of the failing checks, or of the guards' findings."""
    share = QUOTED // max(1, len(verdict.failed))
    regressed = {r.title for r, what in attributed(verdict, baseline) if what is Attribution.REGRESSED}
    failed = [
        f"$ {r.command or r.title}\n({how(r)}{', and passed before this run' if r.title in regressed else ''})\n"
        f"{r.output[-share:].strip()}"
        for r in verdict.failed
    ]
    broken = newly_red(verdict, red)[:20]
    said = f"Regressed, these tests did not fail before this run: {', '.join(broken)}" if broken else ""
    return "\n\n".join(filter(None, [*failed, said, _gaming(verdict)])).strip()


def _gaming(verdict: Verdict) -> str:
    if not verdict.gamed:
        return ""
    lines = [f"- {f.place} [{f.rule}] {f.sentence}" for f in verdict.gamed[:20]]
    return "The commands pass, but not by the work that was asked for. Undo these, and do the work:\n" + "\n".join(
        lines
    )


def verification_text(verdict: Verdict, baseline: tuple[CheckStatus, ...] = ()) -> str:
    """What the report shows of all checks, and of the guards."""
    change = {result.title: f"; {what}" for result, what in attributed(verdict, baseline)}
    checks = [
        f"$ {r.command or r.title}\n{r.output[-QUOTED:].strip()}\n({how(r)}{change.get(r.title, '')})"
        for r in verdict.results
    ]
    found = [f"{f.severity}: {f.place} [{f.rule}] {f.sentence}" for f in verdict.findings]
    return "\n\n".join([*checks, "\n".join(found)]).strip()


def newly_red(verdict: Verdict, red: Collection[str]) -> list[str]:
    """Tests that fail now and did not before the run, where it is known which did."""
    failing = [test for result in verdict.failed for test in result.failing]
    return [test for test in failing if test not in red] if red else []


def attributed(verdict: Verdict, baseline: tuple[CheckStatus, ...]) -> list[tuple[CheckResult, Attribution]]:
    """Each check with what the work did to it."""
    pairs = zip(verdict.results, baseline, strict=False)
    return [(now, attribution(before=before is CheckStatus.PASSED, now=now.passed)) for now, before in pairs]


def name(result: CheckResult) -> str:
    """A check as sentences name it."""
    return f"`{result.command}`" if result.command else result.title


def how(result: CheckResult) -> str:
    """How a check came out."""
    facts = [] if result.value is None else [f"{result.value:g} was measured"]
    facts += ["it is flaky: it said different things of the same tree"] if result.flaky else []
    facts = [result.reason, *facts] if result.reason else facts
    said = "passed" if result.passed else str(result.status)
    return f"{said}: {', '.join(facts)}" if facts else said


def telling_lines(output: str, most: int) -> list[str]:
    """The lines of an output that say what is wrong; its last ones where none stands out."""
    short = (line.strip()[:LONGEST] for line in output.splitlines())
    lines = [line for line in short if line and not _SAYS_NOTHING.match(line)]
    strong = [line for line in lines if _STRONG.search(line)]
    weak = [line for line in lines if _WEAK.search(_PATHS.sub("", line))]
    return list(dict.fromkeys([*strong, *weak]))[:most] or lines[-most:]

"""One simulated run, told turn by turn."""

from collections.abc import Iterator

from ralph.core.entries import Notice, RunStarted, TurnStarted
from ralph.core.events import ChecksEnded, Merged, RunEnded, SignalTaken, TurnEnded
from ralph.simulate.clock import EPOCH
from ralph.simulate.play import Played


def story(run: Played) -> Iterator[str]:
    """What happened, a line for each thing."""
    for record in run.records:
        minutes = int((record.at - EPOCH) // 60)
        if line := _line(run, record.entry):
            yield f"{minutes // 60:3d}:{minutes % 60:02d}  {line}"
    spent = run.spent
    truth = "the work is done" if run.true else "the work is not done"
    yield f"\n{run.outcome}: {run.reason}"
    took = (
        f"{spent.turns} turns, {spent.tokens} tokens, ${spent.cost:.2f}, {run.hours:.1f} hours, {run.engines} engines"
    )
    yield f"In truth {truth}. {took}."


def _line(run: Played, entry: object) -> str:
    match entry:
        case RunStarted(resumed=True):
            return "an engine takes the run up again"
        case TurnStarted(turn=turn, role=role, attempt=attempt):
            return f"turn {turn:<3} {role}" + (f", try {attempt}" if attempt > 1 else "")
        case TurnEnded(turn=turn, result=result, retry_reason=again):
            told = run.told.get(turn, "") + (f" -> {again}" if again else "")
            return f"         {result.end}, {result.seconds / 60:.0f} min, ${result.usage.cost or 0:.2f}: {told}"
        case ChecksEnded(key=key, verdict=verdict):
            return f"checks   {key}: {'passed' if verdict.passed else 'failed'}"
        case Merged(workspace=workspace, end=end):
            return f"merge    {workspace}: {end}"
        case SignalTaken(signal=signal):
            return f"signal   {signal.type} {signal.message}".rstrip()
        case Notice(text=text):
            return f"notice   {text.splitlines()[0][:200]}"
        case RunEnded(outcome=outcome):
            return f"ended    {outcome}"
        case _:
            return ""

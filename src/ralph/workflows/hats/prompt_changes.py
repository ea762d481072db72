"""What a prompt says about earlier turns: what others did and changed, how to see it, and what the hat published itself."""

from ralph.core.prompt import quote_text
from ralph.core.text import count
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.events import find_task_id
from ralph.workflows.hats.state import HatsState, QueuedEvent, TurnChange

NOTES = 1500
"""Tokens of what is said about earlier turns."""
PAYLOAD = 150
"""Characters of the payload of an event that is only listed."""


def describe_changes(run: str, state: HatsState, hat: str) -> str:
    """What is new to a hat: the events of others if it coordinates, what others changed, and how to see it.

    Two turns for the same event have different prompts: the second says that there was a first one.
    """
    last = state.last_turns.get(hat, 0)
    lines = [f"Your last turn was turn {last}."] if last else []
    if hat == COORDINATOR:
        lines += _list_events_since(state, last)
    changed = [one for one in state.changed if one.turn > last and one.hat != hat]
    if changed:
        lines.append("Others changed files since then:" if last else "Files were changed in these turns:")
        lines += [f"- {_describe_change(one)}" for one in changed]
        before = state.trees.get(hat, "")
        if before and state.snapshot and before != state.snapshot:
            lines.append(f"See all changes since then with `git diff {before[:12]} {state.snapshot[:12]}`.")
        lines += _describe_task_changes(state)
        all_changes = f"all changes of the run with `ralph diff {run}`"
        # A turn in its own copy of the tree has no snapshots of the run's tree before and after it.
        one_turn = f"one turn with `ralph diff {run} TURN`, and " if any(not one.commit for one in changed) else ""
        lines.append(f"See {one_turn}{all_changes}.")
    elif last:
        lines += ["Nobody else has changed a file since then.", *_describe_task_changes(state)]
    return "\n".join(lines)


def show_merged(commit: str) -> str:
    """The command that shows what a merge brought in."""
    return f"`git diff {commit[:12]}~ {commit[:12]}`"


def _describe_change(change: TurnChange) -> str:
    who = f"{change.hat}, {change.task}" if change.task else change.hat
    size = f"{count(change.files, 'file')}, +{change.added} -{change.removed}"
    how = f", {show_merged(change.commit)}" if change.commit else ""
    return f"turn {change.turn} ({who}): {size}{how}"


def _describe_task_changes(state: HatsState) -> list[str]:
    """How to see what changed for the task of the event, if it did not start with the run."""
    lines = []
    merged = {find_task_id(event.payload) for event in state.events if event.commit}
    for task in dict.fromkeys(find_task_id(event.payload) for event in state.events):
        base = state.task_trees.get(task, "")
        # The event of a worker has the command for its own work. There is more only if the task had other turns.
        is_in_event = task in merged and sum(one.task == task for one in state.changed) < 2
        if base and state.snapshot and base != state.snapshot and not is_in_event:
            mixed = " (with work on other tasks)" if _has_other_work(state, task) else ""
            command = f"`git diff {base[:12]} {state.snapshot[:12]}`"
            lines.append(f"See all changes since the work on {task} began{mixed}: {command}.")
    return lines


def _has_other_work(state: HatsState, task: str) -> bool:
    """Whether turns for other tasks changed files since the work on a task began."""
    own = [one for one in state.changed if one.task == task]
    if not own:
        return False
    others = [one for one in state.changed if one.task not in ("", task)]
    return any(one.turn > own[0].turn or (one.commit and own[0].commit) for one in others)


def _list_events_since(state: HatsState, last: int) -> list[str]:
    """What the coordinator published last, and what others published since then."""
    own = [
        event for event in state.recent if event.source == COORDINATOR and event.turn == last and not event.by_engine
    ]
    others = [event for event in state.recent if event.source != COORDINATOR and event.turn > last]
    lines = [f"You published {', '.join(f'`{event.topic}`' for event in own)} then."] if own else []
    if not others and not last:
        return []
    if not others:
        return [
            *lines,
            "Nobody else has published an event since then. If you decided the same before, decide differently.",
        ]
    lines.append("Events since then, oldest first:" if last else "The latest events, oldest first:")
    return [*lines, *(f"- turn {one.turn}: `{one.topic}` from {one.source}{_shorten_payload(one)}" for one in others)]


def _shorten_payload(event: QueuedEvent) -> str:
    text = " ".join(event.payload.split())
    if not text:
        return ""
    return f": {text if len(text) <= PAYLOAD else text[: PAYLOAD - 3] + '...'}"


def describe_last_events(state: HatsState, hat: Hat | None, id: str) -> str:
    """What a hat published last about the same work: a hat that rejected something has to know why it did."""
    tasks = {find_task_id(event.payload) for event in state.events}
    own = [event for event in state.recent if event.source == id and not event.by_engine]
    same = [event for event in own if find_task_id(event.payload) in tasks]
    is_about_other_work = hat is not None and hat.concurrency > 1 and tasks == {""}
    if not same or is_about_other_work:
        return ""
    last = [event for event in same if event.turn == same[-1].turn]
    published = [
        f"`{event.topic}`:\n{quote_text(event.payload, NOTES // len(last)) or '(no payload)'}" for event in last
    ]
    head = f"In turn {last[0].turn} you published "
    return "\n".join([head + published[0], *published[1:], "If it names faults, first check whether they are fixed."])

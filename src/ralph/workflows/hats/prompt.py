"""What a turn is told: one page under one budget, what never changes first, so that providers' caches hit."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from ralph.core.checks import Check
from ralph.documents.agent import memories
from ralph.documents.agent.events import matches
from ralph.documents.agent.program import name_program
from ralph.documents.agent.tasks import IN_PROGRESS, Task, Tasks
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.workflows.hats.state import HatsState, QueuedEvent

SHARED = ".ralph/agent/"
TASKS, MEMORIES, DECISIONS = f"{SHARED}tasks.jsonl", f"{SHARED}memories.md", f"{SHARED}decisions.md"
TOKEN = 4
"""Characters that count as a token."""
EVENT, NOTES, QUEUE, SCRATCHPAD = 4000, 1500, 1500, 4000
"""Tokens that the parts of a page that change may take; memories have a budget of their own."""
BUDGET = 10_000
"""Tokens that these may take together."""
_SECTION = re.compile(r"^<([a-z-]+)(?: [^>]*)?>\n(.*?)^</\1>$", re.DOTALL | re.MULTILINE)
_STEP = re.compile(r":(step-\d+):")


def build_prompt(
    run: str,
    settings: HatsSettings,
    checks: Sequence[Check],
    frame: str,
    state: HatsState,
    hat: Hat | None,
    now: float,
    gates: Sequence[str] = (),
) -> str:
    """The whole page: the frame, what holds for the run, what holds for the hat, and what has changed.

    `gates` is what keeps the run from being done, for the coordinator.
    """
    fixed = [
        name_program(frame.strip()),
        _section(
            "guardrails", name_program("\n".join(f"{n}. {rule}" for n, rule in enumerate(settings.guardrails, 1)))
        ),
        _section("objective", state.objective.strip()),
        _section("documents", _documents(settings)),
        _section("checks", "\n".join(f"- {check.title}" for check in checks)),
        _section(
            "hat",
            name_program(_hat(settings, hat) if hat else _coordinator(settings)),
            f' id="{hat.id}"' if hat else "",
        ),
    ]
    event = _section("event-for-you", _event(settings, state))
    changing = [
        ("notes", name_program(_notes(state, gates)), NOTES, ""),
        ("changes-since-your-last-turn", name_program(_changes(run, settings, state, hat)), NOTES, ""),
        ("ready-tasks", _ready_tasks(run, settings, state), QUEUE, TASKS),
        ("memories", _memories(settings, state, now), settings.memories.budget, MEMORIES),
        ("scratchpad", *_scratchpad(settings, state, hat)),
    ]
    left = BUDGET - tokens(event)
    parts = []
    for name, text, most, path in changing:
        part = _section(
            name, fit(text, min(most, left), path, tail=name == "scratchpad"), f' path="{path}"' if path else ""
        )
        left -= tokens(part)
        parts.append(part)
    return "\n\n".join(part for part in (*fixed, *reversed(parts), event) if part) + "\n"


def sections(prompt: str) -> Iterator[tuple[str, int]]:
    """The parts of a page with the tokens that each takes; what is in no section is the frame."""
    rest = prompt
    found = []
    for match in _SECTION.finditer(prompt):
        found.append((match[1], tokens(match[0])))
        rest = rest.replace(match[0], "", 1)
    yield "frame", tokens(rest.strip())
    yield from found


def tokens(text: str) -> int:
    """About how many tokens a text has."""
    return (len(text) + TOKEN - 1) // TOKEN


def fit(text: str, most: int, path: str = "", *, tail: bool = False) -> str:
    """As much of a text as so many tokens hold, its beginning or its end; what is left out is said."""
    room = max(0, most) * TOKEN
    if len(text) <= room:
        return text
    left = len(text) - room
    told = f"({left} characters are left out here{f'; all of it is in {path}' if path else ''})"
    return f"{told}\n{text[left:]}" if tail else f"{text[:room]}\n{told}"


@lru_cache(maxsize=4)
def parse_tasks(text: str) -> Tasks:
    """The tasks in a file."""
    return Tasks.parse(text.encode(errors="replace"))


@lru_cache(maxsize=4)
def _parse_memories(text: str) -> list[memories.Memory]:
    return memories.parse(text)


def _section(name: str, text: str, about: str = "") -> str:
    return f"<{name}{about}>\n{text.strip()}\n</{name}>" if text.strip() else ""


def _documents(settings: HatsSettings) -> str:
    if not settings.documents:
        return ""
    return (
        f"The objective is a {settings.source}. The documents that all hats share are in `{settings.documents}`: `context.md`,"
        " `plan.md` (numbered steps), `progress.md` (Current Step, Active Wave, Verification Notes, Completed Steps), `logs/`."
        " If the repository has a `CODEASSIST.md`, follow its rules."
    )


def _hat(settings: HatsSettings, hat: Hat) -> str:
    lines = [
        f"You are {hat.name}." + (f" {hat.description}" if hat.description else ""),
        "",
        hat.instructions.strip(),
        "",
    ]
    if hat.disallowed_tools:
        lines.append(f"You may not use these tools: {', '.join(hat.disallowed_tools)}.")
    if not hat.may_ask:
        lines.append("You may not ask the user: choose the safest way and record the decision.")
    if hat.publishes:
        lines += ["You publish one of:", *(_topic(settings, topic) for topic in hat.publishes)]
    if hat.default_publishes:
        lines.append(f"If you publish nothing, `{hat.default_publishes}` is published for you. It passes no gate.")
    return "\n".join(lines)


def _topic(settings: HatsSettings, topic: str) -> str:
    rule = settings.topics.get(topic)
    facts = [rule.description, rule.on_publish] if rule else []
    if rule and rule.requires:
        facts.append(f"its payload must have {', '.join(rule.requires)}")
    if rule and rule.evidence:
        facts.append(f"the engine runs the checks first{', and they must fail' if rule.red else ''}")
    takers = [hat for hat in settings.hats if any(matches(one, topic) for one in hat.triggers)]
    if topic == settings.completion:
        facts.append("all is done; the engine sees for itself")
    elif takers:
        several = ", who takes several at once: publish one for each piece of work that others need not wait for"
        facts.append(f"goes to {takers[0].id}" + (several if takers[0].concurrency > 1 else ""))
    return f"- `{topic}`" + (f": {'; '.join(fact for fact in facts if fact)}" if any(facts) else "")


def _coordinator(settings: HatsSettings) -> str:
    """What the coordinator is told: who there is, and what to do about an event that nobody takes."""
    if not settings.hats:
        return (
            "You work alone: do the next piece of the work, one piece a turn. Keep tasks for what is left.\n"
            f"When all of the objective is done and verified, publish `{settings.completion}`; else publish `work.done`"
            " with what comes next."
        )
    rows = [
        f"- {hat.id}: {hat.description} Takes {', '.join(hat.triggers) or 'nothing'}; publishes {', '.join(hat.publishes)}."
        for hat in settings.hats
    ]
    return "\n".join(
        [
            "You are the coordinator: you get the events that no hat takes. Do not do the work of a hat yourself. Look at the",
            "event, the tasks and the documents, and publish the event that gives the right hat its turn, with what it needs:",
            *rows,
            *(
                [f"The run cannot end before these were published: {', '.join(settings.required)}."]
                if settings.required
                else []
            ),
            _completion(settings),
        ]
    )


def _completion(settings: HatsSettings) -> str:
    """Who says that all is done; the coordinator only if no hat lists the promise."""
    owners = settings.gatekeepers(settings.completion) or (COORDINATOR,)
    if COORDINATOR in owners:
        return f"When all of the objective is done and every gate is passed, publish `{settings.completion}`."
    return f"`{settings.completion}` is for {' or '.join(owners)} to publish: if all is done, publish what gives it its turn."


def _changes(run: str, settings: HatsSettings, state: HatsState, hat: Hat | None) -> str:
    """For a hat that owns a gate: what other turns changed since its last one."""
    gates = (settings.completion, *settings.required)
    if hat is None or not any(hat.id in (settings.gatekeepers(topic) or ()) for topic in gates):
        return ""
    last = state.last_turns.get(hat.id, 0)
    lines = [
        f"- turn {one.turn} ({one.hat}): {one.files} file{'s' if one.files != 1 else ''}, +{one.added} -{one.removed}"
        for one in state.changed
        if one.turn > last and one.hat != hat.id
    ]
    return "\n".join([*lines, f"See each with `ralph diff {run} TURN`."]) if lines else ""


def _event(settings: HatsSettings, state: HatsState) -> str:
    given = state.events
    told = [_one_event(settings, state, event, EVENT // len(given)) for event in given]
    waiting = ", ".join(f"`{one.topic}`" for one in state.queue[len(given) : len(given) + 8])
    more = f"\nAfter this one wait: {waiting}. They are not yours now." if waiting else ""
    head = f"What came of {len(given)} turns, all of it yours now:\n\n" if len(given) > 1 else ""
    return head + "\n\n".join(told) + more


def _one_event(settings: HatsSettings, state: HatsState, event: QueuedEvent, most: int) -> str:
    rule = settings.topics.get(event.topic)
    about = f"{rule.on_trigger}\n" if rule and rule.on_trigger else ""
    how = ", published for it because it published nothing" if event.default and event.source != COORDINATOR else ""
    same = event.payload.strip() == state.objective.strip()
    payload = "(the objective above)" if same else fit(event.payload, most) or "(no payload)"
    return f"{about}`{event.topic}` from {event.source}{how}:\n{payload}"


def _notes(state: HatsState, gates: Sequence[str]) -> str:
    said = "The user sent you a message (below): follow it, then publish `human.guidance.ack` beside your event."
    untold = (gate for gate in gates if not any(note.endswith(gate) for note in state.notes))
    notes = (*state.notes, *(f"in the way of the end: {gate}" for gate in untold))
    return "\n".join([*(f"- {note}" for note in notes), *([said] if state.guidance else [])])


def _ready_tasks(run: str, settings: HatsSettings, state: HatsState) -> str:
    """The queue of this run: what is under way, what can be started, what waits, and waves that overlap."""
    if not settings.tasks:
        return ""
    tasks = parse_tasks(state.texts.get(TASKS, ""))
    own = [task for task in tasks.by_id.values() if task.run == run]
    if not own:
        return ""
    ready, left = tasks.ready(run), tasks.unfinished(run)
    under_way = [task for task in left if task.status == IN_PROGRESS]
    blocked = [task for task in left if task not in ready and task not in under_way]
    lines = [f"{len(ready)} ready, {len(left)} open, {len(own) - len(left)} closed"]
    lines += [f"- [~] {_line(task)} (under way)" for task in under_way]
    lines += [f"- [ ] {_line(task)}" for task in ready]
    lines += ["Blocked:"] if blocked else []
    lines += [f"- {_line(task)}, waits for {', '.join(tasks.waits_for(task)) or task.status}" for task in blocked]
    steps = sorted({match[1] for task in left if (match := _STEP.search(task.key))})
    if len(steps) > 1:
        lines.append(
            f"Tasks of {', '.join(steps)} are open at once: only one step's wave may be. Close the others first."
        )
    return "\n".join(lines)


def _line(task: Task) -> str:
    return f"[P{task.priority}] {task.title} ({task.id})" + (f" — key: {task.key}" if task.key else "")


def _memories(settings: HatsSettings, state: HatsState, now: float) -> str:
    use = settings.memories
    text = state.texts.get(MEMORIES, "")
    if not use.inject or not text:
        return ""
    since = datetime.fromtimestamp(now - use.recent * 86400, UTC).strftime("%Y-%m-%d") if use.recent else ""
    chosen = [
        one
        for one in _parse_memories(text)
        if (not use.types or one.kind in use.types)
        and (not use.tags or set(use.tags) & set(one.tags))
        and one.created >= since
    ]
    return memories.markdown(memories.within(chosen, use.budget))


def _scratchpad(settings: HatsSettings, state: HatsState, hat: Hat | None) -> tuple[str, int, str]:
    path = (hat.scratchpad if hat else "") or settings.scratchpad
    return state.texts.get(path, ""), SCRATCHPAD, path

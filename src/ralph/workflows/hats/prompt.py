"""The prompt of a hat's turn: its task, and what others did and changed since its last turn.

What never changes comes first, so that providers' caches hit.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from ralph.core.checks import Check
from ralph.core.prompt import Place, Prompt, PromptPart, build_prompt, fits_budget, name_program, quote_text
from ralph.core.text import count
from ralph.core.turns import INBOX
from ralph.documents.agent.notes import Memory, fit_memories, parse_memories, render_memories
from ralph.documents.agent.tasks import IN_PROGRESS, AgentTask, AgentTasks
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings, show_role
from ralph.workflows.hats.events import find_task_id
from ralph.workflows.hats.state import MEMORIES, TASKS, HatsState, QueuedEvent, TurnChange

EVENT, QUEUE, SCRATCHPAD = 4000, 1500, 4000
"""Tokens that the parts of a prompt that change may take; memories have a budget of their own."""
OBJECTIVE, OBJECTIVE_FILE = 8000, "objective.md"
"""Tokens of the objective in a prompt; of a longer one, all is in a file of the inbox."""
_STEP = re.compile(r":(step-\d+):")
NOTES = 1500
"""Tokens of what is said about earlier turns."""
PAYLOAD = 150
"""Characters of the payload of an event that is only listed."""


def build_hat_prompt(
    run: str,
    settings: HatsSettings,
    checks: Sequence[Check],
    frame: str,
    state: HatsState,
    *,
    hat: Hat | None,
    now: float,
    blockers: Sequence[str] = (),
) -> Prompt:
    """The whole prompt: the text that all hats share, what holds for the run, what holds for the hat, and what has changed.

    Without a hat, it is the coordinator's. `blockers` is what keeps the run from being done, for the coordinator.
    """
    whose = _describe_hat(settings, hat) if hat else _describe_coordinator(settings)
    about = f'id="{hat.id}"' if hat else ""
    return build_prompt(
        [
            PromptPart("frame", name_program(frame), "How hats work.", Place.RUN),
            *_run_parts(settings, checks, state),
            _make_tagged_part("hat", name_program(whose), "What this hat does.", Place.ROLE, about=about),
            *_turn_parts(run, settings, state, hat=hat, now=now, blockers=blockers),
        ]
    )


def _run_parts(settings: HatsSettings, checks: Sequence[Check], state: HatsState) -> tuple[PromptPart, ...]:
    """What is the same in every turn of a run."""
    guardrails = "\n".join(f"{n}. {rule}" for n, rule in enumerate(settings.guardrails, 1))
    return (
        _make_tagged_part("guardrails", name_program(guardrails), "The rules of the preset.", Place.RUN),
        _make_tagged_part(
            "objective",
            state.objective,
            "What the run is for.",
            Place.RUN,
            budget=OBJECTIVE,
            source=f"{INBOX}/{OBJECTIVE_FILE}" if list_inbox(state) else "",
            is_quoted=True,
        ),
        _make_tagged_part("documents", _describe_documents(settings), "Where shared documents are.", Place.RUN),
        _make_tagged_part(
            "checks", _describe_checks(settings, checks), "What must pass, and when it is run.", Place.RUN
        ),
    )


def _turn_parts(
    run: str,
    settings: HatsSettings,
    state: HatsState,
    *,
    hat: Hat | None,
    now: float,
    blockers: Sequence[str],
) -> tuple[PromptPart, ...]:
    """What changes from turn to turn: notes, memories, tasks, what is new, and the event itself."""
    id = hat.id if hat else COORDINATOR
    pad = (hat.scratchpad if hat else "") or settings.scratchpad
    return (
        _make_tagged_part(
            "scratchpad",
            state.texts.get(pad, ""),
            "Notes of the hats.",
            budget=SCRATCHPAD,
            source=pad,
            keeps_end=True,
            is_quoted=True,
        ),
        _make_tagged_part(
            "memories",
            _describe_memories(settings, state, now),
            "What was learned before.",
            budget=settings.memories.budget,
            source=MEMORIES,
        ),
        _make_tagged_part(
            "ready-tasks",
            _describe_ready_tasks(run, settings, state),
            "The queue of tasks.",
            budget=QUEUE,
            source=TASKS,
        ),
        _make_tagged_part(
            "since-your-last-turn" if state.last_turns.get(id) else "changes-so-far",
            name_program(describe_changes(run, state, id)),
            "What others did and changed.",
            budget=NOTES,
        ),
        _make_tagged_part("your-last-event", describe_last_events(state, hat, id), "What this hat published before."),
        _make_tagged_part(
            "notes", name_program(_describe_notes(state, id, blockers)), "What was refused.", budget=NOTES
        ),
        _make_tagged_part("event-for-you", _describe_events(settings, state), "The event of this turn."),
    )


def _make_tagged_part(
    name: str,
    text: str,
    purpose: str,
    place: Place = Place.TURN,
    *,
    about: str = "",
    budget: int = 0,
    source: str = "",
    keeps_end: bool = False,
    is_quoted: bool = False,
) -> PromptPart:
    """A part between two tags, which say where the whole text is."""
    about = about or (f'path="{source}"' if source else "")
    return PromptPart(
        name=name,
        text=text,
        purpose=purpose,
        place=place,
        budget=budget,
        heading=f"<{name} {about}>" if about else f"<{name}>",
        ending=f"</{name}>",
        source=source,
        keeps_end=keeps_end,
        is_quoted=is_quoted,
    )


def list_inbox(state: HatsState) -> dict[str, str]:
    """The files of the inbox: the objective, if a prompt has no room for all of it."""
    return {} if fits_budget(state.objective.strip(), OBJECTIVE) else {OBJECTIVE_FILE: state.objective}


@lru_cache(maxsize=4)
def parse_tasks(text: str) -> AgentTasks:
    """The tasks in a file."""
    return AgentTasks.parse(text.encode(errors="replace"))


@lru_cache(maxsize=4)
def _parse_memories(text: str) -> list[Memory]:
    return parse_memories(text)


def _describe_documents(settings: HatsSettings) -> str:
    if not settings.documents:
        return ""
    return (
        f"The hats share the documents in `{settings.documents}`, a directory that may not exist yet. The objective is a"
        f" {settings.source}."
    )


def _describe_checks(settings: HatsSettings, checks: Sequence[Check]) -> str:
    if not checks:
        return ""
    claims = any(rule.evidence and settings.find_owners(topic) for topic, rule in settings.topics.items())
    when = ", and before it accepts some events" if claims else ""
    opening = (
        f"The engine runs these itself before it accepts that everything is done{when}. They must pass."
        " You may run them too."
    )
    if any(rule.expects_failure and settings.find_owners(topic) for topic, rule in settings.topics.items()):
        opening = opening.replace("They must pass.", "They must pass, unless the event says that they must fail.")
    return "\n".join([opening, *(f"- {check.title}" for check in checks)])


def _describe_hat(settings: HatsSettings, hat: Hat) -> str:
    lines = [
        f"You are the hat {hat.name}." + (f" Its job: {hat.description}" if hat.description else ""),
        "",
    ]
    if instructions := hat.instructions.strip():
        lines += [instructions, ""]
    if hat.disallowed_tools:
        lines.append(f"Do not use these tools: {', '.join(hat.disallowed_tools)}.")
    if hat.may_ask:
        lines.append(
            "You may ask the user if a wrong guess would be costly: `ralph tools interact ask 'QUESTION' --options 'A|B'"
            " --default A`. It waits, and prints the answer."
        )
    else:
        lines.append("Do not ask the user. If you are unsure, choose the safest option and record the decision.")
    # Hats that share documents keep their notes there.
    pad = hat.scratchpad or ("" if settings.documents else settings.scratchpad)
    if pad:
        lines.append(
            f"Notes for later turns go into `{pad}`. If it has notes, `<scratchpad>` below shows them: read them first."
        )
    if hat.publishes:
        lines += ["You publish one of these:", *(_describe_topic(settings, topic) for topic in hat.publishes)]
    if hat.default_publishes:
        lines.append(_describe_default(settings, hat.default_publishes))
    elif hat.publishes:
        lines.append("If you publish nothing, the coordinator decides what comes next.")
    return "\n".join(lines)


def _describe_default(settings: HatsSettings, topic: str) -> str:
    """What happens if a hat publishes nothing, and what its default event does not do."""
    if topic in (settings.completion, settings.cancellation):
        return f"Always publish: `{topic}` is never published for you. If you publish nothing, the coordinator decides."
    sentences = [
        f"Always publish. If you publish nothing, `{topic}` is published for you, with the payload of your event."
    ]
    if topic in settings.required:
        sentences.append("Published like this, it does not count as the required event.")
    if (rule := settings.topics.get(topic)) and rule.evidence:
        sentences.append("The engine also runs the checks for it.")
    if settings.max_default_events:
        turns = count(settings.max_default_events, "such turn")
        sentences.append(f"After {turns} in a row, the run stops and asks the user.")
    return " ".join(sentences)


def _describe_topic(settings: HatsSettings, topic: str) -> str:
    rule = settings.topics.get(topic)
    facts = [rule.description, rule.on_publish] if rule else []
    if rule and rule.requires:
        facts.append(f"its payload must have {', '.join(rule.requires)}")
    if rule and rule.evidence:
        facts.append(
            f"the engine runs the checks first, and {'one of them must fail' if rule.expects_failure else 'they must pass'}"
        )
    receiver = settings.hat(settings.find_hat_for(topic))
    if topic == settings.completion:
        facts.append("everything is done; the engine verifies it")
    elif topic != settings.cancellation:
        facts.append(f"goes to {receiver.id if receiver else 'the coordinator'}")
    if receiver and receiver.concurrency > 1:
        facts[-1] += ", which handles several events at once: publish one event for each independent piece of work"
    shown = "; ".join(fact.rstrip(".") for fact in facts if fact)
    return f"- `{topic}`: {shown}" if shown else f"- `{topic}`"


def _describe_coordinator(settings: HatsSettings) -> str:
    """The coordinator's job: which hats there are, and what to do about an event that no hat receives."""
    if not settings.hats:
        return (
            "You work alone: do the next piece of the work, one piece per turn. Keep tasks for what is left.\n"
            f"When the whole objective is done and verified, publish `{settings.completion}`; otherwise publish `work.done`"
            " with what comes next."
        )
    rows = []
    for hat in settings.hats:
        receives = ", ".join(_describe_trigger(settings, topic) for topic in hat.triggers) or "nothing"
        publishes = ", ".join(f"`{topic}`" for topic in hat.publishes) or "nothing"
        job = f"{hat.description} " if hat.description else ""
        rows.append(f"- {hat.id}: {job}Receives {receives}; publishes {publishes}.")
    lines = [
        "You are the coordinator: you get the events that no hat receives. Do not do the work of a hat yourself.",
        "Look at the event, the tasks and the documents. Then publish the event that gives the right hat its turn, with what",
        "it needs. You may publish any event that a hat receives, unless the text below says otherwise. An event that no hat",
        "receives comes back to you. If a hat asks a question, answer it in the payload of an event that this hat receives.",
        "Otherwise choose the hat after the last step that is finished. If you cannot tell, give the same hat another turn,",
        "and say what is missing.",
        "The hats:",
        *rows,
    ]
    if settings.required:
        lines.append(f"The run cannot end before these have been published: {', '.join(settings.required)}.")
    return "\n".join([*lines, _describe_completion(settings)])


def _describe_trigger(settings: HatsSettings, topic: str) -> str:
    """A topic with what its payload must have."""
    rule = settings.topics.get(topic)
    return f"`{topic}` (with {', '.join(rule.requires)})" if rule and rule.requires else f"`{topic}`"


def _describe_completion(settings: HatsSettings) -> str:
    """Who says that all is done; the coordinator only if no hat lists the promise."""
    owners = settings.allowed_publishers(settings.completion) or (COORDINATOR,)
    if COORDINATOR in owners:
        return f"When the whole objective is done and every required event has been published, publish `{settings.completion}`."
    claims = [topic for topic, rule in settings.topics.items() if rule.evidence]
    verdicts = [topic for topic in dict.fromkeys((*settings.required, *claims)) if settings.find_owners(topic)]
    sentences = [f"Only {' or '.join(owners)} may publish `{settings.completion}`."]
    if verdicts:
        listed = ", ".join(f"`{topic}`" for topic in verdicts)
        sentences.append(
            f"Never publish these yourself: {listed}. If one is missing, find out which step comes next on the way to it, and"
            " publish the event for the hat of that step. Its own hat is next only if the work before it is done."
        )
    return " ".join(sentences)


def _describe_events(settings: HatsSettings, state: HatsState) -> str:
    given = state.events
    described = [_describe_event(settings, state, event, EVENT // len(given)) for event in given]
    waiting = ", ".join(f"`{one.topic}`" for one in state.queue[len(given) : len(given) + 8])
    more = f"\nThese wait for later turns; do not handle them now: {waiting}." if waiting else ""
    several = "all of them yours now. If they are about different tasks, publish an event for each task."
    head = f"{len(given)} events, {several}\n\n" if len(given) > 1 else ""
    return head + "\n\n".join(described) + more


def _describe_event(settings: HatsSettings, state: HatsState, event: QueuedEvent, most: int) -> str:
    rule = settings.topics.get(event.topic)
    about = f"{rule.on_trigger}\n" if rule and rule.on_trigger else ""
    how = ""
    if event.instead_of:
        how = f", published by the engine instead of `{event.instead_of}`, which the checks did not confirm"
    elif event.by_engine and event.source != COORDINATOR:
        how = ", published for it because it published nothing"
    same = event.payload.strip() == state.objective.strip()
    payload = "(the objective above)" if same else quote_text(event.payload, most) or "(no payload)"
    lines = [f"{about}`{event.topic}` from {show_role(event.source)}{how}:", payload]
    if event.answers:
        lines.insert(1, f"It answers: {event.answers}")
    if event.commit:
        lines.append(f"Its work is merged: {show_merged(event.commit)}.")
    if title := _find_title(settings, state, event.payload):
        lines.append(title)
    return "\n".join(lines)


def _find_title(settings: HatsSettings, state: HatsState, payload: str) -> str:
    """The task that an event is about: an id alone says nothing."""
    if not settings.tasks or not (id := find_task_id(payload)):
        return ""
    task = parse_tasks(state.texts.get(TASKS, "")).by_id.get(id)
    return f"Task {task.id} ({task.status}): {task.title}" if task else ""


def _describe_notes(state: HatsState, hat: str, blockers: Sequence[str]) -> str:
    guidance = (
        "The user sent you a message (below). Follow it, then publish `human.guidance.ack` in addition to your event."
    )
    lines = [f"- {note}" for note in dict.fromkeys((*state.notes, *state.abandoned.get(hat, ())))]
    for blocker in blockers:
        is_noted = any(note.endswith(blocker) for note in state.notes)
        if not is_noted:
            lines.append(f"- the run cannot end yet: {blocker}")
    if any(one.is_for(hat) for one in state.guidance):
        lines.append(guidance)
    return "\n".join(lines)


def _describe_ready_tasks(run: str, settings: HatsSettings, state: HatsState) -> str:
    """The queue of this run: what is in progress, what can be started, what waits, and waves that overlap."""
    if not settings.tasks:
        return ""
    tasks = parse_tasks(state.texts.get(TASKS, ""))
    own = [task for task in tasks.by_id.values() if task.run == run]
    if not own:
        return ""
    ready, left = tasks.ready(run), tasks.list_unfinished(run)
    in_progress = [task for task in left if task.status == IN_PROGRESS]
    blocked = [task for task in left if task not in ready and task not in in_progress]
    lines = [f"{len(ready)} ready, {len(left)} open, {len(own) - len(left)} closed"]
    lines += [f"- [~] {_line(task)} (in progress)" for task in in_progress]
    lines += [f"- [ ] {_line(task)}" for task in ready]
    lines += ["Blocked:"] if blocked else []
    lines += [f"- {_line(task)}, waits for {', '.join(tasks.waits_for(task)) or task.status}" for task in blocked]
    steps = sorted({match[1] for task in left if (match := _STEP.search(task.key))})
    if len(steps) > 1:
        lines.append(
            f"Tasks of {', '.join(steps)} are open. Only the tasks of one step may be open at a time: close the others first."
        )
    return "\n".join(lines)


def _line(task: AgentTask) -> str:
    return f"[P{task.priority}] {' '.join(task.title.split())} ({task.id})" + (
        f" — key: {task.key}" if task.key else ""
    )


def _describe_memories(settings: HatsSettings, state: HatsState, now: float) -> str:
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
    different = list({" ".join(one.content.lower().split()): one for one in reversed(chosen)}.values())
    return render_memories(fit_memories(different[::-1], use.budget))


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
    return [
        *lines,
        *(f"- turn {one.turn}: `{one.topic}` from {show_role(one.source)}{_shorten_payload(one)}" for one in others),
    ]


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

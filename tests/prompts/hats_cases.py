"""The prompts of hats: the frame with every hat of code-assist, the coordinator, a hat alone, waves, refusals and messages."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from golden import NOW, NOWHERE, Case, after_steer, inbox_of, with_messages

from ralph.core.checks import Check
from ralph.core.events import MergeEnded, MergeResult
from ralph.core.signals import SignalType
from ralph.core.turns import FileStat, TurnRequest
from ralph.documents.hats.definition import Hat, HatsSettings, find_work_source
from ralph.documents.hats.reading import build_settings as run_settings
from ralph.documents.hats.reading import merge_layers, read_layer, split_layer
from ralph.documents.signals import POLL_FOR_MESSAGES
from ralph.store.presets import list_shipped, read_shipped
from ralph.store.settings import load_prompt
from ralph.workflows.hats.events import PUBLISH_IN_MESSAGE
from ralph.workflows.hats.routing import HatsContext
from ralph.workflows.hats.rules import Hats
from ralph.workflows.hats.state import MEMORIES, TASKS, HatGuidance, HatsState, QueuedEvent, TurnChange
from ralph.workflows.hats.waves import form_wave, list_wave_work
from ralph.workflows.merge_rules import Queue

RUN = "261116-093000-k3x9"
OBJECTIVE = "Add --verbose to the CLI"
LOGGING = "Use the logging module."
CHECKS = (Check("pytest -q"), Check("ruff check"))
SCRATCHPAD = ".ralph/agent/scratchpad.md"
FRAME = frozenset({"frame"})


def load(name: str) -> HatsSettings:
    preset, _ = split_layer(merge_layers([read_layer(read_shipped(name), f"{name}.yml", [], lambda path: "")]))
    return run_settings(preset, find_work_source(OBJECTIVE, preset.core.specs_dir, lambda path: "", name), checks=True)


CODE_ASSIST = load("code-assist")
TASK = {
    "id": "task-1-abcd",
    "title": "The option is parsed",
    "status": "in_progress",
    "key": "code-assist:add-verbose-to-the-cli:step-01:parse",
    "priority": 2,
    "blocked_by": [],
    "loop_id": RUN,
}
NEXT = {
    **TASK,
    "id": "task-2-abcd",
    "title": "The option prints debug lines",
    "status": "open",
    "key": "code-assist:add-verbose-to-the-cli:step-01:print",
    "blocked_by": ["task-1-abcd"],
}
TEXTS = {TASKS: "".join(json.dumps(one) + "\n" for one in (TASK, NEXT))}
KNOWN = {
    **TEXTS,
    SCRATCHPAD: "# Notes\n\nThe parser is in cli.py; tests use CliRunner.\n",
    MEMORIES: (
        "# Memories\n\n## Patterns\n\n### mem-2-aaaa\n> Options are declared in cli.py\n"
        "<!-- tags: cli | created: 2027-01-10 -->\n\n### mem-1-aaaa\n> Options are declared in cli.py\n"
        "<!-- tags: cli | created: 2027-01-09 -->\n"
    ),
}
ABOUT_TASK = json.dumps({"task_id": "task-1-abcd", "task_key": TASK["key"]})


def seen_in_turn_3(hat: str) -> dict[str, Any]:
    return {"last_turns": {hat: 3}, "trees": {hat: "1f" * 20}, "snapshot": "2e" * 20}


def rules(settings: HatsSettings = CODE_ASSIST, checks: tuple[Check, ...] = CHECKS) -> Hats:
    frames = load_prompt("hats", NOWHERE), load_prompt("resolver", NOWHERE)
    return Hats(HatsContext(RUN, OBJECTIVE, settings, checks, *frames))


def state(topic: str, payload: str, source: str, **more: object) -> HatsState:
    given = HatsState(
        OBJECTIVE, iteration=5, last_turn=4, events_published=4, queue=(QueuedEvent(4, topic, payload, source, 4),)
    )
    return replace(given, **{"texts": TEXTS, **more})


def ask(given: HatsState, hat: str, workflow: Hats | None = None) -> TurnRequest:
    return (workflow or rules()).context.request_turn(given, hat, "iteration-5", NOW)


def case(name: str, request: TurnRequest, settings: HatsSettings = CODE_ASSIST) -> Case:
    documents = settings.documents
    paths = {".ralph/agent/tasks.jsonl", MEMORIES, ".ralph/agent/decisions.md", SCRATCHPAD, documents}
    return Case(f"hats/{name}", request.prompt, inbox_of(request), frozenset(paths - {""}), FRAME)


def cases() -> Iterator[Case]:
    start = replace(state("build.start", OBJECTIVE, "ralph"), texts={}, last_turn=0)
    yield case("planner-first", ask(start, "planner"))
    yield case("planner-further", ask(state("queue.advance", ABOUT_TASK, "finalizer", texts=KNOWN), "planner"))
    task = state("tasks.ready", ABOUT_TASK, "planner")
    yield case("builder", ask(task, "builder"))
    rejected = "`app --verbose=yes` ends with a traceback: refuse a value, and test it (cli.py:40)"
    yield case(
        "builder-rejected", ask(state("review.rejected", f"task_id: task-1-abcd\n{rejected}", "critic"), "builder")
    )
    refused = ("`build.ready` is not published by builder: it may publish `review.ready`, `build.blocked`",)
    yield case("builder-refused", ask(replace(task, notes=refused), "builder"))
    changed = (TurnChange(3, "builder", 2, 40, 3), TurnChange(4, "builder", 1, 5, 0))
    review = state("review.ready", ABOUT_TASK, "builder", changed=changed)
    yield case("critic-first", ask(review, "critic"))
    reason = json.dumps({"task_id": "task-1-abcd", "task_key": TASK["key"], "reason": rejected})
    said = QueuedEvent(3, "review.rejected", reason, "critic", 3)
    again = replace(review, recent=(said,), **seen_in_turn_3("critic"), task_trees={"task-1-abcd": "0a" * 20})
    yield case("critic-further", ask(again, "critic"))
    yield case("finalizer", ask(state("review.passed", ABOUT_TASK, "critic"), "finalizer"))
    began = QueuedEvent(3, "tasks.ready", ABOUT_TASK, "planner", 3)
    odd = state("odd.event", "what now?", "builder")
    odd = replace(odd, recent=(began, odd.event), changed=(TurnChange(4, "builder", 2, 40, 3),))
    yield case("coordinator", ask(odd, "ralph"))
    decided = QueuedEvent(2, "tasks.ready", ABOUT_TASK, "ralph", 2)
    since = QueuedEvent(3, "build.blocked", "cli.py has no parser", "builder", 3)
    seen = replace(odd, last_turns={"ralph": 2}, recent=(decided, since, odd.event))
    yield case("coordinator-further", ask(seen, "ralph"))
    yield case("coordinator-nothing-new", ask(replace(seen, recent=(decided,)), "ralph"))
    request = ask(replace(odd, guidance=(HatGuidance(LOGGING, NOW),)), "ralph")
    yield case("coordinator-steered", replace(request, prompt=with_messages(request, (SignalType.STEER, LOGGING))))
    steered = replace(task, guidance=(HatGuidance(LOGGING, NOW),))
    request = ask(steered, "builder")
    told = with_messages(request, (SignalType.STEER, LOGGING))
    yield case("builder-steered", replace(request, prompt=told))
    continued = after_steer(request, LOGGING, FileStat("cli.py", 14, 2))
    yield case("builder-continued", replace(request, prompt=continued.with_parts(POLL_FOR_MESSAGES)))
    yield case("builder-without-shell", replace(request, prompt=request.prompt.with_parts(PUBLISH_IN_MESSAGE)))
    alone = HatsSettings()
    yield case(
        "alone", ask(replace(start, queue=(QueuedEvent(1, "task.start", OBJECTIVE),)), "ralph", rules(alone)), alone
    )
    unchecked = rules(CODE_ASSIST, ())
    yield case("builder-without-checks", ask(task, "builder", unchecked))
    yield from _waves()
    yield _refuted()
    yield from _presets()
    yield _resolver()


def _waves() -> Iterator[Case]:
    """A worker of a wave, and a hat that takes all its results."""
    parallel = {"builder": {"concurrency": 2}, "critic": {"gathers": True}}
    settings = replace(CODE_ASSIST, hats=tuple(replace(hat, **parallel.get(hat.id, {})) for hat in CODE_ASSIST.hats))
    workflow = rules(settings)
    ready = {**NEXT, "blocked_by": []}
    texts = {TASKS: "".join(json.dumps(one) + "\n" for one in (TASK, ready))}
    parts = ((TASK["id"], TASK["key"], "3d" * 20), (NEXT["id"], NEXT["key"], "4e" * 20))
    asked = tuple(
        QueuedEvent(number, "tasks.ready", json.dumps({"task_id": task, "task_key": name}), "planner", 1)
        for number, (task, name, _) in enumerate(parts, 2)
    )
    waiting = replace(state("tasks.ready", "", "planner", texts=texts), queue=asked, snapshot="1f" * 20)
    wave = form_wave(workflow.context, waiting, NOW)
    assert wave
    worker = list_wave_work(workflow.context, wave, NOW)[0]
    assert isinstance(worker, TurnRequest)
    yield case("builder-in-wave", worker, settings)
    queue = tuple(
        QueuedEvent(
            number + 2,
            "review.ready",
            json.dumps({"task_id": task, "task_key": name}),
            "builder",
            number,
            answers=f"`tasks.ready` {asked[number - 2].payload}",
            commit=commit,
        )
        for number, (task, name, commit) in enumerate(parts, 2)
    )
    changed = tuple(
        TurnChange(number, "builder", 2, 40, 3, task=task, commit=commit)
        for number, (task, _, commit) in enumerate(parts, 2)
    )
    given = replace(wave, wave=None, queue=queue, events_in_turn=2, changed=changed, snapshot="2e" * 20)
    yield case("critic-gathers", ask(given, "critic", workflow), settings)


def _refuted() -> Case:
    """A hat whose claim the checks did not confirm."""
    settings = load("tdd")
    payload = (
        "task_id: task-1-abcd\n\nThe engine ran the checks, and they do not pass:\n$ pytest -q\n(failed: exit code 1)"
    )
    event = QueuedEvent(4, "code.red", payload, "coder", 4, by_engine=True, instead_of="test.green")
    return case("coder-refuted", ask(replace(state("", "", ""), queue=(event,)), "coder", rules(settings)), settings)


def _presets() -> Iterator[Case]:
    """Every hat of every shipped preset: the first time that it gets an event, and a later time. And its coordinator."""
    for name in sorted(list_shipped()):
        settings = load(name)
        request = ask(replace(state("odd.event", "what now?", settings.hats[0].id), texts={}), "ralph", rules(settings))
        yield replace(case("", request, settings), name=f"presets/{name}-coordinator")
        for hat in settings.hats:
            topics = [one for one in hat.triggers if "*" not in one] or ["odd.event"]
            first = replace(state(topics[0], "see the objective", "ralph"), texts={})
            request = ask(first, hat.id, rules(settings))
            yield replace(case("", request, settings), name=f"presets/{name}-{hat.id}")
            request = ask(_further(settings, hat, topics), hat.id, rules(settings))
            yield replace(case("", request, settings), name=f"presets/{name}-{hat.id}-further")
            guided = replace(_further(settings, hat, topics), guidance=(HatGuidance(LOGGING, NOW),))
            request = ask(guided, hat.id, rules(settings))
            told = with_messages(request, (SignalType.STEER, LOGGING), in_force=("Keep Python 3.9.",))
            yield replace(
                case("", replace(request, prompt=told), settings), name=f"presets/{name}-{hat.id}-further-steered"
            )


def _further(settings: HatsSettings, hat: Hat, topics: Sequence[str]) -> HatsState:
    """A later turn of a hat: others changed files since then, and sent the work back with a reason."""
    published = {topic: other.id for other in settings.hats for topic in other.publishes}
    topic = next((one for one in reversed(topics) if one in published), topics[0])
    source = published.get(topic, "ralph")
    payload = _payload(settings, topic, "--verbose prints nothing with --quiet: run `app --quiet --verbose`")
    before = QueuedEvent(3, hat.publishes[0], _payload(settings, hat.publishes[0], "see cli.py:12"), hat.id, 3)
    changed = (TurnChange(4, source, 2, 12, 3),)
    return state(topic, payload, source, recent=(before,), changed=changed, **seen_in_turn_3(hat.id))


def _payload(settings: HatsSettings, topic: str, reason: str) -> str:
    rule = settings.topics.get(topic)
    values = {"task_id": "task-1-abcd", "test": "test_cli.py::test_verbose"}
    keys = {key: values.get(key, key) for key in rule.requires} if rule else {}
    return json.dumps({"task_id": "task-1-abcd", **keys, "reason": reason})


def _resolver() -> Case:
    """Who makes two changes fit together."""
    queue = Queue().add(
        "builder-4", "builder-4/1", "builder: tasks.ready", "The event `tasks.ready` asked for it:\nParse the option."
    )
    (merge,) = queue.list_work(lambda task: CHECKS, "")
    conflict = MergeEnded(merge.key, "builder-4/1", MergeResult.CONFLICT, f"ralph/{RUN}/builder-4/1", files=("cli.py",))
    queue, _ = queue.accept(conflict)
    (request,) = queue.list_work(lambda task: CHECKS, load_prompt("resolver", NOWHERE))
    assert isinstance(request, TurnRequest)
    inbox = frozenset({"merged.diff", "task.diff"})
    return Case("turn/resolver", request.prompt, inbox, frozenset({"cli.py"}))

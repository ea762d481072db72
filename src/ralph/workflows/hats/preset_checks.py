"""Topics that go astray, hats that never get their turn, and instructions that ask for what the engine refuses."""

import re
from collections.abc import Iterator

from ralph.core.checks import Severity
from ralph.core.limits import Limits
from ralph.core.text import count
from ralph.documents.agent.events import ACKNOWLEDGED, find_topic_fault, topic_matches
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import Path
from ralph.workflows.hats.preset_completion import check_completion, find_default_cycle, find_starved_hats
from ralph.workflows.hats.preset_model import Model, PresetFinding, find_nearest, make_error, make_warning, suggest
from ralph.workflows.hats.state import TASK_RESUME, TASK_START
from ralph.workflows.hats.waves import FAILED

NO_COORDINATOR = "add a hat that receives it, or describe it under `events:` if the coordinator should handle it"


def check_preset(preset: Preset, settings: HatsSettings, limits: Limits) -> list[PresetFinding]:
    """Every finding, errors first; none for a preset without hats, where one agent works alone."""
    if not settings.hats:
        return []
    model = Model(preset, settings)
    found = dict.fromkeys((*check_completion(model, limits), *check_routes(model), *check_instructions(model)))
    return sorted(found, key=lambda one: one.severity is not Severity.ERROR)


def check_routes(model: Model) -> Iterator[PresetFinding]:
    """What is wrong on the way of an event from hat to hat."""
    yield from _start(model)
    yield from _check_topics(model)
    yield from _check_triggers(model)
    yield from _find_unreachable_hats(model)
    yield from _find_dead_ends(model)
    yield from _check_waves(model)
    if (circle := find_default_cycle(model)) and model.hats:
        most = model.settings.max_default_events
        until = f"until the run asks you, after {count(most, 'turn')} of one hat" if most else "forever"
        yield make_warning(
            "default-loop",
            ("hats", circle[0], "default_publishes"),
            f"if no hat publishes anything, {' -> '.join((*circle, circle[0]))} continues by default topics alone, {until}",
            "remove the default of one of them; the coordinator then decides what follows",
            circle[0],
        )
    limited = any(hat.max_activations for hat in model.settings.hats)
    for id in sorted(find_starved_hats(model)) if limited else ():
        if f"{id}.exhausted" in model.preset.events:
            continue
        yield make_warning(
            "starves",
            ("hats", id, "max_activations"),
            f"once {id} has had its turns, no hat receives its events, and no hat can end the run",
            f"let a hat receive `{id}.exhausted`, or describe it under `events:` for the coordinator",
            id,
        )


def _start(model: Model) -> Iterator[PresetFinding]:
    loop, start = model.preset.event_loop, model.start
    path = ("event_loop", "starting_event")
    if start in model.promises:
        yield make_warning(
            "start-promise", path, f"`{start}` is a promise: as the starting event it only costs a turn", "name another"
        )
    elif start != TASK_START and model.find_receiver(start) == COORDINATOR:
        yield make_warning(
            "start-unhandled",
            path,
            f"no hat receives `{start}`: the coordinator begins",
            suggest(start, model.triggers, "add it to the triggers of the hat that begins"),
        )
    if loop.starting_hat and model.find_receiver(start) != loop.starting_hat:
        why = (
            f"`{start}` goes to {model.find_receiver(start)}"
            if start != TASK_START
            else "it has no trigger without `*`"
        )
        yield make_warning(
            "starting-hat",
            ("event_loop", "starting_hat"),
            f"{loop.starting_hat} does not get the first turn: {why}",
            "name a `starting_event` that it receives",
            loop.starting_hat,
        )


def _list_outlets(model: Model) -> Iterator[tuple[str, Path, str]]:
    """Every topic that the preset publishes, the place that says so, and the hat."""
    for hat in model.settings.hats:
        for topic in hat.publishes:
            yield topic, ("hats", hat.id, "publishes", topic), hat.id
        if hat.default_publishes and hat.default_publishes not in hat.publishes:
            yield hat.default_publishes, ("hats", hat.id, "default_publishes"), hat.id
    for topic, rule in model.preset.events.items():
        if rule.otherwise:
            yield rule.otherwise, ("events", topic, "otherwise"), ""


def _check_topics(model: Model) -> Iterator[PresetFinding]:
    """Topics that are published and that no hat receives, or that cannot be published."""
    astray = set()
    for topic, path, hat in _list_outlets(model):
        pattern = "*" in topic and path[-1] == topic
        if topic in model.promises or pattern:
            continue
        if fault := find_topic_fault(topic):
            yield make_warning("no-topic", path, fault, "write a topic like `review.passed`", hat)
        elif topic.startswith("human."):
            what = f"`{topic}` can only come from the user: the engine refuses it"
            yield make_warning("human-topic", path, what, "publish another; ask with `ralph tools interact ask`", hat)
        elif model.find_receiver(topic) == COORDINATOR and topic not in model.preset.events and topic not in astray:
            astray.add(topic)
            what = f"no hat receives `{topic}`: it goes to the coordinator"
            yield make_warning("unhandled-topic", path, what, suggest(topic, model.triggers, NO_COORDINATOR), hat)
    known = {*model.reached, *model.triggers, *model.earnest, *model.promises}
    for topic in model.preset.events:
        outlets = (one for one, _, _ in _list_outlets(model))
        if topic not in known and not any(topic_matches(one, topic) for one in outlets):
            what = f"`{topic}` is described, but no hat publishes or receives it"
            yield make_warning("unused-event", ("events", topic), what, suggest(topic, known, "remove it"))


def _check_triggers(model: Model) -> Iterator[PresetFinding]:
    """Triggers that nothing can pull, or that another hat is quicker with."""
    coming = {model.start, *(topic for topic, _, _ in _list_outlets(model))}
    coming |= {f"{hat.id}.exhausted" for hat in model.settings.hats if hat.max_activations}
    coming |= {model.substitute_for(topic) for topic in coming} - {""}
    coming |= {FAILED} if model.settings.has_waves else set()
    astray = sorted(topic for topic in coming - {model.start} if model.find_receiver(topic) == COORDINATOR)
    for hat in model.settings.hats:
        for trigger in hat.triggers:
            path = ("hats", hat.id, "triggers", trigger)
            missing = hat.id in model.hats and not any(topic_matches(one, trigger) for one in coming)
            if why := _explain_undeliverable(model, trigger):
                yield make_warning("dead-trigger", path, f"`{trigger}` never comes: {why}", "remove it", hat.id)
            elif "*" in trigger:
                yield from _find_shadowed_trigger(model, hat, trigger, coming)
            elif missing and (
                find_nearest(trigger, astray) or not (model.dispatched or trigger in model.preset.events)
            ):
                todo = suggest(trigger, astray, "let a hat publish it, describe it under `events:`, or remove it")
                yield make_warning("dead-trigger", path, f"no hat publishes `{trigger}`", todo, hat.id)
        if not hat.triggers:
            todo = "add `triggers`"
            yield make_error(
                "no-triggers", ("hats", hat.id), f"{hat.id} receives nothing, so it never gets a turn", todo, hat.id
            )
        if not hat.instructions and not hat.description:
            what = f"{hat.id} has neither `instructions` nor a `description`"
            yield make_warning("no-instructions", ("hats", hat.id), what, "add `instructions`", hat.id)


def _explain_undeliverable(model: Model, trigger: str) -> str:
    """Why the engine never delivers a topic."""
    if trigger in model.promises:
        return "it is a promise, which ends the run"
    if trigger.startswith("human."):
        return "messages from the user arrive as guidance, with every turn"
    hat = model.settings.hat(trigger.removesuffix(".exhausted")) if trigger.endswith(".exhausted") else None
    return f"{hat.id} has no `max_activations`" if hat and not hat.max_activations else ""


def _find_shadowed_trigger(model: Model, hat: Hat, trigger: str, coming: set[str]) -> Iterator[PresetFinding]:
    """A pattern whose topics all go to others, or to an earlier hat with a pattern as wide."""
    path = ("hats", hat.id, "triggers", trigger)
    meets = sorted(topic for topic in coming if "*" not in topic and topic_matches(trigger, topic))
    tireless = {other.id for other in model.settings.hats if not other.max_activations} - {hat.id}
    others = {topic: model.find_receiver(topic) for topic in meets if model.find_receiver(topic) in tireless}
    exact = {one for other in model.settings.hats for one in other.triggers if "*" not in one}
    if vague := [topic for topic in others if topic not in exact]:
        what = f"`{vague[0]}` matches patterns of {others[vague[0]]} and {hat.id}: {others[vague[0]]} takes it"
        yield make_warning(
            "ambiguous-triggers", path, what, f"name `{vague[0]}` in the triggers of one of them", hat.id
        )
    elif others and len(others) == len(meets):
        what = f"everything that `{trigger}` matches goes to {', '.join(sorted(set(others.values())))}"
        yield make_warning(
            "shadowed-trigger", path, what, "remove it, or narrow the triggers of the other hats", hat.id
        )


def _find_unreachable_hats(model: Model) -> Iterator[PresetFinding]:
    """Hats that no event leads to; of those that follow from each other, the first."""
    lost = [hat for hat in model.settings.hats if hat.id not in model.hats and hat.triggers]
    fed = {hat.id: {model.find_receiver(topic) for topic in model.follows(hat.id, "")} - {hat.id} for hat in lost}
    roots = [hat for hat in lost if not any(hat.id in below for below in fed.values())]
    astray = sorted({topic for topic, _, _ in _list_outlets(model) if model.find_receiver(topic) == COORDINATOR})
    done: set[str] = set()
    for hat in (*roots, *lost):
        if hat.id in done:
            continue
        left = [hat.id]
        while left:
            done.add(id := left.pop())
            left += [one for one in fed.get(id, ()) if one not in done]
        triggers = ", ".join(f"`{one}`" for one in hat.triggers)
        why = f"no hat that gets a turn publishes {triggers}"
        for trigger in hat.triggers:
            if any(topic_matches(trigger, topic) for topic in model.reached):
                why = f"other hats receive all of {triggers}"
        todo = "let a hat publish it"
        near = [find_nearest(trigger, astray) for trigger in hat.triggers]
        if meant := next(filter(None, near), ""):
            todo = f"did you mean `{meant}`?"
        yield make_warning("unreachable-hat", ("hats", hat.id), f"no event leads to {hat.id}: {why}", todo, hat.id)


def _find_dead_ends(model: Model) -> Iterator[PresetFinding]:
    """Hats after which the run cannot end any more: the first on each such way."""
    hopeful = [(who, topic) for who, topic in model.turns if topic in model.hopeful]
    next_to = {topic for who, one in hopeful for topic in model.follows(who, one)} - model.hopeful
    for topic in sorted(next_to, key=lambda one: model.find_receiver(one)) if hopeful else ():
        hat = model.settings.hat(model.find_receiver(topic))
        if not hat or hat.id not in model.hats:
            continue
        published = ", ".join(f"`{one}`" for one in sorted(model.follows(hat.id, topic) - {TASK_RESUME})) or "nothing"
        what = f"after {hat.id} no hat can end the run: it publishes {published}"
        todo = "let it publish a topic that another hat receives, or set `default_publishes`"
        yield make_warning("dead-end", ("hats", hat.id), what, todo, hat.id)


def _check_waves(model: Model) -> Iterator[PresetFinding]:
    """Hats that work side by side, or gather what such did, and never get to."""
    outlets = [(topic, model.settings.hat(id)) for topic, _, id in _list_outlets(model)]
    for hat in model.settings.hats:
        given = [other for topic, other in outlets if any(topic_matches(one, topic) for one in hat.triggers)]
        if hat.gathers and not any(other and other.concurrency > 1 for other in given):
            what = (
                f"{hat.id} collects the results of a wave, but no hat that publishes for it has `concurrency` above 1"
            )
            todo = "set `concurrency` for one of them, or remove `aggregate`"
            yield make_warning("gathers-nothing", ("hats", hat.id, "aggregate"), what, todo, hat.id)
        if hat.concurrency > 1 and not given and not model.dispatched:
            what = f"{hat.id} works alone: no hat publishes for it, so it never has two events at once"
            todo = "let a hat publish several events for it, or remove `concurrency`"
            yield make_warning("wave-of-one", ("hats", hat.id, "concurrency"), what, todo, hat.id)
        if hat.max_activations and hat.concurrency > hat.max_activations:
            what = f"{hat.concurrency} turns of {hat.id} at once, but only {hat.max_activations} in the whole run"
            yield make_warning("wave-limited", ("hats", hat.id, "concurrency"), what, "allow it more turns", hat.id)


_EMIT = re.compile(r"""(?:(?:ralph|RALPH_BIN)["'`}]* emit|<event topic=)\s*["'`]?([A-Za-z][\w.:-]*\w)""")
_NOT = re.compile(r"\b(?:never|not|don't|nobody)\b[^.;]*$", re.IGNORECASE)
_ASK = "interact ask"
_ADDS = re.compile(r"tools task (?:add|ensure)")
_CLOSES = re.compile(r"task close|clos\w+ (?:\w+ ){0,3}tasks?|tasks? (?:\w+ ){0,3}clos", re.IGNORECASE)


def check_instructions(model: Model) -> Iterator[PresetFinding]:
    """Instructions that ask for what the engine refuses, and payloads that no hat knows how to fill."""
    for hat in model.settings.hats:
        yield from _emits(model, hat)
        yield from _check_payload_keys(model, hat)
        if not hat.may_ask and _ASK in hat.instructions:
            what = f"{hat.id} is told to ask the user, but `may_ask` is false"
            path = ("hats", hat.id, "instructions", _ASK)
            yield make_warning("may-not-ask", path, what, "remove one of them", hat.id)
    adding = [hat for hat in model.settings.hats if _ADDS.search(hat.instructions)]
    closing = any(_CLOSES.search(hat.instructions) for hat in model.settings.hats)
    if adding and model.settings.tasks and not closing:
        found = _ADDS.search(adding[0].instructions)
        path = ("hats", adding[0].id, "instructions", found[0] if found else "")
        what = "hats add tasks, but no hat is told to close them, and a run with open tasks cannot complete"
        yield make_warning("tasks-stay-open", path, what, "tell a hat to `ralph tools task close`", adding[0].id)


def _emits(model: Model, hat: Hat) -> Iterator[PresetFinding]:
    """Topics that a hat is told to publish and does not list."""
    for match in _EMIT.finditer(hat.instructions):
        topic, before = match[1], hat.instructions[: match.start()].rpartition("\n")[2]
        listed = any(topic_matches(one, topic) for one in hat.publishes) or topic in (ACKNOWLEDGED, "TOPIC")
        if listed or _NOT.search(before):
            continue
        path = ("hats", hat.id, "instructions", match[0])
        todo = suggest(
            topic, hat.publishes, f"add it to the `publishes` of {hat.id}, or remove it from its instructions"
        )
        what = f"{hat.id} is told to publish `{topic}`, which it does not list"
        if model.is_allowed(hat, topic):
            yield make_warning("emit-unlisted", path, what, todo, hat.id)
        else:
            yield make_error("emit-refused", path, f"{what}: the engine refuses it", todo, hat.id)
    default = hat.default_publishes
    if default and default not in model.promises and hat.publishes and default not in hat.publishes:
        what = f"`{default}` is published for {hat.id}, which does not list it"
        todo = suggest(default, hat.publishes, "add it to its `publishes`")
        yield make_warning("default-unlisted", ("hats", hat.id, "default_publishes"), what, todo, hat.id)


def _check_payload_keys(model: Model, hat: Hat) -> Iterator[PresetFinding]:
    """Keys that a payload must have, and that the hat is neither given nor told of."""
    topics = model.settings.topics
    given: set[str] = set()
    for trigger in hat.triggers:
        if trigger in topics:
            given.update(topics[trigger].requires)
    for topic in model.list_published(hat):
        rule = topics.get(topic)
        if rule is None:
            continue
        text = f"{hat.instructions} {rule.description} {rule.on_publish}"
        missing = [key for key in rule.requires if key not in given and key not in text]
        if missing:
            what = f"`{topic}` must have {', '.join(missing)}, and {hat.id} neither receives nor knows it"
            path = ("hats", hat.id, "publishes", topic)
            todo = "say in its instructions what to put there, or require the key in its trigger"
            yield make_warning("requires-untold", path, what, todo, hat.id)
    rule = topics.get(hat.default_publishes)
    if rule and (lacking := [key for key in rule.requires if key not in given]):
        keys = ", ".join(lacking)
        what = f"as a default, `{hat.default_publishes}` passes on the payload of {hat.id}, which may lack {keys}"
        todo = "require the key in its triggers, or remove the default"
        yield make_warning("default-lacks", ("hats", hat.id, "default_publishes"), what, todo, hat.id)

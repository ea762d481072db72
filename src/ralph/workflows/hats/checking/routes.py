"""Topics that go astray and hats that never get their turn."""

from collections.abc import Iterator

from ralph.documents.agent.events import fault_of_topic, matches
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.documents.hats.places import Path
from ralph.workflows.hats.checking.findings import Finding, error, meant, nearest, warning
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.checking.search import by_defaults, starved
from ralph.workflows.hats.state import RESUME, START
from ralph.workflows.hats.waves import FAILED

NO_COORDINATOR = "give it a hat, or describe it under `events:` if the coordinator is meant to see to it"


def check_routes(model: Model) -> Iterator[Finding]:
    """What is wrong on the way of an event from hat to hat."""
    yield from _start(model)
    yield from _topics(model)
    yield from _triggers(model)
    yield from _unreachable(model)
    yield from _dead_ends(model)
    yield from _waves(model)
    if (circle := by_defaults(model)) and model.hats:
        yield warning(
            "default-loop",
            ("hats", circle[0], "default_publishes"),
            f"where nobody publishes anything, {' -> '.join((*circle, circle[0]))} goes on by defaults alone",
            "leave out the default of one of them: the coordinator is then told that it said nothing",
            circle[0],
        )
    limited = any(hat.max_activations for hat in model.settings.hats)
    for id in sorted(starved(model)) if limited else ():
        if f"{id}.exhausted" in model.preset.events:
            continue
        yield warning(
            "starves",
            ("hats", id, "max_activations"),
            f"once {id} has had its turns, nobody takes its events, and no hat can end the run",
            f"have a hat take `{id}.exhausted`, or describe it under `events:` for the coordinator",
            id,
        )


def _start(model: Model) -> Iterator[Finding]:
    loop, start = model.preset.event_loop, model.start
    path = ("event_loop", "starting_event")
    if start in model.promises:
        yield warning("start-promise", path, f"`{start}` is a promise: as a start it only costs a turn", "name another")
    elif start != START and model.taker(start) == COORDINATOR:
        yield warning(
            "start-unhandled",
            path,
            f"no hat takes `{start}`: the coordinator begins",
            meant(start, model.triggers, "add it to the triggers of the hat that begins"),
        )
    if loop.starting_hat and model.taker(start) != loop.starting_hat:
        why = f"`{start}` goes to {model.taker(start)}" if start != START else "it has no trigger without `*`"
        yield warning(
            "starting-hat",
            ("event_loop", "starting_hat"),
            f"{loop.starting_hat} does not begin: {why}",
            "name a `starting_event` that it takes",
            loop.starting_hat,
        )


def _outlets(model: Model) -> Iterator[tuple[str, Path, str]]:
    """Every topic that the preset has published, where it says so, and the hat."""
    for hat in model.settings.hats:
        for topic in hat.publishes:
            yield topic, ("hats", hat.id, "publishes", topic), hat.id
        if hat.default_publishes and hat.default_publishes not in hat.publishes:
            yield hat.default_publishes, ("hats", hat.id, "default_publishes"), hat.id
    for topic, rule in model.preset.events.items():
        if rule.otherwise:
            yield rule.otherwise, ("events", topic, "otherwise"), ""


def _topics(model: Model) -> Iterator[Finding]:
    """Published and taken by nobody, or not publishable at all."""
    astray = set()
    for topic, path, hat in _outlets(model):
        pattern = "*" in topic and path[-1] == topic
        if topic in model.promises or pattern:
            continue
        if fault := fault_of_topic(topic):
            yield warning("no-topic", path, fault, "write a topic like `review.passed`", hat)
        elif topic.startswith("human."):
            what = f"`{topic}` is a person's to say: the engine refuses it"
            yield warning("human-topic", path, what, "publish another; ask with `ralph tools interact ask`", hat)
        elif model.taker(topic) == COORDINATOR and topic not in model.preset.events and topic not in astray:
            astray.add(topic)
            what = f"no hat takes `{topic}`: it goes to the coordinator"
            yield warning("unhandled-topic", path, what, meant(topic, model.triggers, NO_COORDINATOR), hat)
    known = {*model.reached, *model.triggers, *model.earnest, *model.promises}
    for topic in model.preset.events:
        outlets = (one for one, _, _ in _outlets(model))
        if topic not in known and not any(matches(one, topic) for one in outlets):
            what = f"`{topic}` is described, and nobody publishes or takes it"
            yield warning("unused-event", ("events", topic), what, meant(topic, known, "take it out"))


def _triggers(model: Model) -> Iterator[Finding]:
    """Triggers that nothing can pull, or that another hat is quicker with."""
    coming = {model.start, *(topic for topic, _, _ in _outlets(model))}
    coming |= {f"{hat.id}.exhausted" for hat in model.settings.hats if hat.max_activations}
    coming |= {model.refused(topic) for topic in coming} - {""}
    coming |= {FAILED} if model.settings.has_waves else set()
    astray = sorted(topic for topic in coming - {model.start} if model.taker(topic) == COORDINATOR)
    for hat in model.settings.hats:
        for trigger in hat.triggers:
            path = ("hats", hat.id, "triggers", trigger)
            missing = hat.id in model.hats and not any(matches(one, trigger) for one in coming)
            if why := _never(model, trigger):
                yield warning("dead-trigger", path, f"`{trigger}` never comes: {why}", "take it out", hat.id)
            elif "*" in trigger:
                yield from _shadows(model, hat, trigger, coming)
            elif missing and (nearest(trigger, astray) or not (model.dispatched or trigger in model.preset.events)):
                todo = meant(trigger, astray, "have a hat publish it, describe it under `events:`, or take it out")
                yield warning("dead-trigger", path, f"nobody publishes `{trigger}`", todo, hat.id)
        if not hat.triggers:
            todo = "give it `triggers`"
            yield error("no-triggers", ("hats", hat.id), f"{hat.id} takes nothing, so it has no turn", todo, hat.id)
        if not hat.instructions and not hat.description:
            what = f"{hat.id} is told nothing of what to do"
            yield warning("no-instructions", ("hats", hat.id), what, "give it `instructions`", hat.id)


def _never(model: Model, trigger: str) -> str:
    """Why the engine never delivers a topic."""
    if trigger in model.promises:
        return "it is a promise, which ends the run"
    if trigger.startswith("human."):
        return "what people say comes as guidance, with every turn"
    hat = model.settings.hat(trigger.removesuffix(".exhausted")) if trigger.endswith(".exhausted") else None
    return f"{hat.id} has no `max_activations`" if hat and not hat.max_activations else ""


def _shadows(model: Model, hat: Hat, trigger: str, coming: set[str]) -> Iterator[Finding]:
    """A pattern whose topics all go to others, or to an earlier hat with a pattern as wide."""
    path = ("hats", hat.id, "triggers", trigger)
    meets = sorted(topic for topic in coming if "*" not in topic and matches(trigger, topic))
    tireless = {other.id for other in model.settings.hats if not other.max_activations} - {hat.id}
    others = {topic: model.taker(topic) for topic in meets if model.taker(topic) in tireless}
    exact = {one for other in model.settings.hats for one in other.triggers if "*" not in one}
    if vague := [topic for topic in others if topic not in exact]:
        what = f"`{vague[0]}` matches patterns of {others[vague[0]]} and {hat.id}: {others[vague[0]]} takes it"
        yield warning("ambiguous-triggers", path, what, f"name `{vague[0]}` in the triggers of one of them", hat.id)
    elif others and len(others) == len(meets):
        what = f"all that `{trigger}` matches is taken by {', '.join(sorted(set(others.values())))}"
        yield warning("shadowed-trigger", path, what, "take it out, or let the others have less", hat.id)


def _unreachable(model: Model) -> Iterator[Finding]:
    """Hats that no event leads to; of those that follow from each other, the first."""
    lost = [hat for hat in model.settings.hats if hat.id not in model.hats and hat.triggers]
    fed = {hat.id: {model.taker(topic) for topic in model.follows(hat.id, "")} - {hat.id} for hat in lost}
    roots = [hat for hat in lost if not any(hat.id in below for below in fed.values())]
    astray = sorted({topic for topic, _, _ in _outlets(model) if model.taker(topic) == COORDINATOR})
    done: set[str] = set()
    for hat in (*roots, *lost):
        if hat.id in done:
            continue
        left = [hat.id]
        while left:
            done.add(id := left.pop())
            left += [one for one in fed.get(id, ()) if one not in done]
        triggers = ", ".join(f"`{one}`" for one in hat.triggers)
        shadowed = any(matches(trigger, topic) for trigger in hat.triggers for topic in model.reached)
        why = f"others take all of {triggers}" if shadowed else f"nobody who has a turn publishes {triggers}"
        near = next((f"did you mean `{n}`?" for one in hat.triggers if (n := nearest(one, astray))), "")
        todo = near or "have a hat publish it"
        yield warning("unreachable-hat", ("hats", hat.id), f"no event leads to {hat.id}: {why}", todo, hat.id)


def _dead_ends(model: Model) -> Iterator[Finding]:
    """Hats after which the run cannot end any more: the first on each such way."""
    hopeful = [(who, topic) for who, topic in model.turns if topic in model.hopeful]
    next_to = {topic for who, one in hopeful for topic in model.follows(who, one)} - model.hopeful
    for topic in sorted(next_to, key=lambda one: model.taker(one)) if hopeful else ():
        hat = model.settings.hat(model.taker(topic))
        if not hat or hat.id not in model.hats:
            continue
        said = ", ".join(f"`{one}`" for one in sorted(model.follows(hat.id, topic) - {RESUME})) or "nothing"
        what = f"after {hat.id} no hat can end the run: it publishes {said}"
        todo = "have it publish something that leads on, or give it a `default_publishes`"
        yield warning("dead-end", ("hats", hat.id), what, todo, hat.id)


def _waves(model: Model) -> Iterator[Finding]:
    """Hats that work side by side, or gather what such did, and never get to."""
    outlets = [(topic, model.settings.hat(id)) for topic, _, id in _outlets(model)]
    for hat in model.settings.hats:
        given = [other for topic, other in outlets if any(matches(one, topic) for one in hat.triggers)]
        if hat.gathers and not any(other and other.concurrency > 1 for other in given):
            what = f"{hat.id} gathers what comes of a wave, and no hat that publishes for it has `concurrency` above 1"
            todo = "give one of them `concurrency`, or leave `aggregate` out"
            yield warning("gathers-nothing", ("hats", hat.id, "aggregate"), what, todo, hat.id)
        if hat.concurrency > 1 and not given and not model.dispatched:
            what = f"{hat.id} works alone: no hat publishes for it, so it never has two events at once"
            todo = "have a hat publish several events for it, or leave `concurrency` out"
            yield warning("wave-of-one", ("hats", hat.id, "concurrency"), what, todo, hat.id)
        if hat.max_activations and hat.concurrency > hat.max_activations:
            what = f"{hat.concurrency} turns of {hat.id} at once, and {hat.max_activations} at all"
            yield warning("wave-limited", ("hats", hat.id, "concurrency"), what, "allow it more turns", hat.id)

"""Whether a run can be done: the promise, the gates before it, and limits below the shortest way."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ralph.core.limits import Limits
from ralph.documents.agent.events import fault_of_topic, matches
from ralph.documents.hats.places import Path
from ralph.workflows.hats.checking.findings import Finding, error, meant, warning
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.checking.search import Turn, shortest
from ralph.workflows.hats.prompt import tokens

_ENDS = {"completion": "completion_promise", "cancellation": "cancellation_promise"}


def check_completion(model: Model, limits: Limits) -> Iterator[Finding]:
    """What keeps a run from being done; limits are only looked at where nothing else does."""
    found = [*_promises(model), *_required(model), *_evidence(model)]
    yield from found
    completes = model.settings.completion in model.earnest
    if not any(one.severity == "error" for one in found) and model.settings.hats:
        yield from _limits(model, limits) if completes else _no_path(model)


def _key(model: Model, end: str) -> Path:
    older = end == "completion" and model.preset.completion_promise
    return ("completion_promise",) if older else ("event_loop", _ENDS[end])


def _promises(model: Model) -> Iterator[Finding]:
    completion, cancellation = model.settings.completion, model.settings.cancellation
    path = _key(model, "completion")
    if completion == cancellation:
        what = f"`{completion}` both completes and cancels: it is always taken as complete"
        yield error("same-promise", path, what, "give `cancellation_promise` a topic of its own")
    if model.unsayable:
        what = f"`{completion.strip()}` can never be promised: {model.unsayable}"
        yield error("promise-impossible", path, what, "take a word like `LOOP_COMPLETE`")
        return
    if fault := fault_of_topic(completion):
        what = f"it can only be said as the last line of a message, not published: {fault}"
        yield warning("promise-no-topic", path, what, "take a word like `LOOP_COMPLETE`")
    for end in _ENDS:
        topic = getattr(model.settings, end)
        if topic and model.settings.hats and not model.settings.owners(topic):
            listed = [one for hat in model.settings.hats for one in hat.publishes if "*" not in one]
            only = end == "completion" or model.settings.enforce_scope
            everybody = "only the coordinator" if only else "any hat, or the coordinator,"
            what = f"no hat lists `{topic}` in `publishes`: {everybody} may say it, and no hat is told to"
            todo = meant(topic, listed, "add it to the `publishes` of the hat that decides")
            yield warning("promise-unlisted", _key(model, end), what, todo)


def _required(model: Model) -> Iterator[Finding]:
    hats = model.settings.hats
    for topic in model.settings.required:
        path = ("event_loop", "required_events", topic)
        listing = [hat.id for hat in hats if any(matches(one, topic) for one in hat.publishes)]
        default = [hat.id for hat in hats if hat.default_publishes == topic]
        if topic in model.promises or topic.startswith("human.") or "*" in topic:
            why = "a promise ends the run before it counts" if topic in model.promises else "nobody can publish it"
            what = f"`{topic}` is never published in earnest: {why}"
            yield error("required-impossible", path, what, "name a topic that a hat publishes")
        elif not hats or (topic in model.earnest and not (default and not listing)):
            continue
        elif not listing and default:
            what = f"`{topic}` only comes as the default of {default[0]}, and defaults satisfy no gate"
            yield error("required-by-default", path, what, f"add it to the `publishes` of {default[0]}", default[0])
        elif not listing:
            known = {one for hat in hats for one in hat.publishes}
            what = f"no hat publishes `{topic}`, which must have been published before the run is done"
            yield error("required-unpublished", path, what, meant(topic, known, "add it to a hat's `publishes`"))
        elif topic not in model.earnest and model.settings.completion in model.earnest:
            what = f"`{topic}` must be published first, and {', '.join(listing)} never has a turn"
            todo = "see what should lead there, or take it out"
            yield error("required-unreachable", path, what, todo, listing[0])


def _evidence(model: Model) -> Iterator[Finding]:
    for topic, rule in model.preset.events.items():
        path = ("events", topic, "otherwise")
        gated = rule.evidence if rule.evidence is not None else model.settings.topics[topic].otherwise != rule.otherwise
        if rule.otherwise == topic:
            what = f"where the checks fail, `{topic}` is published all the same: the gate is open"
            yield error("otherwise-same", path, what, "name the topic that says that it is not right yet")
        elif rule.otherwise in model.promises:
            what = f"`{rule.otherwise}` is a promise: no default ever keeps one"
            yield warning("otherwise-promise", path, what, "name a topic that a hat takes")
        if rule.otherwise and not rule.evidence and not gated and topic not in _CLAIMS:
            what = f"`otherwise` does nothing: `{topic}` needs no evidence"
            yield warning("otherwise-idle", path, what, "add `evidence: true`, or take it out")
        if rule.evidence and not model.settings.topics[topic].evidence:
            what = f"`{topic}` asks for evidence, and the run has no checks to give any"
            yield warning("no-checks", ("events", topic, "evidence"), what, "add `event_loop.checks`, or give --check")
    for hat in model.settings.hats:
        if hat.default_publishes in model.promises:
            what = f"`{hat.default_publishes}` is a promise, and no default ever keeps one: the coordinator is asked"
            todo = f"leave it out, or take a topic that leads back to {hat.id}"
            yield warning("default-promise", ("hats", hat.id, "default_publishes"), what, todo, hat.id)
        elif hat.default_publishes in model.settings.required:
            what = f"`{hat.default_publishes}` is required, and does not count as a default: silence ends at a gate"
            todo = "take the topic that says that it is not right yet"
            yield warning("default-required", ("hats", hat.id, "default_publishes"), what, todo, hat.id)


_CLAIMS = ("build.done", "review.done", "verify.passed")
"""Topics that need evidence without being told to."""


def _no_path(model: Model) -> Iterator[Finding]:
    completion = model.settings.completion
    hat = next((hat for hat in model.settings.hats if completion in hat.publishes), None)
    path = ("hats", hat.id, "publishes", completion) if hat else _key(model, "completion")
    what = (
        f"`{completion}` is for {hat.id} to publish, and only the coordinator could bring that about"
        if hat
        else f"nobody gets to say `{completion}`"
    )
    triggers = ", ".join(f"`{one}`" for one in hat.triggers) if hat else ""
    todo = f"have a hat that gets its turn publish {triggers}" if triggers else "give a hat that has turns the promise"
    yield error("no-path", path, f"no way leads to the end: {what}", todo, hat.id if hat else "")


def _limits(model: Model, limits: Limits) -> Iterator[Finding]:
    found = shortest(model, limited=False)
    way = found.way
    if not way and not found.open:
        yield _always_stale(model)
        return
    told = f"the shortest way takes {len(way)} turns ({' -> '.join(turn.who for turn in way)})"
    if limits.iterations is not None and found.least > limits.iterations:
        todo = f"allow {len(way)} at the very least"
        yield error("limit-iterations", _limit(model, "iterations"), f"{limits.iterations} turns: {told}", todo)
    least = sum(tokens(hat.instructions) for turn in way if (hat := model.settings.hat(turn.who)))
    if limits.tokens is not None and not found.open and least >= limits.tokens:
        what = f"{limits.tokens} tokens: the instructions on the shortest way are {least} alone"
        yield error("limit-tokens", ("limits", "tokens"), what, "allow more")
    if any(hat.max_activations for hat in model.settings.hats):
        bounded = shortest(model)
        if way and not bounded.way and not bounded.open:
            yield from _activations(model, way, told)
    for hat in model.settings.hats:
        if hat.wall and limits.active_seconds and hat.wall > limits.active_seconds:
            what = f"a turn of {hat.id} may take {hat.wall:g} s, the whole run {limits.active_seconds:g} s"
            yield warning(
                "timeout-idle", ("hats", hat.id, "timeout"), what, "shorten it, or allow the run more", hat.id
            )


def _always_stale(model: Model) -> Finding:
    """The required topics are published, but never all hold when the promise can be made."""
    topics = ", ".join(f"`{topic}`" for topic in model.settings.required)
    path = ("event_loop", "required_events")
    what = f"no way leads to the end: whenever the run could complete, a later topic of the same family has made {topics} stale"
    return error("required-stale", path, what, "rename the later topic, so that the part before its last dot differs")


def _activations(model: Model, way: Sequence[Turn], told: str) -> Iterator[Finding]:
    """The hats that the shortest way needs more often than they may act."""
    for id, needed in Counter(turn.who for turn in way).items():
        hat = model.settings.hat(id)
        if hat and hat.max_activations and needed > hat.max_activations:
            what = f"{id} may have {hat.max_activations} turns, and needs {needed}: {told}"
            path = ("hats", id, "max_activations")
            yield error("limit-activations", path, what, f"allow {needed} at the very least", id)


def _limit(model: Model, name: str) -> Path:
    """The key that a limit comes from."""
    older, own = model.preset.max_iterations, "max_iterations" in model.preset.event_loop.model_fields_set
    return ("max_iterations",) if older else ("event_loop", "max_iterations") if own else ("limits", name)

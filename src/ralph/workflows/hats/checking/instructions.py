"""What hats are told, against what they may do."""

import re
from collections.abc import Iterator

from ralph.documents.agent.events import matches
from ralph.documents.agent.publishing import ACKNOWLEDGED
from ralph.documents.hats.definition import Hat
from ralph.workflows.hats.checking.findings import Finding, error, meant, warning
from ralph.workflows.hats.checking.model import Model

_EMIT = re.compile(r"""(?:(?:ralph|RALPH_BIN)["'`}]* emit|<event topic=)\s*["'`]?([A-Za-z][\w.:-]*\w)""")
_NOT = re.compile(r"\b(?:never|not|don't|nobody)\b[^.;]*$", re.IGNORECASE)
_ASK = "interact ask"
_ADDS = re.compile(r"tools task (?:add|ensure)")
_CLOSES = re.compile(r"task close|clos\w+ (?:\w+ ){0,3}tasks?|tasks? (?:\w+ ){0,3}clos", re.IGNORECASE)


def check_instructions(model: Model) -> Iterator[Finding]:
    """Instructions that ask for what the engine refuses, and payloads that nobody knows how to fill."""
    for hat in model.settings.hats:
        yield from _emits(model, hat)
        yield from _keys(model, hat)
        if not hat.may_ask and _ASK in hat.instructions:
            what = f"{hat.id} is told to ask a person, and `may_ask` is false"
            path = ("hats", hat.id, "instructions", _ASK)
            yield warning("may-not-ask", path, what, "take one of them out", hat.id)
    told = [hat for hat in model.settings.hats if _ADDS.search(hat.instructions)]
    closing = any(_CLOSES.search(hat.instructions) for hat in model.settings.hats)
    if told and model.settings.tasks and not closing:
        found = _ADDS.search(told[0].instructions)
        path = ("hats", told[0].id, "instructions", found[0] if found else "")
        what = "tasks are added, no hat is told to close any, and open tasks keep the run from being done"
        yield warning("tasks-stay-open", path, what, "tell a hat to `ralph tools task close`", told[0].id)


def _emits(model: Model, hat: Hat) -> Iterator[Finding]:
    """Topics that a hat is told to publish and does not list."""
    for match in _EMIT.finditer(hat.instructions):
        topic, before = match[1], hat.instructions[: match.start()].rpartition("\n")[2]
        listed = any(matches(one, topic) for one in hat.publishes) or topic in (ACKNOWLEDGED, "TOPIC")
        if listed or _NOT.search(before):
            continue
        path = ("hats", hat.id, "instructions", match[0])
        todo = meant(topic, hat.publishes, f"add it to the `publishes` of {hat.id}, or take it out of its instructions")
        what = f"{hat.id} is told to publish `{topic}`, which it does not list"
        if model.allowed(hat, topic):
            yield warning("emit-unlisted", path, what, todo, hat.id)
        else:
            yield error("emit-refused", path, f"{what}: the engine refuses it", todo, hat.id)
    default = hat.default_publishes
    if default and default not in model.promises and hat.publishes and default not in hat.publishes:
        what = f"`{default}` is published for {hat.id}, which does not list it"
        todo = meant(default, hat.publishes, "add it to its `publishes`")
        yield warning("default-unlisted", ("hats", hat.id, "default_publishes"), what, todo, hat.id)


def _keys(model: Model, hat: Hat) -> Iterator[Finding]:
    """Keys that a payload must have, and that the hat is neither given nor told of."""
    topics = model.settings.topics
    given = {key for topic in hat.triggers for rule in (topics.get(topic),) if rule for key in rule.requires}
    for topic in model.listed(hat):
        rule = topics.get(topic)
        told = f"{hat.instructions} {rule.description} {rule.on_publish}" if rule else ""
        missing = [key for key in (rule.requires if rule else ()) if key not in given and key not in told]
        if missing:
            what = f"`{topic}` must have {', '.join(missing)}, and {hat.id} is neither given nor told what that is"
            path = ("hats", hat.id, "publishes", topic)
            todo = "say in its instructions what to put there, or have its trigger require it"
            yield warning("requires-untold", path, what, todo, hat.id)
    rule = topics.get(hat.default_publishes)
    if rule and (lacking := [key for key in rule.requires if key not in given]):
        what = f"as a default `{hat.default_publishes}` carries what {hat.id} was given, which need not have {', '.join(lacking)}"
        todo = "have its triggers require it, or leave the default out"
        yield warning("default-lacks", ("hats", hat.id, "default_publishes"), what, todo, hat.id)

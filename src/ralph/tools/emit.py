"""`ralph emit`: publish an event."""

import os

from ralph.documents.agent import events, publishing
from ralph.documents.agent.json_text import loads
from ralph.tools import place
from ralph.tools.arguments import Argument, Command, ToolError, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EMITTED = "emitted.jsonl"
"""The file of a run that the user's events go to."""
_FOR_GOOD = ("success", "aborted")
"""Outcomes that no run goes on from."""


def _emit(given: "dict[str, Any]") -> int:
    topic = given["topic"]
    path = file_for(given)
    place.append(path, line_for(given, path, topic, given.get("payload", "")))
    return say(f"Event emitted: {topic}")


def line_for(given: "dict[str, Any]", path: str, topic: str, payload: str, **more: object) -> bytes:
    """The line of an event for the file at `path`; an error if the event would not count."""
    if fault := events.fault_of_topic(topic):
        raise ToolError(fault, "give the topic of the event first, then its payload in quotes")
    if len(payload) > events.PAYLOAD_LIMIT:
        what = f"the payload is longer than {events.PAYLOAD_LIMIT} characters"
        raise ToolError(what, "write it into a file of the project, and give the path of that")
    value: object = payload
    if "json" in given:
        try:
            value = loads(payload)
        except ValueError as error:
            todo = "put it in single quotes, or leave --json out to send it as text"
            raise ToolError(f"the payload is not JSON: {error}", todo) from None
    rules = None if given.get("file") else _rules_for(path)
    if rules and (fault := publishing.fault_of(rules, topic, payload)):
        raise ToolError(fault, publishing.advice_for(rules, topic))
    return events.line(topic, value, given.get("ts") or place.now(), **more)


def _rules_for(path: str) -> object:
    """What may be published into a file: the turn's own rules, or what the user may publish to a run of hats."""
    own = os.environ.get(publishing.RULES, "")
    if own and path == os.environ.get("RALPH_EVENTS_FILE"):
        return loads(own)
    directory, name = os.path.split(path)
    if name != EMITTED:
        return None
    # Only users come here, so the imports may take their time.
    from ralph.core.codec import from_plain
    from ralph.documents.hats.definition import USER, HatsSettings

    record = os.path.join(directory, "run.json")
    return from_plain(HatsSettings, _value(record, "hats") or {}, record).publishing(USER)


def file_for(given: "dict[str, Any]") -> str:
    """The turn's own file, that for people of the run which is under way, or the one that is named."""
    if given.get("file"):
        return str(given["file"])
    if own := os.environ.get("RALPH_EVENTS_FILE"):
        return own
    root = place.root(given)
    if run := given.get("run"):
        own = os.path.join(root, ".ralph", "runs", run)
        if os.path.basename(own) != run or _value(os.path.join(own, "run.json"), "workflow") != "hats":
            raise ToolError(f"there is no run {run} of hats", "`ralph status` lists all runs", where=own)
        return _from_outside(run, own)
    marker = os.path.join(root, ".ralph", "current-events")
    name = place.read(marker).decode(errors="replace").strip()
    if not name:
        raise ToolError("no run is under way here that an event could go to", "start one, or give --file", where=marker)
    path = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([path, os.path.realpath(root)]) != os.path.realpath(root):
        raise ToolError(f"it names a file outside of the project: {name}", "remove it", where=marker)
    run = place.run_id(given)
    own = os.path.join(root, ".ralph", "runs", run)
    # A run of hats takes what comes from outside of its turns from here; its own log is only for reading.
    is_its_log = bool(run) and name == f".ralph/events-{run}.jsonl" and os.path.isdir(own)
    return _from_outside(run, own) if is_its_log else path


def _from_outside(run: str, own: str) -> str:
    """Where a run takes what people publish from."""
    state = os.path.join(own, "hats.json")
    outcome = _value(state, "outcome")
    if outcome in _FOR_GOOD and _value(state, "ended"):
        raise ToolError(f"run {run} is over ({outcome}): nobody would take it", "start another with `ralph run`")
    return os.path.join(own, EMITTED)


def _value(path: str, key: str) -> object:
    """What a document of a run says for a key; None where it says nothing."""
    try:
        data = loads(place.read(path).decode(errors="replace"))
    except ValueError:
        return None
    return data.get(key) if isinstance(data, dict) else None


COMMAND = Command(
    "emit",
    "Publish an event. The run routes it when the turn has ended.",
    _emit,
    Argument("topic", help="What it is about, for example build.done."),
    Argument("payload", nargs="*", default="", help="What it says; - reads it from standard input."),
    Argument("-j", "--json", action="store_true", help="The payload is JSON: check it, and keep it as such."),
    Argument("--ts", metavar="TIME", help="When it happened. Default: now."),
    Argument("--run", metavar="RUN", help="The run that it is for, if a user publishes it. Default: the latest."),
    Argument("--file", metavar="PATH", help="The file to add it to. Default: the turn's own, or the current one."),
)


def run(words: list[str]) -> int:
    """Do what `ralph emit WORDS...` says."""
    return COMMAND.run("ralph", words)

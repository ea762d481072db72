"""The settings of a run of hats: its hats, its topics, and the source of its work.

Frozen in `run.json`, and read without a validation library.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from ralph.core.errors import UsageError
from ralph.core.values import value
from ralph.documents.agent.events import COORDINATOR as COORDINATOR
from ralph.documents.agent.events import topic_matches

USER = "user"
"""The source of events that the user publishes."""


def show_role(role: str) -> str:
    """The name of a role or hat, as screens show it."""
    return "coordinator" if role == COORDINATOR else role


@value
class Hat:
    """One hat: the events that it receives, its instructions, and the events that it may publish."""

    id: str
    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    instructions: str = ""
    default_publishes: str = ""
    """The topic that is published for it if it published nothing itself."""
    max_activations: int | None = None
    wall: float | None = None
    """The time limit of its turns, in seconds."""
    disallowed_tools: tuple[str, ...] = ()
    may_ask: bool = True
    """Whether it may ask the user questions."""
    scratchpad: str = ""
    """Its own scratchpad, if it does not use the shared one."""
    concurrency: int = 1
    """How many events it handles in parallel."""
    gathers: bool = False
    """Whether it waits until a wave has ended, and handles all events of the wave in one turn."""
    gathers_within: float = 0.0
    """The seconds that it waits for a wave; 0 for no limit."""


@value
class Topic:
    """The description of a topic, and the rules for its events."""

    description: str = ""
    on_trigger: str = ""
    on_publish: str = ""
    requires: tuple[str, ...] = ()
    """Keys that a payload must have."""
    evidence: bool = False
    """Whether it counts only if the checks of the run pass."""
    otherwise: str = ""
    """The topic that is published instead if they fail."""
    expects_failure: bool = False
    """Whether it counts only if the checks fail: a test for what is missing must fail first."""


@value
class MemoryUse:
    """Which memories prompts contain."""

    inject: bool = True
    budget: int = 2000
    """Tokens."""
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    recent: int = 0
    """Days; 0 for all."""


@value
class HatsSettings:
    """The hats of a run, and the rules of its events."""

    hats: tuple[Hat, ...] = ()
    topics: Mapping[str, Topic] = field(default_factory=dict)
    completion: str = "LOOP_COMPLETE"
    cancellation: str = ""
    starting_event: str = ""
    required: tuple[str, ...] = ()
    enforce_scope: bool = False
    persistent: bool = False
    """Whether a finished run waits for more work, and ends only if the user or a limit ends it."""
    guardrails: tuple[str, ...] = ()
    max_failures: int = 5
    cooldown: float = 0.0
    checkpoint: int = 0
    """Turns between two commits of the work; 0 for none."""
    max_default_events: int = 3
    """Turns of a hat in a row that end in its default event, after which the run asks the user; 0 for never."""
    tasks: bool = True
    memories: MemoryUse = field(default_factory=MemoryUse)
    scratchpad: str = ".ralph/agent/scratchpad.md"
    """Empty if there is none."""
    source: str = "rough description"
    """What the objective is: a directory of tasks, one task file, or a description."""
    documents: str = ""
    """The directory of the documents that the hats share."""

    @property
    def has_waves(self) -> bool:
        """Whether a hat handles several events in parallel."""
        return any(hat.concurrency > 1 for hat in self.hats)

    def hat(self, name: str) -> Hat | None:
        """The hat of that id; None for the coordinator."""
        return next((hat for hat in self.hats if hat.id == name), None)

    def find_hat_for(self, topic: str, exhausted: Collection[str] = ()) -> str:
        """The id of the hat that receives a topic: exact triggers before patterns, in the order of the preset.

        If no hat does, the coordinator.
        """
        found: list[tuple[int, int, str]] = []
        for number, hat in enumerate(self.hats):
            if hat.id in exhausted:
                continue
            for pattern in hat.triggers:
                if topic_matches(pattern, topic):
                    found.append((_count_wildcards(pattern), number, hat.id))
        return min(found)[2] if found else COORDINATOR

    def find_owners(self, topic: str) -> tuple[str, ...]:
        """The hats that list a topic in `publishes`; a pattern counts only if no hat names the topic itself."""
        owners = [hat.id for hat in self.hats if topic in hat.publishes]
        if owners:
            return tuple(owners)
        for hat in self.hats:
            if any(topic_matches(pattern, topic) for pattern in hat.publishes):
                owners.append(hat.id)
        return tuple(owners)

    def allowed_publishers(self, topic: str) -> tuple[str, ...] | None:
        """Who may publish a required, completion or cancellation topic; None if every hat may.

        These topics belong to the hats that list them. The completion topic belongs to the coordinator if no hat lists
        it. The coordinator may always cancel. Without hats it may publish everything.
        """
        if not self.hats or topic not in (self.completion, self.cancellation, *self.required):
            return None
        owners = self.find_owners(topic)
        if topic == self.completion:
            return owners or (COORDINATOR,)
        if topic == self.cancellation:
            return (*owners, COORDINATOR) if owners else None
        return owners

    def list_publish_rules(self, publisher: str, blockers: Mapping[str, str] | None = None) -> dict[str, object]:
        """What a hat, the coordinator or the user may publish, for `documents.agent.events`.

        `blockers` are the required topics that do not let the run complete yet, and why.
        """
        hat = self.hat(publisher)
        reserved = {}
        for topic in dict.fromkeys((self.completion, self.cancellation, *self.required)):
            allowed = self.allowed_publishers(topic)
            if publisher == USER and topic in (self.completion, self.cancellation):
                allowed = allowed or (COORDINATOR,)
            if topic and allowed is not None and publisher not in allowed:
                reserved[topic] = list(allowed)
        rules: dict[str, object] = {
            "own": list(hat.publishes) if hat else None,
            "strict": bool(hat) and self.enforce_scope,
            "reserved": reserved,
            "requires": {name: list(topic.requires) for name, topic in self.topics.items() if topic.requires},
            "completion": self.completion,
        }
        if self.completion not in reserved:
            rules["required"] = {topic: (blockers or {}).get(topic, "") for topic in self.required}
        if self.hats and self.completion not in reserved:
            # Another hat would handle these topics, so the work is not finished if they are published.
            topics = {trigger for one in self.hats for trigger in one.triggers}
            if hat and hat.default_publishes:
                topics.add(hat.default_publishes)
            finished = (self.completion, self.cancellation, *self.required)
            rules["unfinished"] = {"topics": sorted(topics), "except": list(finished)}
        return rules


def _count_wildcards(pattern: str) -> int:
    return 1000 if pattern == "*" else pattern.split(".").count("*")


TASK_FILE = ".code-task.md"
_WORDS = 6
_TODO = "correct the path (it is relative to the project), or leave the file out of the objective"
_STRIP = "`'\"()[]<>,;:!?@"


@value
class WorkSource:
    """The source that describes the work of a run."""

    kind: str
    task_name: str
    documents: str
    """The directory of the documents that the hats share, relative to the root."""


def find_work_source(objective: str, specs_dir: str, look: Callable[[str], str], preset: str = "") -> WorkSource:
    """The source that an objective names; `look` says of a path whether it is a `directory` of a plan or tasks, or a `file`.

    Each objective has documents of its own, and so has each preset: another one expects other documents.
    """
    for word in objective.split():
        path = word.strip(_STRIP).rstrip("./")
        if _names_a_task_file(path):
            if look(path) != "file":
                raise UsageError("the task file that the objective names does not exist", where=path, todo=_TODO)
            name = _make_name(path.rpartition("/")[2].removesuffix(TASK_FILE), path, preset)
            return WorkSource("single task file", name, _documents_directory(specs_dir, name))
        is_outside = path.startswith(("/", "~")) or ".." in path.split("/")
        if "/" in path and not is_outside and look(path) == "directory":
            return WorkSource("directory of a plan", _make_name(path.rpartition("/")[2], path, preset), f"{path}/")
    name = _make_name(objective, objective, preset)
    return WorkSource("rough description", name, _documents_directory(specs_dir, name))


def _names_a_task_file(path: str) -> bool:
    """Whether a word is the path of one task file; `.code-task.md` and `*.code-task.md` mean such files in general."""
    return path.endswith(TASK_FILE) and path.rpartition("/")[2] != TASK_FILE and "*" not in path


def _make_name(text: str, source: str, preset: str) -> str:
    """The first words of a text as a name for files, with a short hash of the source and the preset."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", text.lower()))
    name = "-".join(words[:_WORDS])[:48].strip("-") or "task"
    identity = f"{preset}\n{unicodedata.normalize('NFC', source.strip())}"
    return f"{name}-{hashlib.sha256(identity.encode(errors='replace')).hexdigest()[:6]}"


def _documents_directory(specs_dir: str, name: str) -> str:
    return f"{specs_dir.rstrip('/')}/implementation/{name}/"

"""Reading presets: several layers of one format, merged, with every fault named by file and line."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from ruamel.yaml.comments import CommentedMap

from ralph.core.errors import UsageError
from ralph.documents.config import HATS, Config, read_yaml, validated
from ralph.documents.hats.definition import Hat, HatsSettings, MemoryUse, Topic
from ralph.documents.hats.places import Path
from ralph.documents.hats.preset import NO_EFFECT, HatKeys, NoEffect, Preset
from ralph.documents.hats.source import Source

Layer = dict[str, Any]
"""The keys that one file, or one option, sets."""
_LINE = re.compile(r"([A-Za-z_]\w*):(\s.*)?$")
_SECOND = re.compile(r":\s+(?:\"[^\"]*\"|'[^']*'|[^\s\"'#]+)\s+(\w+):\s")
_EVIDENCE = {"build.done": "build.blocked", "review.done": "review.blocked", "verify.passed": "verify.failed"}
"""Topics that claim that the work is good, and what is published where the checks say that it is not."""
_PLAIN = re.compile(r"[\w./-]+")
_ENGINE = ("task.start", "task.resume")
_INSIDE = {
    key: frozenset(field.annotation.model_fields)
    for key, field in Preset.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
"""The keys of each section."""


def read_layer(text: str, name: str, warnings: list[str], fetch: Callable[[str], str]) -> Layer:
    """The keys of one file; unknown ones are warned of with the nearest known. `fetch` reads the files of imported hats."""
    _refuse_flat(text, name)
    data = read_yaml(text, name)
    if isinstance(hats := data.get("hats"), dict):
        for id, hat in hats.items():
            hats[id] = _imported(hat, name, warnings, fetch)
    return _checked(data, name, warnings, may_be_unknown=True)


def read_override(text: str, where: str, warnings: list[str]) -> Layer:
    """`KEY=VALUE` as a layer of its own; an unknown key is an error, one without effect is warned of."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"{text!r} sets nothing", where=where, todo="write it like event_loop.max_iterations=20")
    nested: Any = read_yaml(f"value: {value}\n", where)["value"]
    for part in reversed(path.strip().split(".")):
        nested = CommentedMap({part: nested})
    return _checked(nested, where, warnings, may_be_unknown=False)


def merged(files: Sequence[Layer], overrides: Sequence[Layer] = ()) -> Layer:
    """Later layers over earlier ones: mappings are merged, all else is replaced; hats of two files are never mixed."""
    result: Layer = {}
    for layer in files:
        result = _over({**result, "hats": {}} if "hats" in layer else result, layer)
    for layer in overrides:
        result = _over(result, layer)
    return result


def split(layer: Layer) -> tuple[Preset, Config]:
    """The preset and the settings in a whole of keys."""
    preset = {key: value for key, value in layer.items() if key in HATS}
    return Preset.model_validate(preset), Config.model_validate({k: v for k, v in layer.items() if k not in HATS})


def notices(preset: Preset) -> Iterator[str]:
    """What is set and means something else here."""
    if preset.cli.prompt_mode == "stdin" and preset.cli.backend not in ("", "custom"):
        yield f"`cli.prompt_mode`: {preset.cli.backend} gets its prompt as its adapter gives it"


def find_faults(preset: Preset) -> Iterator[tuple[Path, str]]:
    """All that is asked for and cannot be done here: the key that each fault is about, and a sentence."""
    if preset.hooks.get("enabled"):
        what = "hooks are not run: commands that must pass go into `event_loop.checks`, and `notify` tells you"
        yield ("hooks", "enabled"), what
    promise = preset.completion_promise or preset.event_loop.completion_promise
    taken: dict[str, str] = {}
    for id, hat in preset.hats.items():
        for topic in hat.triggers:
            path = ("hats", id, "triggers", topic)
            if topic in _ENGINE:
                todo = f"set `event_loop.starting_event` to a topic of your own, and have {id} take that"
                yield path, f"`{topic}` always goes to the coordinator; {todo}"
            if topic in taken:
                yield path, f"`{topic}` triggers {taken[topic]} already; one hat takes an event"
            taken[topic] = id
        if hat.concurrency > 1 and hat.aggregate:
            yield ("hats", id, "aggregate"), "a hat works side by side (`concurrency`), or gathers what others did"
        if hat.concurrency > 1 and promise in hat.publishes:
            yield ("hats", id, "concurrency"), "a hat that says when all is done works alone"
    if preset.cli.backend == "custom" and not preset.cli.command:
        yield ("cli", "command"), "it is missing: `backend: custom` needs the program"
    if preset.event_loop.starting_hat and preset.event_loop.starting_hat not in preset.hats:
        yield ("event_loop", "starting_hat"), f"there is no hat {preset.event_loop.starting_hat}"


def settings(preset: Preset, source: Source, *, checks: bool) -> HatsSettings:
    """What a run is started with."""
    loop, core, memories = preset.event_loop, preset.core, preset.memories
    known = _names(preset, source)
    topics = dict(preset.events)
    rules = {
        name: Topic(
            *(topic.description, topic.on_trigger, topic.on_publish, topic.requires),
            evidence=checks and (name in _EVIDENCE if topic.evidence is None else bool(topic.evidence)),
            otherwise=topic.otherwise or _EVIDENCE.get(name, ""),
            red=topic.evidence == "fails",
        )
        for name, topic in topics.items()
    }
    rules |= {name: Topic(evidence=checks, otherwise=other) for name, other in _EVIDENCE.items() if name not in rules}
    hats = tuple(
        Hat(
            *(id, hat.name or id, _filled(hat.description, known), hat.triggers, hat.publishes),
            instructions=_filled("\n".join((hat.instructions.strip(), *hat.extra_instructions)).strip(), known),
            default_publishes=hat.default_publishes,
            max_activations=hat.max_activations,
            wall=hat.timeout,
            disallowed_tools=hat.disallowed_tools,
            may_ask=hat.may_ask,
            scratchpad=hat.scratchpad,
            concurrency=hat.concurrency,
            gathers=hat.aggregate is not None,
            gathers_within=(hat.aggregate and hat.aggregate.timeout) or 0.0,
        )
        for id, hat in preset.hats.items()
    )
    start = loop.starting_event
    if loop.starting_hat and not start:
        start = next((topic for topic in preset.hats[loop.starting_hat].triggers if "*" not in topic), "")
    return HatsSettings(
        hats,
        rules,
        preset.completion_promise or loop.completion_promise,
        loop.cancellation_promise,
        start,
        loop.required_events,
        loop.enforce_hat_scope,
        loop.persistent,
        tuple(_filled(rule, known) for rule in core.guardrails),
        loop.max_consecutive_failures,
        loop.cooldown_delay_seconds,
        loop.checkpoint_interval,
        loop.max_default_events,
        preset.tasks.enabled,
        MemoryUse(
            memories.enabled and memories.inject == "auto",
            memories.budget or 2000,
            *(memories.filter.types, memories.filter.tags, memories.filter.recent),
        ),
        core.scratchpad,
        source.kind,
        source.documents,
    )


def filled(preset: Preset, source: Source, texts: Sequence[str]) -> tuple[str, ...]:
    """Checks or patterns of files with the names that Ralph knows; what a shell would read otherwise is refused."""
    done = tuple(_filled(text, _names(preset, source)) for text in texts)
    if done != tuple(texts) and not _PLAIN.fullmatch(source.documents):
        todo = "use letters, digits and - for the directory of the documents"
        raise UsageError("its name cannot stand in a check", where=source.documents, todo=todo)
    return done


def _names(preset: Preset, source: Source) -> dict[str, str]:
    specs = preset.core.specs_dir.rstrip("/") + "/"
    return {"specs_dir": specs, "task_name": source.task_name, "documents": source.documents}


def _checked(data: CommentedMap, name: str, warnings: list[str], *, may_be_unknown: bool) -> Layer:
    """The keys that are set and do something, validated; unknown ones are warned of, or are an error."""
    layer: Layer = {}
    useful = _without_effect(data, warnings)
    unknown = warnings if may_be_unknown else None
    for model, own in ((Preset, True), (Config, False)):
        given = {key: value for key, value in useful.items() if (key in HATS) is own and not (own and value is None)}
        layer |= validated(model, data, name, given, unknown).model_dump(exclude_unset=True, by_alias=True)
    return layer


def _without_effect(data: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The keys that do something here; of the others, those with an unusual value are warned of."""
    left = dict(data)
    for path, about in NO_EFFECT.items():
        left = _without_key(left, path.split("."), "", about, warnings)
    return left


def _without_key(
    data: Mapping[str, Any], path: Sequence[str], above: str, about: NoEffect, warnings: list[str]
) -> dict[str, Any]:
    left = dict(data)
    for key in list(left) if path[0] == "NAME" else [path[0]]:
        if key not in left:
            continue
        here, value = f"{above}{key}", left[key]
        if len(path) == 1:
            del left[key]
            if value not in (about.usual, None, {}):
                warnings.append(f"`{here}` has no effect" + (f": {about.instead}" if about.instead else ""))
        elif isinstance(value, Mapping):
            left[key] = _without_key(value, path[1:], f"{here}.", about, warnings)
    return left


def _over(below: Layer, above: Mapping[str, Any]) -> Layer:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = _over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _imported(hat: Any, where: str, warnings: list[str], fetch: Callable[[str], str]) -> Any:
    """A hat with what it imports from another file; its own keys win."""
    if not isinstance(hat, CommentedMap) or "import" not in hat:
        return hat
    path, place = str(hat["import"]), f"{where}, line {hat.lc.key('import')[0] + 1}"
    try:
        other = read_yaml(fetch(path), path)
    except UsageError as error:
        what = f"`import: {path}`: {error.what}"
        raise UsageError(what, where=place, todo="the path is relative to the file that imports") from error
    if bad := [key for key in ("import", "events", "hats") if key in other]:
        line, todo = other.lc.key(bad[0])[0] + 1, "write the keys of one hat there, without a name above them"
        raise UsageError(
            f"an imported hat may not have `{bad[0]}`", where=f"{path}, line {line}, by {place}", todo=todo
        )
    theirs = validated(HatKeys, other, path, dict(other), warnings).model_dump(exclude_unset=True, by_alias=True)
    return CommentedMap({**theirs, **{key: value for key, value in hat.items() if key != "import"}})


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with the names that Ralph knows replaced; other braces stay as they are."""
    for name, value in values.items():
        text = text.replace("{" + name + "}/", value.rstrip("/") + "/").replace("{" + name + "}", value)
    return text


def _refuse_flat(text: str, name: str) -> None:
    """An error where the file has lost its indentation: keys of a section stand at the margin below it."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        head = _LINE.match(line)
        if not head or (head[2] or "").strip() or (head[1] not in _INSIDE and head[1] != "hats"):
            continue
        own = _INSIDE.get(head[1], frozenset())
        at, below = next(((n, one) for n, one in enumerate(lines[number:], number + 1) if one.strip(" \t#")), (0, ""))
        key = _LINE.match(below)
        if key and (key[1] in own or (head[1] == "hats" and key[1] not in HATS)):
            found.append(f"line {at}: `{key[1]}:` belongs under `{head[1]}:` of line {number}")
    if not found:
        return
    crowded = next((n for n, line in enumerate(lines, 1) if _SECOND.search(line)), None)
    also = f"\nline {crowded}: several keys are on one line" if crowded else ""
    raise UsageError(
        "the file has lost its indentation:\n" + "\n".join(found[:4]) + also,
        where=f"{name}, {found[0].partition(':')[0]}",
        todo="get the file from its source again as a file, not as pasted text, or indent it by hand;"
        " `ralph init --preset code-assist` writes one to compare with",
    )

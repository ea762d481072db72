"""Reading presets: several layers of one format, merged, with every fault named by file and line."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ralph.core.errors import UsageError
from ralph.documents.config import HATS, Config, KeyFault, read_yaml, validate_keys
from ralph.documents.hats.definition import Hat, HatsSettings, MemoryUse, Topic, WorkSource
from ralph.documents.hats.preset import NO_EFFECT, PROMPT_KEYS, HatKeys, NoEffect, Preset
from ralph.documents.yaml_codec import YamlDocument

Path = tuple[str, ...]
"""The keys down to a value; an item of a list by what it is, a part of a text by its words."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a file; 0 for an option of the command line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class _File:
    name: str
    document: YamlDocument


class PresetFiles:
    """The files of a preset, the last one over the others; `fetch` reads what they import."""

    def __init__(self, files: Iterable[tuple[str, str]], options: Iterable[str], fetch: Callable[[str], str]) -> None:
        self._files = [_read_file(name, text) for name, text in files]
        self._options, self._fetch = tuple(options), fetch

    def of(self, path: Path) -> SourceLine:
        """Where a value is set; if it is not, the nearest key above it."""
        if path and path[0].startswith("-"):
            return SourceLine(path[0], 0)
        for option in reversed(self._options):
            if option.partition("=")[0].strip() == ".".join(path[: option.partition("=")[0].count(".") + 1]):
                return SourceLine(f"-c {option}", 0)
        found = [self._walk(one, path) for one in reversed(self._files)]
        best = max(found, key=lambda one: one[0], default=(0, SourceLine("-c", 0)))
        return best[1]

    def _walk(self, file: _File, path: Path) -> tuple[int, SourceLine]:
        """How much of a path there is in a file, and where that is."""
        node: Any = file.document.data
        keys: list[str | int] = []
        for depth, part in enumerate(path):
            if isinstance(node, dict) and part not in node and isinstance(node.get("import"), str):
                name = posixpath.join(posixpath.dirname(file.name), node["import"])
                file = _read_file(name, self._fetch(name))
                node, keys = file.document.data, []
            line = file.document.line_of(keys)
            if isinstance(node, dict) and part in node:
                keys.append(part)
                node = node[part]
            elif isinstance(node, list) and part in node:
                keys.append(node.index(part))
                node = None
            elif isinstance(node, str):
                below = enumerate(file.document.text.splitlines()[line - 1 :], line)
                return depth + 1, SourceLine(file.name, next((at for at, text in below if part in text), line))
            else:
                return depth, SourceLine(file.name, line)
        return len(path), SourceLine(file.name, file.document.line_of(keys))


def _read_file(name: str, text: str) -> _File:
    return _File(name, read_yaml(text, name))


Layer = dict[str, Any]
"""The keys that one file, or one option, sets."""
_LINE = re.compile(r"([A-Za-z_]\w*):(\s.*)?$")
_SECOND = re.compile(r":\s+(?:\"[^\"]*\"|'[^']*'|[^\s\"'#]+)\s+(\w+):\s")
_EVIDENCE = {"build.done": "build.blocked", "review.done": "review.blocked", "verify.passed": "verify.failed"}
"""Topics that claim that the work is good, and what is published where the checks say that it is not."""
_PLAIN = re.compile(r"[\w./-]+")
_STARTING = "task.start"
_ENGINE = (_STARTING, "task.resume")
_INSIDE = {
    key: frozenset(field.annotation.model_fields)
    for key, field in Preset.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
"""The keys of each section."""


def read_layer(
    text: str,
    name: str,
    warnings: list[str],
    fetch: Callable[[str], str],
    invalid: list[KeyFault] | None = None,
) -> Layer:
    """The keys of one file; unknown ones are warned of with the nearest known. `fetch` reads the files of imported hats.

    Invalid values are an error, unless `invalid` is a list that collects them.
    """
    _refuse_flat(text, name)
    document = read_yaml(text, name)
    data = dict(document.data)
    if isinstance(hats := data.get("hats"), dict):
        data["hats"] = {
            id: _import_hat(hat, f"{name}, line {document.line_of(('hats', id, 'import'))}", warnings, fetch)
            for id, hat in hats.items()
        }
    return _validate_layer(data, document, name, warnings, may_be_unknown=True, invalid=invalid)


def read_override(text: str, where: str, warnings: list[str]) -> Layer:
    """`KEY=VALUE` as a layer of its own; an unknown key is an error, one without effect is warned of."""
    path, equals, value = text.partition("=")
    where = f"{where} {text}"
    if not equals or not path.strip():
        raise UsageError(f"{text!r} is not KEY=VALUE", where=where, todo="write it like event_loop.max_iterations=20")
    try:
        document = read_yaml(f"value: {value}\n", where)
    except UsageError:
        what = f"{value!r} is not a value of YAML"
        raise UsageError(what, where=where, todo="close brackets and quotes, or put the value in quotes") from None
    nested: Any = document.data["value"]
    for part in reversed(path.strip().split(".")):
        nested = {part: nested}
    return _validate_layer(nested, None, where, warnings, may_be_unknown=False)


def merge_layers(files: Sequence[Layer], overrides: Sequence[Layer] = ()) -> Layer:
    """Later layers over earlier ones: mappings are merged, all else is replaced; hats of two files are never mixed."""
    result: Layer = {}
    for layer in files:
        result = _over({**result, "hats": {}} if "hats" in layer else result, layer)
    for layer in overrides:
        result = _over(result, layer)
    return result


def split_layer(layer: Layer) -> tuple[Preset, Config]:
    """The preset and the settings in a whole of keys."""
    preset = {key: value for key, value in layer.items() if key in HATS}
    return Preset.model_validate(preset), Config.model_validate({k: v for k, v in layer.items() if k not in HATS})


def list_notices(preset: Preset) -> Iterator[str]:
    """What is set and has no effect on the agent that the preset names."""
    keys = [f"`cli.{key}`" for key in ("prompt_mode", "prompt_flag") if key in preset.cli.model_fields_set]
    programs = preset.cli.backend == "custom" or any(
        hat.backend and hat.backend.command for hat in preset.hats.values()
    )
    if keys and preset.cli.backend and not programs:
        verb = "has" if len(keys) == 1 else "have"
        yield f"{' and '.join(keys)} {verb} no effect here. {PROMPT_KEYS}"


def find_faults(preset: Preset) -> Iterator[tuple[Path, str]]:
    """All that is asked for and cannot be done here: the key that each fault is about, and a sentence."""
    if preset.hooks.get("enabled"):
        what = "Ralph does not run hooks: put commands into `event_loop.checks`, and use `notify` for notifications"
        yield ("hooks", "enabled"), what
    promise = preset.completion_promise or preset.event_loop.completion_promise
    taken: dict[str, str] = {}
    for id, hat in preset.hats.items():
        for topic in hat.triggers:
            path = ("hats", id, "triggers", topic)
            if topic in _ENGINE:
                yield path, f"`{topic}` always goes to the coordinator; {_advise_on_engine_topic(preset, id, topic)}"
            if topic in taken:
                yield path, f"`{topic}` already triggers {taken[topic]}; only one hat can receive an event"
            taken[topic] = id
        if hat.concurrency > 1 and hat.aggregate:
            yield ("hats", id, "aggregate"), "a hat cannot have both `concurrency` and `aggregate`"
        if hat.concurrency > 1 and promise in hat.publishes:
            yield ("hats", id, "concurrency"), "a hat that publishes the completion promise cannot work in parallel"
    if preset.cli.backend == "custom" and not preset.cli.command:
        yield ("cli", "command"), "it is missing: `backend: custom` needs the program"
    if preset.event_loop.starting_hat and preset.event_loop.starting_hat not in preset.hats:
        yield ("event_loop", "starting_hat"), f"there is no hat {preset.event_loop.starting_hat}"


def find_hats_without_triggers(preset: Preset) -> Iterator[tuple[Path, str]]:
    """The hats that receive nothing."""
    for id, hat in preset.hats.items():
        if not hat.triggers:
            yield ("hats", id, "triggers"), f"{id} receives nothing, so it never gets a turn; add `triggers`"


def _advise_on_engine_topic(preset: Preset, hat: str, topic: str) -> str:
    """What to write instead of a topic of the engine as a trigger."""
    if topic != _STARTING:
        return "remove it, and let a hat publish a topic that leads here"
    start = preset.event_loop.starting_event
    if start and start != topic:
        return f"the run begins with `{start}` (`event_loop.starting_event`): if {hat} should begin, write that here"
    return f"if {hat} should begin, write `work.start` here, and `starting_event: work.start` under `event_loop:`"


def build_settings(preset: Preset, source: WorkSource, *, checks: bool) -> HatsSettings:
    """What a run is started with. `checks` says whether the run has checks."""
    loop, core, memories = preset.event_loop, preset.core, preset.memories
    names = _names(preset, source)
    return HatsSettings(
        hats=tuple(_build_hat(id, hat, names) for id, hat in preset.hats.items()),
        topics=_build_topics(preset, checks=checks),
        completion=preset.completion_promise or loop.completion_promise,
        cancellation=loop.cancellation_promise,
        starting_event=loop.starting_event or _find_starting_event(preset),
        required=loop.required_events,
        enforce_scope=loop.enforce_hat_scope,
        persistent=loop.persistent,
        guardrails=tuple(_fill_names(rule, names) for rule in core.guardrails),
        max_failures=loop.max_consecutive_failures,
        cooldown=loop.cooldown_delay_seconds,
        checkpoint=loop.checkpoint_interval,
        max_default_events=loop.max_default_events,
        tasks=preset.tasks.enabled,
        memories=MemoryUse(
            inject=memories.enabled and memories.inject == "auto",
            budget=memories.budget or 2000,
            types=memories.filter.types,
            tags=memories.filter.tags,
            recent=memories.filter.recent,
        ),
        scratchpad=core.scratchpad,
        source=source.kind,
        documents=source.documents if _uses_documents(preset) else "",
    )


def _build_hat(id: str, hat: HatKeys, names: Mapping[str, str]) -> Hat:
    instructions = "\n".join((hat.instructions.strip(), *hat.extra_instructions)).strip()
    return Hat(
        id=id,
        name=hat.name or id,
        description=_fill_names(hat.description, names),
        triggers=hat.triggers,
        publishes=hat.publishes,
        instructions=_fill_names(instructions, names),
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


def _build_topics(preset: Preset, *, checks: bool) -> dict[str, Topic]:
    """The rules of topics. Topics that claim good work need evidence, also if the preset does not describe them."""
    topics: dict[str, Topic] = {}
    for name, keys in preset.events.items():
        needs_evidence = name in _EVIDENCE if keys.evidence is None else bool(keys.evidence)
        topics[name] = Topic(
            description=keys.description,
            on_trigger=keys.on_trigger,
            on_publish=keys.on_publish,
            requires=keys.requires,
            evidence=checks and needs_evidence,
            otherwise=keys.otherwise or _EVIDENCE.get(name, ""),
            expects_failure=keys.evidence == "fails",
        )
    for name, otherwise in _EVIDENCE.items():
        topics.setdefault(name, Topic(evidence=checks, otherwise=otherwise))
    return topics


def _find_starting_event(preset: Preset) -> str:
    """The first topic that triggers the starting hat; empty if no hat starts."""
    if not preset.event_loop.starting_hat:
        return ""
    triggers = preset.hats[preset.event_loop.starting_hat].triggers
    return next((topic for topic in triggers if "*" not in topic), "")


def _uses_documents(preset: Preset) -> bool:
    """Whether a preset speaks of the directory of the documents; if not, hats are not told of one."""
    texts = [*preset.core.guardrails, *preset.event_loop.checks, *preset.event_loop.scope]
    for hat in preset.hats.values():
        texts += [hat.description, hat.instructions, *hat.extra_instructions]
    return any("{documents}" in text or "implementation/{task_name}" in text for text in texts)


def fill_names(preset: Preset, source: WorkSource, texts: Sequence[str]) -> tuple[str, ...]:
    """Checks or patterns of files with the names that Ralph knows; what a shell would read otherwise is refused."""
    done = tuple(_fill_names(text, _names(preset, source)) for text in texts)
    if done != tuple(texts) and not _PLAIN.fullmatch(source.documents):
        todo = "use letters, digits and - for the directory of the documents"
        raise UsageError("its name cannot be used in a check", where=source.documents, todo=todo)
    return done


def _names(preset: Preset, source: WorkSource) -> dict[str, str]:
    specs = preset.core.specs_dir.rstrip("/") + "/"
    return {"specs_dir": specs, "task_name": source.task_name, "documents": source.documents}


def _validate_layer(
    data: Layer,
    document: YamlDocument | None,
    name: str,
    warnings: list[str],
    *,
    may_be_unknown: bool,
    invalid: list[KeyFault] | None = None,
) -> Layer:
    """The keys that are set and do something, validated; unknown ones are warned of, or are an error."""
    layer: Layer = {}
    useful = _without_effect(data, warnings)
    unknown = warnings if may_be_unknown else None
    for model, own in ((Preset, True), (Config, False)):
        values = {key: value for key, value in useful.items() if (key in HATS) is own and not (own and value is None)}
        layer |= validate_keys(model, values, document, name, unknown=unknown, invalid=invalid).model_dump(
            exclude_unset=True, by_alias=True
        )
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


def _import_hat(hat: Any, place: str, warnings: list[str], fetch: Callable[[str], str]) -> Any:
    """A hat with what it imports from another file; its own keys win."""
    if not isinstance(hat, dict) or "import" not in hat:
        return hat
    path = str(hat["import"])
    try:
        other = read_yaml(fetch(path), path)
    except UsageError as error:
        what = f"`import: {path}`: {error.what}"
        raise UsageError(what, where=place, todo="the path is relative to the file that imports") from error
    if bad := [key for key in ("import", "events", "hats") if key in other.data]:
        line, todo = other.line_of(bad), "write the keys of one hat there, without a name above them"
        raise UsageError(
            f"an imported hat may not have `{bad[0]}`", where=f"{path}, line {line}, by {place}", todo=todo
        )
    theirs = validate_keys(HatKeys, dict(other.data), other, path, unknown=warnings).model_dump(
        exclude_unset=True, by_alias=True
    )
    return {**theirs, **{key: value for key, value in hat.items() if key != "import"}}


def _fill_names(text: str, values: Mapping[str, str]) -> str:
    """The text with the names that Ralph knows replaced; other braces stay as they are."""
    for name, value in values.items():
        text = text.replace("{" + name + "}/", value.rstrip("/") + "/").replace("{" + name + "}", value)
    return text


def _refuse_flat(text: str, name: str) -> None:
    """An error if the file has lost its indentation: keys of a section stand at the margin below it."""
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

"""What `ralph hats check` says of presets that are broken in one way each, and that it is silent on sound ones."""

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from playing_hats import CHECK, OBJECTIVE, RUN, Stage, Turned

from ralph.core.checks import Severity
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.documents.config import Config
from ralph.documents.hats.definition import find_work_source
from ralph.documents.hats.reading import PresetFiles, find_faults, merge_layers, read_layer, split_layer
from ralph.documents.hats.reading import build_settings as run_settings
from ralph.store.presets import list_shipped, read_shipped
from ralph.workflows.hats.preset_checks import check_preset
from ralph.workflows.hats.preset_completion import SearchTurn, find_default_cycle, find_shortest_route
from ralph.workflows.hats.preset_model import Model, PresetFinding
from ralph.workflows.hats.routing import HatsContext
from ralph.workflows.hats.rules import Hats

PRESETS = Path(__file__).with_name("presets")
BROKEN, SOUND = sorted(PRESETS.glob("broken/*.yml")), sorted(PRESETS.glob("sound/*.yml"))


def limits_of(model: Model, config: Config) -> Limits:
    loop, own = model.preset.event_loop, config.limits
    iterations = own.iterations if "iterations" in own.model_fields_set else loop.max_iterations
    return Limits(model.preset.max_iterations or iterations, loop.max_runtime_seconds, tokens=own.tokens)


def model_of(text: str, fetch=lambda path: "") -> tuple[Model, Config]:
    preset, config = split_layer(merge_layers([read_layer(text, "preset.yml", [], fetch)]))
    if faults := list(find_faults(preset)):
        raise UsageError(str(faults))
    source = find_work_source("", preset.core.specs_dir, lambda path: "")
    return Model(preset, run_settings(preset, source, checks=bool(preset.event_loop.checks))), config


def found_in(text: str) -> list[PresetFinding]:
    model, config = model_of(text)
    return check_preset(model.preset, model.settings, limits_of(model, config))


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_every_fault_is_found_on_its_line_and_nothing_else(path: Path) -> None:
    text = path.read_text()
    marks = [(number, line.partition("# <- ")[2]) for number, line in enumerate(text.splitlines(), 1)]
    expected = {(number, code) for number, codes in marks for code in re.findall(r"[\w-]+", codes)}
    places = PresetFiles([("preset.yml", text)], (), lambda path: "")
    assert {(places.of(one.path).line, one.code) for one in found_in(text)} == expected


WHOLE = {**{name: read_shipped(name) for name in list_shipped()}, **{path.stem: path.read_text() for path in SOUND}}


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_sound_presets_are_left_alone(text: str) -> None:
    assert [(one.code, one.what) for one in found_in(text)] == []


def test_findings_about_imported_hats_name_their_file() -> None:
    text = "hats:\n  builder:\n    import: shared/builder.yml\n    publishes: [review.ready]\n"
    other = "description: Builds.\ntriggers:\n  - work.start\n  - LOOP_COMPLETE\n"
    places = PresetFiles([("ralph.yml", text)], (), lambda path: other)
    assert str(places.of(("hats", "builder", "triggers", "LOOP_COMPLETE"))) == "shared/builder.yml:4"
    assert str(places.of(("hats", "builder", "publishes", "review.ready"))) == "ralph.yml:4"


def test_the_last_file_and_options_win() -> None:
    files = [("one.yml", "event_loop:\n  max_iterations: 3\n"), ("two.yml", "\nevent_loop:\n  prompt: x\n")]
    assert str(PresetFiles(files, (), lambda path: "").of(("event_loop", "max_iterations"))) == "one.yml:2"
    option = "event_loop.max_iterations=2"
    assert str(PresetFiles(files, (option,), lambda path: "").of(("event_loop", "max_iterations"))) == f"-c {option}"


class TestAgainstTheRules:
    """What the check says of a preset, and what the engine's own rules make of it."""

    def test_shortest_route_completes_the_run(self) -> None:
        done = 0
        for text in (*WHOLE.values(), *(path.read_text() for path in BROKEN), *map(any_preset, range(40))):
            model, _ = model_of(text)
            route = find_shortest_route(model).route if model.settings.hats else ()
            if route:
                world = played(model, replaying(model, route), len(route))
                assert world.state.outcome is Outcome.SUCCESS, text
                assert world.turns == [(turn.who, turn.topic) for turn in route], text
                done += 1
        assert done > 50

    def test_preset_without_a_route_never_completes(self) -> None:
        texts = [*(path.read_text() for path in BROKEN), *map(any_preset, range(10))]
        assert sum(self.undone(text, 2, 12) for text in texts) > 14

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(10, 460, 50))
    def test_random_presets_without_a_route_never_complete(self, seed: int) -> None:
        assert sum(self.undone(text, 3, 25) for text in map(any_preset, range(seed, seed + 50))) > 10

    def undone(self, text: str, times: int, most: int) -> bool:
        model, _ = model_of(text)
        found = find_shortest_route(model)
        for seed in range(times):
            world = played(model, faithful(model, random.Random(f"{text} {seed}")), most)
            if world.state.outcome is Outcome.SUCCESS:
                assert found.route or found.open, f"{text}\n{world.turns}"
                assert len(world.turns) >= found.least, f"{text}\n{world.turns}\n{found.route}"
        return not found.route and not found.open

    def test_an_error_of_a_gate_is_final_whatever_agents_do(self) -> None:
        for name in ("required-promise", "required-pattern", "required-human", "promise-human", "promise-spaces"):
            model, _ = model_of((PRESETS / "broken" / f"{name}.yml").read_text())
            for seed in range(5):
                world = played(model, wild(model, random.Random(f"{name} {seed}")), 30)
                assert world.state.outcome is not Outcome.SUCCESS, name

    def test_no_error_means_that_there_is_a_way(self) -> None:
        for text in map(any_preset, range(40, 80)):
            model, _ = model_of(text)
            errors = [
                one for one in check_preset(model.preset, model.settings, Limits()) if one.severity is Severity.ERROR
            ]
            found = find_shortest_route(model)
            assert found.route or found.open or errors, text

    def test_silence_goes_round_as_predicted(self) -> None:
        rounds = 0
        for text in map(any_preset, range(100)):
            model, _ = model_of(text)
            if circle := find_default_cycle(model):
                world = played(model, lambda world, hat: Turned(files=1), 12)
                limited = {hat.id for hat in model.settings.hats if hat.max_activations}
                if not limited & {who for who, _ in world.turns}:
                    rounds += 1
                    assert {who for who, _ in world.turns[-len(circle) :]} == set(circle), text
        assert rounds > 1


def any_preset(seed: int) -> str:
    """A small preset of random hats."""
    dice = random.Random(seed)
    topics, ends = [f"t.{letter}" for letter in "abcdef"], ["LOOP_COMPLETE", *(["STOP"] if dice.random() < 0.3 else [])]
    free = dice.sample(topics, len(topics))
    hats = {}
    for id in ("ann", "bob", "cy", "dee")[: dice.randint(1, 4)]:
        triggers = [free.pop() for _ in range(dice.randint(1, 2)) if free] or [dice.choice(["t.*", "*"])]
        publishes = dice.sample([*topics, *ends, "t.*"], dice.randint(0, 3))
        hats[id] = {"description": id, "triggers": triggers, "publishes": publishes}
        if dice.random() < 0.4:
            hats[id]["default_publishes"] = dice.choice(topics)
        if dice.random() < 0.25:
            hats[id]["max_activations"] = dice.randint(1, 3)
    loop = {"required_events": dice.sample(topics, dice.randint(0, 2)), "enforce_hat_scope": dice.random() < 0.3}
    loop |= {"starting_event": dice.choice(topics)} if dice.random() < 0.8 else {}
    loop |= {"cancellation_promise": "STOP"} if "STOP" in ends else {}
    loop |= {"checks": ["`make`"]} if dice.random() < 0.3 else {}
    described = {one: {"requires": ["key"]} for one in dice.sample(topics, dice.randint(0, 2))}
    described |= {one: {"evidence": True, "otherwise": dice.choice(topics)} for one in dice.sample(topics, 1)}
    return json.dumps({"event_loop": loop, "hats": hats, "events": described}, indent=1)


Agent = Callable[[Stage, str], Turned]


def played(model: Model, agent: Agent, most: int) -> Stage:
    """A run by the engine's own rules."""
    checks = CHECK if model.preset.event_loop.checks else ()
    world = Stage(Hats(HatsContext(RUN, OBJECTIVE, model.settings, checks, "Frame.")), works=True)

    def bear_out() -> None:
        rules = (model.settings.topics.get(claim.topic) for claim in world.state.claims)
        world.works = not any(rule.expects_failure for rule in rules if rule)

    world.during_checks = bear_out
    world.play(agent, most)
    return world


def said(model: Model, topics: tuple[str, ...]) -> Turned:
    """A turn that publishes these; the promise is its last line."""
    rules, promise = model.settings.topics, model.settings.completion
    events = tuple((one, dict.fromkeys(rules[one].requires, "x") if one in rules else "") for one in topics)
    spoken = promise if topics and topics[-1] == promise else ""
    return Turned(tuple(one for one in events if one[0] != promise or not spoken), text=spoken, files=1)


def replaying(model: Model, route: Sequence[SearchTurn]) -> Agent:
    return lambda world, hat: said(model, route[len(world.turns) - 1].said)


def faithful(model: Model, dice: random.Random) -> Agent:
    """Hats that publish some of what they list, or nothing; the coordinator does what is its part."""

    def agent(world: Stage, hat: str) -> Turned:
        topics = [one for one in model.says(hat, world.state.event.topic) if one not in model.promises]
        chosen = dice.sample(topics, min(len(topics), dice.choice([0, 1, 1, 1, 2, 3])))
        ends = [one for one in model.promises if one in model.says(hat, world.state.event.topic)]
        return said(model, (*chosen, *(dice.sample(ends, 1) if ends and dice.random() < 0.4 else ())))

    return agent


def wild(model: Model, dice: random.Random) -> Agent:
    """Agents that publish whatever comes to their mind."""
    topics = (*model.triggers, *model.promises, *model.settings.required, "no.such", "human.guidance.ack")

    def agent(world: Stage, hat: str) -> Turned:
        return said(model, tuple(dice.sample(topics, dice.randint(0, 3))))

    return agent


def test_no_malformed_preset_makes_it_fail() -> None:
    """Words, lines and letters of presets are mixed up: it is either refused as a file, or checked."""
    texts = [*WHOLE.values(), *(path.read_text() for path in BROKEN)]
    judged = 0
    for seed in range(200):
        dice = random.Random(seed)
        text = dice.choice(texts)
        for _ in range(dice.randint(1, 4)):
            text = damage(text, dice, texts)
        try:
            found = found_in(text)
            places = PresetFiles([("preset.yml", text)], ("event_loop.prompt=x",), lambda path: "")
            lines = [places.of(one.path).line for one in found]
        except UsageError:
            continue
        judged += 1
        assert all(1 <= line <= len(text.splitlines()) for line in lines), text
    assert judged > 50


def damage(text: str, dice: random.Random, others: list[str]) -> str:
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    words = [word for word in re.findall(r"[\w.*-]+", dice.choice(others)) if word]
    match dice.randrange(5):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, dice.choice(lines))
        case 2:
            lines[at] = re.sub(r"[\w.*-]+", lambda one: dice.choice([one[0]] * 3 + [dice.choice(words)]), lines[at])
        case 3:
            lines[at] = lines[at].replace(
                dice.choice(["", ".", "a", "e", ":"]), dice.choice(["", "*", "x", ".", "-"]), 1
            )
        case _:
            lines[at] = lines[at].replace("[", "[human.x, ").replace(": ", ": 1", 1)
    return "\n".join(lines) + "\n"

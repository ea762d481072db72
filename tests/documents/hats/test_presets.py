"""Presets: every key works, is warned of, or is refused with a reason; layers, sources, and files that lost their form."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from ralph.core.errors import UsageError
from ralph.documents import run_record
from ralph.documents.config import HATS, Config, parse_config
from ralph.documents.hats.definition import WorkSource, find_work_source
from ralph.documents.hats.preset import NO_EFFECT, PROMPT_KEYS, Preset, schema
from ralph.documents.hats.reading import (
    build_settings,
    find_faults,
    list_notices,
    merge_layers,
    read_layer,
    read_override,
    split_layer,
)
from ralph.store.presets import list_shipped, load_preset, read_shipped

WHOLE = """
event_loop:
  prompt_file: "PROMPT.md"
  completion_promise: "ALL_DONE"
  cancellation_promise: "GIVE_UP"
  required_events: ["review.passed"]
  starting_event: "build.start"
  max_iterations: 40
  max_runtime_seconds: 600
  max_cost_usd: 2.5
  max_consecutive_failures: 3
  cooldown_delay_seconds: 1
  checkpoint_interval: 5
  enforce_hat_scope: true
  checks: "tests pass"
cli:
  backend: "kiro"
  prompt_mode: "arg"
core:
  specs_dir: ".agents/scratchpad/"
  guardrails: ["See {specs_dir}notes.md"]
  scratchpad: {enabled: true, path: notes.md}
hats:
  planner:
    name: "Planner"
    description: "Plans {task_name}."
    triggers: "build.start"
    publishes: ["tasks.ready"]
    default_publishes: "tasks.ready"
    instructions: |
      Write to {specs_dir}/implementation/{task_name}/ and leave {slug} alone.
    extra_instructions: ["Be brief."]
    backend: {type: claude, model: opus, args: ["--verbose"]}
    backend_args: ["--one"]
    max_activations: 7
    timeout: 90
    disallowed_tools: [Edit]
    scratchpad: plan-notes.md
  builder:
    triggers: ["tasks.*"]
    publishes: ["build.done", "review.passed", "ALL_DONE"]
    backend: codex
    model: o3
events:
  tasks.ready: {description: "go", on_trigger: "Take it.", on_publish: "Name it.", requires: [task_id, task_key]}
tasks: {enabled: false}
memories: {enabled: true, inject: auto, budget: 500, filter: {types: [fix], tags: [cli], recent: 3}}
agent: claude
limits: {iterations: 5}
"""
ROUGH = WorkSource("rough description", "add-it", ".agents/scratchpad/implementation/add-it/")


def layer(text: str, warnings: list[str] | None = None, **files: str) -> dict:
    return read_layer(text, "ralph.yml", warnings if warnings is not None else [], lambda path: files[path])


def preset_of(text: str) -> Preset:
    return split_layer(merge_layers([layer(text)]))[0]


def faults_of(text: str) -> list[str]:
    return [f"`{'.'.join(path)}`: {what}" for path, what in find_faults(preset_of(text))]


class TestKeys:
    def test_a_whole_preset_becomes_what_a_run_is_started_with(self) -> None:
        warnings: list[str] = []
        preset, config = split_layer(merge_layers([layer(WHOLE, warnings)]))
        assert warnings == []
        assert list(list_notices(preset)) == [f"`cli.prompt_mode` has no effect here. {PROMPT_KEYS}"]
        assert not list(find_faults(preset))
        hats = build_settings(preset, ROUGH, checks=True)
        planner, builder = hats.hats
        assert planner.instructions == (
            "Write to .agents/scratchpad/implementation/add-it/ and leave {slug} alone.\nBe brief."
        )
        assert (planner.description, hats.guardrails) == ("Plans add-it.", ("See .agents/scratchpad/notes.md",))
        assert (planner.triggers, planner.max_activations, planner.wall, planner.scratchpad) == (
            *(("build.start",), 7, 90),
            "plan-notes.md",
        )
        assert (hats.completion, hats.cancellation, hats.required) == ("ALL_DONE", "GIVE_UP", ("review.passed",))
        assert (hats.max_failures, hats.cooldown, hats.checkpoint, hats.enforce_scope) == (3, 1, 5, True)
        assert hats.topics["tasks.ready"].requires == ("task_id", "task_key")
        assert (hats.topics["build.done"].evidence, hats.topics["build.done"].otherwise) == (True, "build.blocked")
        assert (hats.tasks, hats.memories.budget, hats.memories.types, hats.memories.recent) == (
            False,
            500,
            ("fix",),
            3,
        )
        assert (hats.scratchpad, config.agent and config.agent.agent, config.limits.iterations) == (
            "notes.md",
            "claude",
            5,
        )
        assert (builder.name, preset.hats["planner"].backend_args) == ("builder", ("--one",))
        assert preset.hats["builder"].backend and preset.hats["builder"].backend.type == "codex"

    def test_hats_settings_survive_run_json(self) -> None:
        hats = build_settings(preset_of(WHOLE), ROUGH, checks=False)
        crew = run_record.AgentSelection((run_record.AgentSpec("claude"),))
        record = run_record.RunRecord("261116-093000-k3x9", "hats", "x", "", (), crew, 1.0, hats=hats)
        assert run_record.parse_record(run_record.render_record(record), "run.json") == record

    def test_every_key_of_the_file_is_either_a_setting_or_a_preset(self) -> None:
        names = {field.alias or name for name, field in Preset.model_fields.items()}
        names |= {key for key in NO_EFFECT if "." not in key}
        assert names == HATS and not names & set(Config.model_fields)

    def test_every_key_says_what_it_is(self) -> None:
        def untold(model: type[BaseModel]) -> list[str]:
            found = []
            for name, field in model.model_fields.items():
                inner = [kind for kind in (field.annotation,) if isinstance(kind, type) and issubclass(kind, BaseModel)]
                found += [f"{model.__name__}.{name}"] if not inner and not field.description else []
                for one in inner:
                    found += untold(one)
            return found

        assert untold(Preset) == []

    def test_a_loop_passes_over_the_keys_of_hats(self) -> None:
        assert parse_config(WHOLE, "ralph.yml").limits.iterations == 5

    def test_older_flat_keys_win(self) -> None:
        text = "completion_promise: DONE\nmax_iterations: 7\nagent: claude\nevent_loop: {completion_promise: OTHER}\n"
        preset = preset_of(text)
        assert (build_settings(preset, ROUGH, checks=False).completion, preset.max_iterations) == ("DONE", 7)


class TestWarnings:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            (
                "event_loop:\n  max_iteration: 5\n",
                "line 2: `event_loop.max_iteration` is not a setting; did you mean `max_iterations`?",
            ),
            ("hats:\n  a:\n    trigger: [x]\n", "line 3: `hats.a.trigger` is not a setting; did you mean `triggers`?"),
            ("colours: {}\n", "line 1: `colours` is not a setting"),
            ("limit: {}\n", "line 1: `limit` is not a setting; did you mean `limits`?"),
        ],
    )
    def test_unknown_keys_are_warned_of_with_the_nearest_and_the_rest_is_read(self, text: str, told: str) -> None:
        warnings: list[str] = []
        read = layer(text + "core: {specs_dir: x}\n", warnings)
        assert warnings == [f"ralph.yml, {told}"]
        assert read["core"] == {"specs_dir": "x"}

    @pytest.mark.parametrize(
        "text",
        [
            "cli: {idle_timeout_secs: 60}",
            "cli: {timeout: 900}",
            "cli: {pty_mode: true}",
            "event_loop: {idle_timeout_secs: 3600}",
            "backpressure: {gates: [{name: lint, command: make lint}]}",
            "skills: {enabled: true}",
            "RObot: {enabled: true, timeout_seconds: 5}",
            "features: {parallel: false}",
            "tui: {prefix_key: x}",
            "verbose: true",
            "event_loop: {context_window_tokens: 5}",
            "adapters: {claude: {enabled: false}}",
            "cli: {backend: kiro, prompt_mode: stdin}",
            "cli: {backend: claude, prompt_mode: arg}",
        ],
    )
    def test_key_without_effect_causes_one_warning(self, text: str) -> None:
        warnings: list[str] = []
        preset = split_layer(merge_layers([layer(text, warnings)]))[0]
        assert len([*warnings, *list_notices(preset)]) == 1

    @pytest.mark.parametrize(
        "text", ["cli: {default_mode: autonomous}", "verbose: false", "adapters: {a: {enabled: true}}"]
    )
    def test_a_usual_value_without_effect_is_not_worth_a_word(self, text: str) -> None:
        warnings: list[str] = []
        assert layer(text, warnings).get("verbose") is None and warnings == []

    def test_option_without_effect_causes_a_warning(self) -> None:
        warnings: list[str] = []
        read_override("cli.pty_mode=true", "-c", warnings)
        assert warnings == ["`cli.pty_mode` has no effect: agents run without a terminal"]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("hooks: {enabled: true}", "Ralph does not run hooks"),
            (
                "hats: {a: {concurrency: 3, publishes: [LOOP_COMPLETE]}}",
                "a hat that publishes the completion promise cannot work in parallel",
            ),
            ("hats: {a: {concurrency: 2, aggregate: {}}}", "cannot have both `concurrency` and `aggregate`"),
            ("hats: {a: {triggers: [x.y]}, b: {triggers: [x.y]}}", "`x.y` already triggers a"),
            (
                "hats: {a: {triggers: [task.start]}}",
                "always goes to the coordinator; if a should begin, write `work.start` here",
            ),
            ("cli: {backend: custom}", "`cli.command`: it is missing"),
            ("event_loop: {starting_hat: nobody}", "there is no hat nobody"),
        ],
    )
    def test_unsupported_key_is_refused_with_the_reason(self, text: str, told: str) -> None:
        [fault] = faults_of(text)
        assert told in fault

    def test_hooks_that_are_off_are_nothing(self) -> None:
        assert faults_of("hooks: {enabled: false, events: {}}") == []

    @pytest.mark.parametrize(
        "text",
        [
            "event_loop: {prompt: x, prompt_file: y}",
            "event_loop: {max_iterations: 0}",
            "event_loop: {completion_promise: ''}",
            "hats: {ralph: {}}",
            "hats: {'../x': {}}",
            "hats: {a: {triggers: ['no topic']}}",
            "core: {scratchpad: ../outside.md}",
            "core: {scratchpad: /etc/passwd}",
        ],
    )
    def test_wrong_values_are_errors_with_their_line(self, text: str) -> None:
        with pytest.raises(UsageError, match="line 1"):
            layer(text)


def flattened(text: str) -> str:
    """The file as it is after it went through something that takes indentation away."""
    return "\n".join(line.strip() for line in text.splitlines())


class TestLostIndentation:
    def test_every_section_is_named_with_its_line(self) -> None:
        text = flattened(read_shipped("code-assist"))
        with pytest.raises(UsageError) as caught:
            layer(text)
        what = caught.value.what
        assert what.startswith("the file has lost its indentation:")
        rows = text.splitlines()
        for number, key, section in re.findall(r"line (\d+): `(\w+):` belongs under `(\w+):`", what):
            assert rows[int(number) - 1].startswith(f"{key}:")
            assert f"{section}:" in rows
        assert "`prompt_file:` belongs under `event_loop:`" in what and "`planner:` belongs under `hats:`" in what

    def test_keys_that_ran_together_on_a_line_are_named_too(self) -> None:
        text = 'event_loop:\nprompt_file: "PROMPT.md"\nstarting_event: "build.start" max_iterations: 100\n'
        with pytest.raises(UsageError, match="line 3: several keys are on one line"):
            layer(text)

    def test_a_well_formed_file_is_left_alone(self) -> None:
        for name in list_shipped():
            layer(read_shipped(name))
        layer("event_loop:\nhats:\n  a: {triggers: [x.y]}\n")
        layer("event_loop:\n\n# words\n\n  max_iterations: 3\nmax_iterations: 4\n")


class TestLayers:
    def test_later_files_win_key_by_key_and_hats_are_never_mixed(self) -> None:
        below = layer("event_loop: {max_iterations: 5, checkpoint_interval: 2}\nhats: {a: {triggers: [x.y]}}\n")
        above = layer("event_loop: {max_iterations: 9, required_events: [r.p]}\nhats: {b: {triggers: [x.y]}}\n")
        preset, _ = split_layer(merge_layers([below, above], [read_override("hats.b.model=opus", "-c", [])]))
        assert (preset.event_loop.max_iterations, preset.event_loop.checkpoint_interval) == (9, 2)
        assert preset.event_loop.required_events == ("r.p",), "required events come along with the hats"
        assert list(preset.hats) == ["b"] and preset.hats["b"].model == "opus"

    def test_user_project_option_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.delenv("RALPH_CONFIG", raising=False)
        for place in ("home/.ralph", "config/ralph", "project"):
            (tmp_path / place).mkdir(parents=True)
        (tmp_path / "home/.ralph/config.yml").write_text("event_loop: {max_iterations: 1, max_cost_usd: 1}\n")
        (tmp_path / "config/ralph/ralph.yml").write_text("event_loop: {max_iterations: 2, cooldown_delay_seconds: 2}\n")
        root = tmp_path / "project"
        (root / "ralph.yml").write_text("event_loop: {max_iterations: 3, max_runtime_seconds: 3}\n")
        other = root / "other.yml"
        other.write_text("event_loop: {max_iterations: 4}\n")
        assert load_preset(root, (), None).preset.event_loop.max_iterations == 3
        loaded = load_preset(root, (str(other),), None).preset.event_loop
        assert (
            loaded.max_iterations,
            loaded.max_runtime_seconds,
            loaded.cooldown_delay_seconds,
            loaded.max_cost_usd,
        ) == (4, 3, 2, 1)
        assert (
            load_preset(root, (str(other), "event_loop.max_iterations=5"), None).preset.event_loop.max_iterations == 5
        )
        monkeypatch.setenv("RALPH_SET", "event_loop.max_iterations=6; cli.backend=codex")
        loaded_set = load_preset(root, (str(other), "event_loop.max_iterations=5"), "builtin:code-assist").preset
        assert (loaded_set.event_loop.max_iterations, loaded_set.cli.backend) == (6, "codex")
        assert loaded_set.event_loop.required_events == ("review.passed",)

    @pytest.mark.parametrize(
        "text", ["", "nonsense", "=5", "event_loop.max_iteration=5", "event_loop.max_iterations=many"]
    )
    def test_a_wrong_override_is_an_error(self, text: str) -> None:
        with pytest.raises(UsageError) as error:
            read_override(text, "-c", [])
        assert "line 1" not in error.value.what and "file" not in error.value.todo
        assert error.value.where == f"-c {text}"

    def test_a_hat_can_be_imported_and_changed(self) -> None:
        text = "hats:\n  a:\n    import: shared/a.yml\n    description: mine\n"
        read = layer(text, None, **{"shared/a.yml": "name: A\ndescription: theirs\ntriggers: [x.y]\n"})
        assert read["hats"]["a"] == {"name": "A", "description": "mine", "triggers": ("x.y",)}
        with pytest.raises(UsageError, match="may not have `import`"):
            layer(text, None, **{"shared/a.yml": "import: b.yml\n"})


class TestSources:
    @pytest.mark.parametrize(
        ("objective", "kind", "documents"),
        [
            ("Add --verbose to the CLI", "rough description", "S/implementation/add-verbose-to-the-cli/"),
            ("Build `specs/login` please.", "directory of a plan", "specs/login/"),
            ("tasks/add-login.code-task.md", "single task file", "S/implementation/add-login/"),
            ("Do @tasks/add-login.code-task.md", "single task file", "S/implementation/add-login/"),
            (
                "See ../specs/login and /specs/login",
                "rough description",
                "S/implementation/see-specs-login-and-specs-login/",
            ),
            ("Read .code-task.md", "rough description", "S/implementation/read-code-task-md/"),
            ("Read *.code-task.md", "rough description", "S/implementation/read-code-task-md/"),
            ("¿¡", "rough description", "S/implementation/task/"),
            ("Füge Ümlaute ein", "rough description", "S/implementation/füge-ümlaute-ein/"),
            ("日本語を書く", "rough description", "S/implementation/日本語を書く/"),
        ],
    )
    def test_the_three_kinds(self, objective: str, kind: str, documents: str) -> None:
        there = {"specs/login": "directory", "tasks/add-login.code-task.md": "file"}
        source = find_work_source(objective, "S/", lambda path: there.get(path, ""))
        named = re.sub(r"-[0-9a-f]{6}/$", "/", source.documents)
        assert (source.kind, named) == (kind, documents)
        assert source.documents.rstrip("/").endswith(source.task_name) or kind == "directory of a plan"

    def test_objectives_that_begin_alike_have_documents_of_their_own(self) -> None:
        places = {
            find_work_source(f"Add a page for the list of {what}", "S/", lambda path: "").documents
            for what in ("cats", "dogs")
        }
        assert len(places) == 2 and all(
            place.startswith("S/implementation/add-a-page-for-the-list-") for place in places
        )

    def test_no_two_objectives_or_presets_share_documents(self) -> None:
        there = {"a/login.code-task.md": "file", "b/login.code-task.md": "file"}
        objectives = ("Add --verbose", "Add verbose", "Add verbose!", "add verbose", *there)
        places = [
            find_work_source(objective, "S/", lambda path: there.get(path, ""), preset).documents
            for objective in objectives
            for preset in ("code-assist", "spec-driven")
        ]
        assert len(set(places)) == 2 * len(objectives)

    def test_the_same_objective_finds_its_documents_again(self) -> None:
        first, again = (find_work_source(text, "S/", lambda path: "", "tdd") for text in ("Add it", " Add it\n"))
        assert first == again

    def test_a_task_file_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(UsageError, match="does not exist"):
            find_work_source("Build tasks/missing.code-task.md", "S/", lambda path: "")


def test_the_schema_knows_every_key() -> None:
    known = schema()
    assert {*known["properties"]} == HATS | set(Config.model_fields)
    assert {"EventLoop", "HatKeys", "AgentSettings"} <= known["$defs"].keys()

"""`ralph.yml`: what it means, and how it names what is wrong."""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ralph.core.errors import UsageError
from ralph.documents.config import AgentSettings, Config, UserSettings, parse_config, read_yaml, validate_keys
from ralph.documents.hats.preset import Preset


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_config(text, "ralph.yml")
    return caught.value


def known_keys() -> list[tuple[str, ...]]:
    """Every key, with those of the sections."""
    keys: list[tuple[str, ...]] = []
    for name, field in Config.model_fields.items():
        keys.append((name,))
        inside = getattr(field.annotation, "model_fields", {})
        keys += [(name, one.alias or inner) for inner, one in inside.items()]
    return keys


class TestReading:
    @pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n", "---\n", "null\n"])
    def test_an_empty_file_has_the_defaults(self, text: str) -> None:
        assert parse_config(text, "ralph.yml") == Config()

    def test_values_are_used_and_the_rest_stays_default(self) -> None:
        text = "agent: scripted # mine\nlimits:\n  iterations: 3\n  cost: 2.5\nturn: {idle_minutes: 1}\npush: true\n"
        config = parse_config(text, "ralph.yml")
        assert (config.agent, config.limits.iterations, config.limits.cost, config.limits.minutes) == (
            AgentSettings(agent="scripted"),
            3,
            2.5,
            Config().limits.minutes,
        )
        assert (config.turn.idle_minutes, config.push) == (1.0, True)

    def test_a_limit_can_be_lifted(self) -> None:
        assert parse_config("limits: {iterations: null, minutes: ~}", "ralph.yml").limits.iterations is None

    def test_every_setting_says_what_it_is(self) -> None:
        for name, field in Config.model_fields.items():
            inner = getattr(field.annotation, "model_fields", None)
            assert inner or field.description, name
            assert all(setting.description for setting in (inner or {}).values()), name


class TestMisspelt:
    @pytest.mark.parametrize("key", known_keys(), ids=".".join)
    def test_a_misspelt_key_is_named_with_its_line_and_the_right_one(self, key: tuple[str, ...]) -> None:
        wrong = f"{key[-1]}x"
        if len(key) == 1:
            text, line = f"# settings\n\n{wrong}: 1\n", 3
        else:
            text, line = f"# settings\n{key[0]}:\n  # here\n  {wrong}: 1\n", 4
        message = refusal(text).what
        assert f"line {line}: `{'.'.join((*key[:-1], wrong))}` is not a setting" in message
        assert f"did you mean `{key[-1]}`?" in message

    def test_a_key_like_no_other_gets_no_guess(self) -> None:
        assert refusal("zzzzzz: 1\n").what == "line 1: `zzzzzz` is not a setting"

    def test_every_fault_is_named_at_once(self) -> None:
        error = refusal("agnet: x\nlimits:\n  iterations: 0\n  costs: 3\ncheck_timeout: soon\n")
        lines = sorted(fault.split(":")[0] for fault in error.what.splitlines())
        assert lines == ["line 1", "line 3", "line 4", "line 5"]
        assert error.where == "ralph.yml"
        assert error.outcome.exit_code == 2


class TestWrongValues:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("limits: {iterations: 0}", "limits.iterations"),
            ("limits: {iterations: -1}", "limits.iterations"),
            ("limits: {iterations: 1.5}", "limits.iterations"),
            ("limits: {iterations: many}", "limits.iterations"),
            ("limits: {minutes: 0}", "limits.minutes"),
            ("limits: {minutes: .nan}", "limits.minutes"),
            ("limits: {cost: -0.01}", "limits.cost"),
            ("limits: {tokens: 0}", "limits.tokens"),
            ("limits: 5", "limits"),
            ("limits: [1]", "limits"),
            ("turn: {minutes: 0}", "turn.minutes"),
            ("turn: {grace_seconds: -1}", "turn.grace_seconds"),
            ("permissions: everything", "permissions"),
            ("agent: [a]", "agent"),
            ("snapshots: perhaps", "snapshots"),
            ("retention: {runs: -1}", "retention.runs"),
            ("clean_room: false", "clean_room"),
            ("clean_room: {timeout: 0}", "clean_room.timeout"),
            ("clean_room: {keep: [../secret]}", "clean_room.keep"),
            ("clean_room: {setup: npm}", "clean_room.setup"),
        ],
    )
    def test_a_wrong_value_is_named_with_its_line(self, text: str, said: str) -> None:
        message = refusal(f"# first\n{text}\n").what
        assert message.startswith("line 2: ")
        assert f"`{said}`" in message

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("a: [1\n", 2),
            ("agent: x\n  bad: y\n", 2),
            ("agent: 'x\n", 2),
            ("\tagent: x\n", 1),
            ("agent: x\nagent: y\n", 2),
        ],
    )
    def test_invalid_yaml_is_named_with_its_line(self, text: str, line: int) -> None:
        error = refusal(text)
        assert "not readable as YAML" in error.what
        assert error.where == f"ralph.yml, line {line}"

    @pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "7\n", "--- a\n--- b\n", "&a [*a]\n"])
    def test_document_that_is_not_a_mapping_is_refused(self, text: str) -> None:
        refusal(text)

    @pytest.mark.parametrize(
        "text",
        [
            "agent: !!int ''\n",
            "agent: !!float ''\n",
            "agent: !!timestamp x\n",
            "agent: !!binary 'ä'\n",
            "agent: !!python/object/apply:os.system ['true']\n",
            "5: x\n",
            "? [a, b]\n: x\n",
            "? {a: b}\n: x\n",
            "~: x\n",
            "a: " + "[" * 300,
            "limits: &a {iterations: 3, more: *a}\n",
            "<<: 5\n",
            "agent: x\0y\n",
        ],
        ids=lambda text: text[:30],
    )
    def test_strange_yaml_is_refused_for_people(self, text: str) -> None:
        refusal(text)


PROSE = re.compile(
    r"(?i)input should|field required|extra inputs|value error|\bshould\b|valid (string|tuple|list|int|num|dict)"
)
"""Words of the validation library, which mean nothing to users."""
WRONG: list[Any] = ["x", "", 7, -1, 0.5, True, ["x"], [1], {"a": 1}, {"a": {"b": 1}}, None]


def list_wrong_settings(model: type[BaseModel], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Every setting of a file with every kind of value."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield from ({key: value} for value in WRONG)
        for section in find_sections(field.annotation) if depth < 2 else ():
            for inner in list_wrong_settings(section, depth + 1):
                yield {key: inner}
                yield {key: [inner]}
                yield {key: {"name": inner}}


def find_sections(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [section for one in get_args(kind) for section in find_sections(one)]


@pytest.mark.parametrize("model", [Config, Preset, UserSettings])
def test_errors_use_plain_words_for_every_setting(model: type[BaseModel]) -> None:
    said: set[str] = set()
    for values in list_wrong_settings(model):
        document = read_yaml(json.dumps(values), "ralph.yml")
        try:
            validate_keys(model, dict(document.data), document, "ralph.yml")
        except UsageError as error:
            said |= set(error.what.splitlines())
    assert len(said) > 20
    assert not [sentence for sentence in said if PROSE.search(sentence)]


def test_wrong_value_says_what_to_write() -> None:
    text = "instructions: AGENTS.md\nlimits: {iterations: ten, cost: 0}\nland: later\nagent: {model: 5}\n"
    assert refusal(text).what.splitlines() == [
        "line 1: `instructions`: it must be a list, for example `[a, b]`, not `AGENTS.md`",
        "line 2: `limits.iterations`: it must be a whole number, not `ten`",
        "line 2: `limits.cost`: it must be more than 0, not `0`",
        "line 3: `land`: it must be `ff`, `branch` or `push`, not `later`",
        "line 4: `agent.model`: it must be a text, not `5`: put it in quotes",
    ]


YAMLISH = st.text(alphabet=st.sampled_from(list("agentlimits:[]{}&*!|>-#%@`'\"\\,?0129. \n\t\x00é~=<")), max_size=50)


@settings(deadline=None, max_examples=200)
@given(st.one_of(YAMLISH, YAMLISH.map(lambda text: f"limits: {text}"), st.text(max_size=40)))
def test_every_text_is_read_or_refused(text: str) -> None:
    try:
        config = parse_config(text, "ralph.yml")
    except UsageError as error:
        assert error.what
        return
    assert isinstance(config, Config)

"""Prompts: parts in a fixed order, each within its budget, none empty and none twice; and templates of prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.errors import UsageError
from ralph.core.prompt import (
    PartSpec,
    Place,
    Prompt,
    PromptPart,
    build_prompt,
    count_tokens,
    fill_parts,
    fill_template,
    measure_parts,
)


def test_parts_that_change_least_come_first() -> None:
    prompt = build_prompt(
        [
            PromptPart("answer", "Write it.", place=Place.ANSWER),
            PromptPart("event", "What happened."),
            PromptPart("hat", "Who you are.", place=Place.ROLE),
            PromptPart("rules", "What holds.", place=Place.RUN),
        ]
    )
    assert prompt.text == "What holds.\n\nWho you are.\n\nWhat happened.\n\nWrite it.\n"
    told = prompt.with_parts(PromptPart("messages", "Use tabs.", place=Place.MESSAGES))
    assert [part.name for part in told.parts] == ["rules", "hat", "event", "messages", "answer"]


def test_part_without_text_leaves_no_heading() -> None:
    prompt = build_prompt(
        [PromptPart("lessons", " \n", heading="# Lessons"), PromptPart("task", "Do it.", heading="# Task")]
    )
    assert prompt.text == "# Task\nDo it.\n"


def test_same_part_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        Prompt.of("Do it.").with_parts(PromptPart("prompt", "Do it again."))


def test_text_over_its_budget_is_cut_at_a_line_and_says_so() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    head = PromptPart("notes", text, budget=10, source="notes.md").render()
    assert head.startswith("line 0\n") and head.endswith("characters are left out here; all of it is in `notes.md`)")
    tail = PromptPart("notes", text, budget=10, keeps_end=True).render()
    assert tail.endswith("\nline 99") and tail.splitlines()[1].startswith("line ")
    assert PromptPart("notes", "x" * 100, budget=10).render().startswith("x" * 40), "a single line is cut"


@given(st.text(), st.integers(1, 50), st.booleans())
def test_part_never_takes_more_than_its_budget_and_the_note(text: str, budget: int, keeps_end: bool) -> None:
    part = PromptPart("part", text, budget=budget, keeps_end=keeps_end)
    assert count_tokens(part.render()) <= budget + 20


def test_parts_are_measured_as_they_are_rendered() -> None:
    prompt = build_prompt([PromptPart("task", "x" * 395, "What to do.", heading="# T", budget=200)])
    (part,) = measure_parts(prompt)
    assert (part.name, part.tokens, part.budget, part.purpose) == ("task", 100, 200, "What to do.")


TEMPLATE = """You are {{role}}.

# Task
{{task}}

# Lessons
{{lessons}}

# Rules of {{role}}
Be kind.
```
# no heading
```

{{guidance}}

# Your answer
Write it.
"""
SPECS = {"rules-of": PartSpec("What holds.", Place.RUN, 100)}


def test_every_heading_is_a_part_and_an_empty_one_is_left_out() -> None:
    parts = fill_parts("actor", TEMPLATE, {"role": "a baker", "task": "Bake.", "lessons": ""}, SPECS)
    assert [(part.name, part.place) for part in parts] == [
        ("actor", Place.TURN),
        ("task", Place.TURN),
        ("rules-of", Place.RUN),
        ("your-answer", Place.ANSWER),
    ]
    prompt = build_prompt(parts)
    assert "# Lessons" not in prompt.text
    assert prompt.text.startswith("# Rules of a baker\nBe kind.\n```\n# no heading\n```\n\nYou are a baker.")
    assert prompt.parts[0].purpose == "What holds."


def test_values_keep_their_blank_lines_and_are_not_read_as_variables() -> None:
    assert fill_template("t", "{{a}}\n\n{{b}}\n\n{{c}}", {"a": "x\n\n\n\ny", "b": "", "c": "{{nonsense}}"}) == (
        "x\n\n\n\ny\n\n{{nonsense}}\n"
    )


def test_unknown_variable_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="tusk") as caught:
        fill_template("actor", "{{tusk}}", {"task": "Bake."})
    assert caught.value.todo == "known values: task"

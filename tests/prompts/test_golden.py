"""Every prompt is a file under `golden/`, and what must hold for all of them."""

import os
from functools import cache

import pytest
from golden import GOLDEN, PEER_TOKENS, Case, collect
from prompt_properties import (
    TEXT_PROPERTIES,
    find_long_sentences,
    find_missing_parts,
    find_parts_above_budget,
    find_unknown_paths,
)

from ralph.core.prompt import Prompt, PromptPart, build_prompt, measure_parts

# Building all prompts takes seconds, so one worker does it, and the names come from the files.
pytestmark = pytest.mark.xdist_group("golden")
NAMES = sorted(str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.rglob("*.md"))


@cache
def cases() -> dict[str, Case]:
    return {case.name: case for case in collect()}


def test_golden_files_are_the_prompts_of_today() -> None:
    if os.environ.get("RECORD"):
        for old in GOLDEN.rglob("*.md"):
            old.unlink()
        for case in cases().values():
            case.path.parent.mkdir(parents=True, exist_ok=True)
            case.path.write_text(case.prompt.text)
    recorded = {str(path.relative_to(GOLDEN).with_suffix("")): path.read_text() for path in GOLDEN.rglob("*.md")}
    changed = [case.name for case in cases().values() if recorded.get(case.name) != case.prompt.text]
    assert not changed, "run `make prompts`, and read the difference"
    assert set(recorded) == set(cases()), "run `make prompts`: some files belong to no case"


@pytest.mark.parametrize("name", NAMES)
def test_prompt_is_whole_plain_and_within_its_budgets(name: str) -> None:
    case = cases()[name]
    text, sizes = case.prompt.text, measure_parts(case.prompt)
    assert [fault for look in TEXT_PROPERTIES for fault in look(text)] == []
    assert find_long_sentences(text) == []
    assert find_cut_parts(case.prompt) == []
    assert find_unknown_paths(text, case.inbox, case.paths) == []
    assert find_parts_above_budget(sizes) == []
    assert find_missing_parts(text, sizes) == []
    assert sum(part.tokens for part in sizes if part.name in case.fixed) <= PEER_TOKENS // 3


def find_cut_parts(prompt: Prompt) -> list[str]:
    """The parts whose last line is not in the prompt, although nothing says that some of it is left out."""
    cut = []
    for part in prompt.parts:
        last = part.text.strip().splitlines()[-1].strip()
        if last not in prompt.text and "characters are left out here" not in part.render():
            cut.append(part.name)
    return cut


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("```\ncode", 1),
        ("<hat>\nBuild.", 1),
        ("# Task\n# Checks\nThey pass.", 1),
        ("# Task\nOne.\n\n# Task\nTwo.", 1),
        ("Read {{file}}.", 1),
        ("Do not ask the user. Run `ralph tools interact ask`.", 1),
        ("# Task\nDo it.\n```\n# no heading\n```", 0),
        ("# Task\n````\n```\n# no heading\n````", 0),
        ("  Why: the code does not yet do what the checks expect", 1),
    ],
)
def test_faults_of_a_prompt_are_found(text: str, faults: int) -> None:
    assert len([fault for look in TEXT_PROPERTIES for fault in look(text)]) == faults


def test_long_sentences_are_found() -> None:
    assert len(find_long_sentences("One " + "two " * 30 + "three. Four `five six` seven.")) == 1
    assert find_long_sentences("One " + "two " * 20 + "three.\n- " + "four " * 20) == []


def test_paths_that_do_not_exist_are_found() -> None:
    text = "Read `.ralph/turn/inbox/plan.md` and `.ralph/turn/inbox/none.md`, write `.ralph/turn/outbox/result.json`."
    assert find_unknown_paths(text, {"plan.md"}, {".ralph/turn/outbox"}) == [
        "`.ralph/turn/inbox/none.md` is not in the inbox"
    ]
    assert find_unknown_paths("See `.ralph/secret`.", (), ()) == ["`.ralph/secret` does not exist"]


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("length", range(5, 9))
def test_a_prompt_is_as_long_as_its_parts(count: int, length: int) -> None:
    prompt = build_prompt(PromptPart(f"part-{number}", "x" * length) for number in range(count))
    sizes = measure_parts(prompt)
    assert find_missing_parts(prompt.text, sizes) == []
    some = 3 * count + 8
    assert find_missing_parts("x" * (len(prompt.text) - some), sizes) == ["the prompt is shorter than its parts"]
    assert find_missing_parts("x" * (len(prompt.text) + some), sizes) == ["the prompt is longer than its parts"]

"""Criteria in a file say the same as sentences, and their faults name the place."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check, Measure
from ralph.core.errors import UsageError
from ralph.verify.criterion import Criterion, compile_criterion, compile_yaml

ANYWHERE = Path("/nonexistent")


def compiled(text: str) -> Criterion:
    return compile_yaml(text, "criteria.yml", 60.0, ANYWHERE)


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        compiled(text)
    return caught.value


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("- '`pytest -q` passes'", Check("pytest -q", 60.0)),
        ("- '`a` prints nothing'", Check("a", 60.0, silent=True)),
        ("- {run: pytest -q}", Check("pytest -q", 60.0)),
        ("- {run: pytest -q, timeout: 5}", Check("pytest -q", 5.0)),
        ("- {run: a AND b}", Check("a AND b", 60.0)),
        ("- run: |\n    first\n    second\n", Check("first\nsecond", 60.0)),
        ("- {run: a, prints: nothing}", Check("a", 60.0, silent=True)),
        ("- {run: a, metric: coverage, at_least: 80}", Check("a", 60.0, measure=Measure("coverage", ">=", 80, "%"))),
        ("- {run: a, metric: coverage, above: 80.5%}", Check("a", 60.0, measure=Measure("coverage", ">", 80.5, "%"))),
        ("- {run: a, metric: errors, equals: 0}", Check("a", 60.0, measure=Measure("errors", "==", 0))),
        (r"- {run: a, metric: '/x/ (\d+)/', below: 3}", None),
        (r"- {run: a, metric: '/x (\d+)/', below: 3}", Check("a", 60.0, measure=Measure(r"/x (\d+)/", "<", 3))),
        (r"- {run: a, metric: '/x (\d+)/', at_most: -3}", Check("a", 60.0, measure=Measure(r"/x (\d+)/", "<=", -3))),
        ("- {file: docs/a.md}", Check(timeout=60.0, path="docs/a.md")),
        ("- {file: docs/a.md, exists: true}", Check(timeout=60.0, path="docs/a.md")),
        ("- {file: notes, contains: 'a/b AND c'}", Check(timeout=60.0, path="notes", pattern=r"a\/b AND c")),
    ],
)
def test_items_are_sentences_or_mappings(item: str, expected: Check | None) -> None:
    if expected is None:
        assert "item 1 (line 1)" in refusal(item).where
        return
    found = compiled(item)
    assert found.checks == (expected,)
    assert compile_criterion(found.text, expected.timeout, ANYWHERE).checks == (expected,)


def test_items_are_joined() -> None:
    found = compiled("# all of it\n- '`a` passes AND `b`'\n- run: c | grep x\n")
    assert found.text == "`a` passes AND `b` passes AND `c | grep x` passes"
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("", "criteria.yml", "list"),
        ("[]", "criteria.yml", "list"),
        ("run: a", "criteria.yml", "list"),
        ("- {run: a\n- b", "criteria.yml, line 2", "YAML"),
        ("- {run: a}\n- it is nice", "criteria.yml, item 2 (line 2)", "it is nice"),
        ("- {run: a}\n\n- {runs: a}", "criteria.yml, item 2 (line 3)", "unknown: runs"),
        ("- 5", "criteria.yml, item 1 (line 1)", "a sentence, or a mapping"),
        ("- [a]", "criteria.yml, item 1 (line 1)", "a sentence, or a mapping"),
        ("- {}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {run: 5}", "criteria.yml, item 1 (line 1)", "text"),
        ("- {run: ''}", "criteria.yml, item 1 (line 1)", "text"),
        ("- {run: 'echo `date`'}", "criteria.yml, item 1 (line 1)", "$(...)"),
        ('- {run: "a\\0b"}', "criteria.yml, item 1 (line 1)", "null byte"),
        ("- {run: a, prints: something}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {run: a, at_least: 3}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {run: a, metric: coverage}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {run: a, metric: coverage, above: 1, below: 3}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {run: a, metric: coverage, at_least: many}", "criteria.yml, item 1 (line 1)", "number"),
        ("- {run: a, metric: coverage, at_least: true}", "criteria.yml, item 1 (line 1)", "number"),
        ("- {run: a, metric: coverage, at_least: .nan}", "criteria.yml, item 1 (line 1)", "number"),
        ("- {run: a, metric: niceness, at_least: 3}", "criteria.yml, item 1 (line 1)", "niceness"),
        ("- {metric: errors, at_most: 3}", "criteria.yml, item 1 (line 1)", "which command"),
        ("- {run: a, file: b}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {file: a, exists: false}", "criteria.yml, item 1 (line 1)", "what to verify"),
        ("- {file: ../a}", "criteria.yml, item 1 (line 1)", "out of the workspace"),
        ("- {file: my notes}", "criteria.yml, item 1 (line 1)", "spaces"),
        ("- {file: a, contains: '('}", "criteria.yml, item 1 (line 1)", "not a valid regular expression"),
        ("- {run: a, timeout: 0}", "criteria.yml, item 1 (line 1)", "seconds"),
        ("- {run: a, timeout: .inf}", "criteria.yml, item 1 (line 1)", "seconds"),
        ("- {run: a, timeout: soon}", "criteria.yml, item 1 (line 1)", "seconds"),
    ],
)
def test_faults_name_the_place_and_what_to_write(text: str, where: str, said: str) -> None:
    error = refusal(text)
    assert error.where == where
    assert said in str(error)
    assert error.todo


@settings(deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.text(alphabet="-{}[]:,'\"&*! \nrunfilea1%?|>", max_size=40).map(lambda text: "- " + text),
    )
)
def test_every_text_is_compiled_or_refused(text: str) -> None:
    try:
        assert compiled(text).checks
    except UsageError as error:
        assert error.where.startswith("criteria.yml")

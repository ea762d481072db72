"""The files that agents share: read whatever is in them, lose nothing of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.documents.agent.events import (
    dump_json,
    find_topic_fault,
    load_json,
    parse_events,
    render_event,
    topic_matches,
)
from ralph.documents.agent.notes import (
    MEMORY_SECTIONS,
    Memory,
    add_decision,
    add_memory,
    fit_memories,
    parse_decisions,
    parse_memories,
    remove_memory,
    render_memories,
    renumber_decisions,
    search_memories,
)
from ralph.documents.agent.tasks import CLOSED, FAILED, IN_PROGRESS, OPEN, AgentTasks, render_new_task

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=10,
)
LINES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1).filter(str.strip)


def row(id: str, **more: object) -> dict[str, object]:
    fields = {"description": "", "key": "", "priority": 3, "blocked_by": [], "run": "r1", **more}
    return render_new_task(id, id.upper(), "2026-11-16T09:00:00+00:00", **fields)  # type: ignore[arg-type]


def tasks(*rows: dict[str, object]) -> AgentTasks:
    return AgentTasks.parse("".join(json.dumps(one) + "\n" for one in rows).encode())


class TestJson:
    @given(ANY_JSON)
    def test_json_is_read_and_written_like_the_standard_module(self, value: object) -> None:
        assert load_json(json.dumps(value)) == value
        assert dump_json(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        assert dump_json(value, indent=2) == json.dumps(value, indent=2, ensure_ascii=False)

    @pytest.mark.parametrize(
        "text", ["", "{", '{"a"', '{"a": }', "tru", "NaN", "Infinity", "[1,]", "1 2", "'a'", "[" * 9999]
    )
    def test_invalid_json_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            load_json(text)

    def test_json_that_is_nested_too_deep_is_refused(self) -> None:
        with pytest.raises(ValueError, match="deep"):
            load_json("[" * 200 + "]" * 200)
        assert load_json("[" * 90 + "]" * 90)
        assert load_json(json.dumps([[]] * 500)) == [[]] * 500


class TestTasks:
    def test_the_last_line_of_an_id_holds_and_unknown_fields_stay(self) -> None:
        found = tasks({**row("a"), "owner": "me"}, row("b"), {**row("a"), "status": CLOSED, "owner": {"x": [1]}})
        assert [task.id for task in found.all] == ["a", "b"]
        again = AgentTasks.parse(found.render())
        assert again.by_id["a"].status == CLOSED
        assert again.by_id["a"].row["owner"] == {"x": [1]}

    def test_a_broken_line_is_named_and_stops_nothing(self) -> None:
        lines = [json.dumps(row("a")), '{"id": "b", "stat', "[]", '{"id": "c"}', "", json.dumps(row("d"))]
        found = AgentTasks.parse("\n".join(lines).encode() + b"\n\xff\xfe\n")
        assert [task.id for task in found.all] == ["a", "d"]
        assert [number for number, _, _ in found.broken] == [2, 3, 4, 7]
        assert all(why for _, why, _ in found.broken)

    def test_a_file_of_the_peer_reads(self) -> None:
        line = (
            '{"id":"task-1737372000-a1b2","title":"T","status":"in_progress","priority":2,"blocked_by":[],'
            '"loop_id":"primary-20260120-100000","created":"2026-01-20T10:00:00.123456789+00:00",'
            '"started":"2026-01-20T10:00:01+00:00","transitions":[{"from":"open","to":"in_progress"}]}'
        )
        (task,) = AgentTasks.parse(line.encode()).all
        assert (task.status, task.priority, task.run, task.key) == (IN_PROGRESS, 2, "primary-20260120-100000", "")
        assert json.loads(AgentTasks.parse(line.encode()).render()) == json.loads(line)

    def test_ready_is_what_is_open_and_waits_for_nothing_the_most_urgent_first(self) -> None:
        found = tasks(
            row("a"),
            row("b", blocked_by=["a"]),
            row("c", priority=1),
            row("d", blocked_by=["gone"]),
            row("e", run="r2"),
        )
        assert [task.id for task in found.ready("r1")] == ["c", "a"]
        assert [task.id for task in found.ready()] == ["c", "a", "e"]
        found.by_id["a"].become(FAILED, "t")
        assert found.waits_for(found.by_id["b"]) == ("a",)
        found.by_id["a"].become(CLOSED, "t")
        assert "b" in [task.id for task in found.ready("r1")]
        assert [task.id for task in found.list_unfinished("r1")] == ["b", "c", "d"]

    def test_blockers_may_be_keys_of_the_same_run(self) -> None:
        found = tasks(row("old", key="k", run="r0"), row("new", key="k"), row("b", blocked_by=["k"]))
        found.by_id["old"].become(CLOSED, "t")
        assert found.waits_for(found.by_id["b"]) == ("k",)
        assert found.find("k", "r1") is found.by_id["new"]

    def test_a_key_of_an_earlier_run_is_not_this_runs(self) -> None:
        found = tasks(row("old", key="k", run="r0"))
        assert found.find_by_key("k", "r1") is None
        assert found.find_by_key("k", "r0") is found.by_id["old"]

    def test_a_status_keeps_its_times(self) -> None:
        task = tasks(row("a")).by_id["a"]
        task.become(IN_PROGRESS, "t1")
        task.become(CLOSED, "t2")
        assert (task.row["started"], task.closed) == ("t1", "t2")
        task.become(OPEN, "t3")
        task.become(IN_PROGRESS, "t4")
        assert (task.row["started"], task.closed) == ("t1", "")

    def test_a_circle_of_blockers_is_found(self) -> None:
        found = tasks(row("a", blocked_by=["c"]), row("b", blocked_by=["a"]), row("c", blocked_by=["x", "b"]))
        assert found.circle(found.by_id["a"]) == ["a", "c", "b", "a"]
        alone = tasks(row("a", blocked_by=["a"]))
        assert alone.circle(alone.by_id["a"]) == ["a", "a"]
        straight = tasks(row("a", blocked_by=["b"]), row("b", blocked_by=["c"]), row("c"))
        assert straight.circle(straight.by_id["a"]) == []


PEER = """# Memories

Some words that a person wrote.

## Patterns

### mem-1737372000-a1b2
> Uses barrel exports
>
> in every package
<!-- tags: imports, structure | created: 2025-01-20 -->

## Fixes

### mem-1737372200-e5f6
> ECONNREFUSED means: start docker
<!-- tags: docker | created: 2025-01-21 | by: hand -->

### mem-broken
no quote here

## Notes of ours

Nothing to do with memories.
"""


class TestMemories:
    def test_the_file_of_the_peer_reads_with_its_blank_lines(self) -> None:
        first, second = parse_memories(PEER)
        assert (first.id, first.kind, first.tags) == ("mem-1737372000-a1b2", "pattern", ("imports", "structure"))
        assert first.content == "Uses barrel exports\n\nin every package"
        assert (second.kind, second.tags, second.created) == ("fix", ("docker",), "2025-01-21")

    def test_a_new_one_is_the_first_of_its_section_and_nothing_else_changes(self) -> None:
        new = Memory("mem-1-0000", "fix", "a\nb", ("x",), "2026-11-16")
        text = add_memory(PEER, new)
        assert [memory.id for memory in parse_memories(text)] == [
            "mem-1737372000-a1b2",
            "mem-1-0000",
            "mem-1737372200-e5f6",
        ]
        assert remove_memory(text, "mem-1-0000") == PEER
        assert "by: hand" in text
        assert "Some words that a person wrote." in text

    def test_a_heading_may_be_written_otherwise(self) -> None:
        text = add_memory("## FIXES \n", Memory("mem-1-0000", "fix", "a", (), "2026-11-16"))
        assert text.lower().count("## fixes") == 1

    def test_a_section_that_is_not_there_is_made(self) -> None:
        text = add_memory("# Memories\n", Memory("mem-1-0000", "context", "a", (), "2026-11-16"))
        assert [memory.kind for memory in parse_memories(text)] == ["context"]
        assert parse_memories(add_memory("", parse_memories(text)[0]))[0].row() == parse_memories(text)[0].row()

    @given(
        st.lists(st.tuples(st.sampled_from([*MEMORY_SECTIONS]), st.lists(LINES, min_size=1, max_size=3)), max_size=5)
    )
    def test_stored_memories_are_read_back(self, told: list[tuple[str, list[str]]]) -> None:
        text = ""
        for number, (kind, lines) in enumerate(told):
            text = add_memory(
                text, Memory(f"mem-{number}-0000", kind, "\n".join(lines).strip(), ("a", "b"), "2026-11-16")
            )
        found = {memory.id: memory for memory in parse_memories(text)}
        for number, (kind, lines) in enumerate(told):
            memory = found[f"mem-{number}-0000"]
            wanted = "\n".join(line.rstrip() for line in "\n".join(lines).strip().split("\n"))
            assert (memory.kind, memory.content, memory.tags) == (kind, wanted, ("a", "b"))
        for id in list(found):
            text = remove_memory(text, id)
        assert parse_memories(text) == []

    def test_the_budget_takes_the_newest_whole_ones(self) -> None:
        all_of_them = [Memory(f"mem-{n}-0000", "fix", "x" * 100, (), f"2026-11-{n + 1:02d}") for n in range(20)]
        chosen = fit_memories(all_of_them, 200)
        assert [memory.id for memory in chosen] == [memory.id for memory in all_of_them[-len(chosen) :]]
        assert 0 < len(chosen) < 20
        assert len(render_memories(chosen)) <= 200 * 4
        assert fit_memories(all_of_them, 0) == all_of_them
        large = Memory("mem-99-0000", "fix", "x" * 5000, (), "2026-12-01")
        assert fit_memories([large, *all_of_them], 200) == chosen

    def test_search_finds_words_in_any_order_and_ranks_them(self) -> None:
        stored = [
            Memory("1", "fix", "The database connection needs docker", ("db",), "2026-01-01"),
            Memory("2", "fix", "Use the connection pool", (), "2026-01-02"),
            Memory("3", "pattern", "Errors are values", ("docker", "errors"), "2026-01-03"),
            Memory("4", "pattern", "Nothing of that", (), "2026-01-04"),
        ]
        assert search_memories(stored, "docker connection")[0].id == "1"
        assert {memory.id for memory in search_memories(stored, "DOCKER connection")} == {"1", "2", "3"}
        assert search_memories(stored, "connection pool")[0].id == "2"
        assert {memory.id for memory in search_memories(stored, "dock")} == {"1", "3"}
        assert search_memories(stored, "zebra") == []


BY_HAND = """# Decisions

## DEC-001 — Use SQLite
- **Confidence:** 65
- **Alternatives:** Postgres
- **Reasoning:** no server; see DEC-002

### DEC-002: Keep the old flag
Confidence: 40
Reversibility: easy
"""


class TestDecisions:
    def test_entries_of_any_form_are_read(self) -> None:
        first, second = parse_decisions(BY_HAND)
        assert (first.id, first.title, first.fields["confidence"]) == ("DEC-001", "Use SQLite", "65")
        assert (second.id, second.fields["reversibility"]) == ("DEC-002", "easy")

    def test_a_new_one_has_the_next_number(self) -> None:
        text, decision = add_decision(BY_HAND, "Take\nthe third", {"confidence": "70", "reasoning": "a\nb"})
        assert decision.id == "DEC-003"
        assert text.startswith(BY_HAND.rstrip())
        assert parse_decisions(text)[2].row() == {
            "id": "DEC-003",
            "decision": "Take the third",
            "confidence": "70",
            "reasoning": "a b",
        }
        assert parse_decisions(add_decision("", "x", {})[0])[0].id == "DEC-001"

    def test_decisions_with_the_same_number_are_renumbered(self) -> None:
        text = BY_HAND + "\n## DEC-002: another\n- Reasoning: DEC-002 replaces DEC-001\n\n## DEC-009: far\n"
        found = parse_decisions(renumber_decisions(text))
        assert [decision.id for decision in found] == ["DEC-001", "DEC-002", "DEC-010", "DEC-009"]
        assert found[2].fields["reasoning"] == "DEC-010 replaces DEC-001"
        new, decision = add_decision(text, "next", {})
        assert decision.id == "DEC-011"
        assert renumber_decisions(new) == new
        assert renumber_decisions(BY_HAND) == BY_HAND
        assert renumber_decisions("") == ""


class TestEvents:
    def test_complete_lines_are_read_and_the_last_part_stays(self) -> None:
        data = (
            render_event("a.b", {"x": 1}, "t", wave_id="w")
            + b"nonsense\n"
            + b'{"topic": "c"}\n\n'
            + b'{"topic": "d", "pay'
        )
        found, broken, size = parse_events(data)
        assert [event.topic for event in found] == ["a.b", "c"]
        assert found[0].row["wave_id"] == "w"
        assert [number for number, _, _ in broken] == [2]
        rest = data[size:] + b'load": "x"}\n'
        assert [event.payload for event in parse_events(rest)[0]] == ["x"]

    @given(st.binary())
    def test_any_bytes_are_read_and_cut_anywhere_nothing_is_lost_or_doubled(self, noise: bytes) -> None:
        data = noise.replace(b"\n", b"") + b"\n" + b"".join(render_event("t", n, "t") for n in range(5))
        for cut in range(len(data) - 80, len(data)):
            _, _, size = parse_events(data[:cut])
            first, second = parse_events(data[:size])[0], parse_events(data[size:])[0]
            assert [event.payload for event in [*first, *second]][-5:] == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("topic", ["", "a..b", ".a", "a b", "a\n", "*", "a.*", "x" * 201, "a/b", '"'])
    def test_a_topic_that_cannot_be_one_is_refused(self, topic: str) -> None:
        assert find_topic_fault(topic)

    @pytest.mark.parametrize("topic", ["LOOP_COMPLETE", "build.done", "human.guidance.ack", "a-b.c_d", "prüfung.ok"])
    def test_topics(self, topic: str) -> None:
        assert find_topic_fault(topic) == ""

    def test_patterns(self) -> None:
        assert topic_matches("*", "a.b.c")
        assert topic_matches("build.*", "build.done")
        assert not topic_matches("build.*", "build")
        assert not topic_matches("build.*", "build.task.done")
        assert topic_matches("*.done", "build.done")

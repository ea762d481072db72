"""What a session learned, and how it is merged into what was known."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.documents.session.knowledge import KnowledgeMerge, merge_knowledge


def page(at: str, *sections: str, title: str = "Title") -> str:
    front = f"---\ncategory: how-to\nstaged_at: {at}\n---\n\n" if at else ""
    return f"{front}# {title}\n" + "".join(f"\n## {name}\n\n{name} body.\n" for name in sections)


OLD, NEW = "2026-02-10T10:00:00Z", "2026-02-11T10:00:00+07:00"


class TestMerging:
    def test_new_page_is_copied(self) -> None:
        one = page(NEW, "A")
        assert merge_knowledge({"a.md": one}, {"b.md": page(OLD, "B")}) == KnowledgeMerge(
            {"a.md": one}, {"a.md": "copied"}
        )

    def test_of_the_same_name_the_newer_stays(self) -> None:
        old, new = page(OLD, "A"), page(NEW, "A", "B")
        assert merge_knowledge({"a.md": new}, {"a.md": old}) == KnowledgeMerge({"a.md": new}, {"a.md": "overwritten"})
        assert merge_knowledge({"a.md": old}, {"a.md": new}) == KnowledgeMerge({}, {"a.md": "skipped"})
        assert merge_knowledge({"a.md": new}, {"a.md": new}) == KnowledgeMerge({}, {"a.md": "skipped"})

    def test_unsendable_notification_is_named_and_nothing_is_lost(self) -> None:
        found = merge_knowledge({"a.md": page("", "A", "B")}, {"a.md": page(OLD, "A")})
        assert (found.files, found.done) == ({}, {"a.md": "skipped"})
        assert found.conflicts == ("a.md: both differ, and Ralph cannot tell which is newer; the old one was kept",)

    def test_only_missing_sections_are_added(self) -> None:
        target = page(OLD, "A", "B", "C")
        found = merge_knowledge({"new.md": page(NEW, "A", "B", "D")}, {"other.md": page(OLD, "X"), "old.md": target})
        assert found == KnowledgeMerge({"old.md": target + "\n## D\n\nD body.\n"}, {"new.md": "merged into old.md"})

    def test_half_of_the_headings_is_not_enough(self) -> None:
        assert merge_knowledge({"n.md": page(NEW, "A", "B")}, {"o.md": page(OLD, "A", "C")}).done == {"n.md": "copied"}

    def test_newer_section_wins_a_conflict_and_the_conflict_is_named(self) -> None:
        target, source = page(OLD, "A", "B"), page(NEW, "A", "B").replace("A body", "A better body")
        found = merge_knowledge({"n.md": source}, {"o.md": target})
        assert found.files == {"o.md": target.replace("A body", "A better body")}
        assert found.conflicts == ("n.md and o.md: `A` differs; the newer was taken",)
        back = merge_knowledge({"n.md": target.replace("A body", "A worse body")}, {"o.md": page(NEW, "A", "B")})
        assert (back.files, back.conflicts) == ({}, ("n.md and o.md: `A` differs; the newer was kept",))

    def test_nested_sections_are_added_below_their_parent(self) -> None:
        source = "# T\n## A\nsame\n### A1\none\n### A2\ntwo\n"
        found = merge_knowledge({"n.md": source}, {"o.md": "# T\n## A\nsame\n### A1\none\n\n## B\nb\n"})
        assert found.files == {"o.md": "# T\n## A\nsame\n### A1\none\n\n### A2\ntwo\n\n## B\nb\n"}
        assert found.conflicts == ()

    def test_two_sources_meet_in_one_target(self) -> None:
        found = merge_knowledge({"a.md": page(NEW, "A", "B", "C"), "b.md": page(NEW, "A", "B", "D")}, {})
        assert found.done == {"a.md": "copied", "b.md": "merged into a.md"}
        assert "## D" in found.files["a.md"] and "## C" in found.files["a.md"]

    files = st.dictionaries(
        st.sampled_from(["a.md", "b.md", "c.md"]),
        st.builds(
            page, st.sampled_from(["", OLD, NEW]), st.sampled_from("ABC"), st.sampled_from("CDE"), title=st.just("T")
        )
        | st.text(max_size=30),
        max_size=3,
    )

    @settings(max_examples=150, deadline=None)
    @given(files, files)
    def test_merging_keeps_every_heading_and_is_idempotent(
        self, sources: dict[str, str], targets: dict[str, str]
    ) -> None:
        found = merge_knowledge(sources, targets)
        assert found.done.keys() == sources.keys()
        after = {**targets, **found.files}
        assert merge_knowledge(sources, after).files == {}
        for name, how in found.done.items():
            if how.startswith("merged"):
                assert all(
                    line in after[how.removeprefix("merged into ")]
                    for line in sources[name].split("\n")
                    if line.startswith("##")
                )

"""What a turn hands over: documents whole, and of lines as many as there may be."""

import json
from pathlib import Path

from ralph.core.prompt import Prompt
from ralph.core.turns import TurnRequest
from ralph.documents.hats.definition import HatsSettings
from ralph.workflows.hats.events import read_events
from ralph.workspace.turn_files import read_documents, read_outbox


def test_the_first_events_of_a_too_large_file_count_and_the_cut_is_reported(tmp_path: Path) -> None:
    first = json.dumps({"topic": "work.done", "payload": "x", "ts": "t"})
    more = json.dumps({"topic": "noise", "payload": "y" * 1000, "ts": "t"})
    (tmp_path / "events.jsonl").write_text("\n".join([first, *[more] * 1200]) + "\n")
    (tmp_path / "large.md").write_text("z" * (1 << 21))
    found = read_documents(tmp_path, ("*.jsonl", "*.md"))
    assert list(found) == ["events.jsonl"]
    taken = read_events(HatsSettings(), None, found["events.jsonl"], "")
    assert taken.events[0].topic == "work.done"
    assert any("the file is too large" in told for told in taken.refused)


def test_ignored_documents_are_named(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox"
    (outbox / "tasks").mkdir(parents=True)
    for number in range(700):
        (outbox / "tasks" / f"task-{number}.md").write_text(f"# {number}\n")
    (outbox / "tasks" / "large.md").write_text("z" * (1 << 21))
    (tmp_path / "secret.md").write_text("a secret\n")
    (outbox / "tasks" / "link.md").symlink_to(tmp_path / "secret.md")
    (outbox / "plan").mkdir()
    request = TurnRequest("plan:1", "planner", Prompt.of(""), outputs=("tasks/*.md", "pla*"))
    taken, left = read_outbox(outbox, request)
    assert (len(taken), taken["tasks/task-699.md"]) == (700, "# 699\n")
    assert left == ("tasks/large.md", "tasks/link.md")

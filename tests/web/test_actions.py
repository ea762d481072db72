"""What the user does on the page reaches the run, and the journal says who did it."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from web_server import Server, make_project, project_name, serving

SESSION_AGENT = Path(__file__).parents[1] / "cli" / "session_agent.py"

LISTENS = """
turns:
  - when: {turn: 1}
    steps:
      - say: I am looking.
      - write: {path: value.txt, content: "one\\nTWO\\nthree\\n"}
      - listen: {seconds: 60}
      - answer: {status: partial, summary: Changed a line.}
  - when: {turn: ">=2"}
    steps:
      - write: {path: value.txt, content: "one\\nTWO\\nthree\\nright\\n"}
      - answer: {status: done, summary: Done.}
"""
ASKS = """
turns:
  - steps:
      - run: '"$RALPH_BIN" tools interact ask "Round per line, or once?" --options "per line|once" --timeout 60'
      - write: {path: value.txt, content: "right\\n"}
      - answer: {status: done, summary: Done.}
"""
WAITS = """
turns:
  - steps:
      - write: {path: value.txt, content: "wrong\\n"}
      - answer: {status: partial, summary: Not yet.}
"""


def is_writing(view: dict) -> bool:
    return bool(view["turns"] and (view["turns"][0]["activity"] or {}).get("events", 0) >= 2)


def test_page_shows_who_received_a_steer(server: Server) -> None:
    key = server.start_loop(LISTENS)
    server.wait_for(key, is_writing)
    sent = server.post(f"/api/runs/{key}/signals", {"type": "STEER", "text": "use <b>httpx</b>"})
    assert sent.status == 200, sent.text
    view = server.wait_for(key, lambda view: view["signals"] and view["signals"][0]["receipts"])
    [signal] = view["signals"]
    assert signal["message"] == "use <b>httpx</b>"
    acks = view["display"]["signals"][signal["id"]]
    assert acks[0][2].startswith("Received by turn ")
    taken = next(line for line in server.journal(key) if line["type"] == "signal.accepted")
    assert taken["signal"]["by"] == "web:owner"
    server.wait_for(key, lambda view: not view["alive"])


CHANGES_TWICE = """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: value.txt, content: "one\\nTWO\\nthree\\n"}
      - answer: {status: partial, summary: Changed a line.}
  - when: {turn: 2}
    steps:
      - write: {path: value.txt, content: "one\\nTwo\\nthree\\n"}
      - answer: {status: partial, summary: Changed it again.}
  - when: {turn: 3}
    steps:
      - say: I am looking.
      - listen: {seconds: 60}
      - answer: {status: partial, summary: Nothing.}
  - steps:
      - write: {path: value.txt, content: "right\\n"}
      - answer: {status: done, summary: Done.}
"""


def test_comments_on_a_line_reach_the_next_prompt_with_path_line_and_hunk(server: Server) -> None:
    key = server.start_loop(CHANGES_TWICE)
    server.wait_for(key, lambda view: len(view["turns"]) == 3 and (view["turns"][2]["activity"] or {}).get("events"))
    quoted = {"path": "value.txt", "line": 2, "side": "new", "hunk": " one\n-two\n+Two\n three", "marks": [2]}
    removed = {"path": "value.txt", "line": 2, "side": "old", "hunk": "-two", "text": "Keep this."}
    # The user read the changes of the first turn, and the second one changed the line again.
    earlier = {"path": "value.txt", "line": 2, "hunk": " one\n-two\n+TWO", "marks": [2], "text": "Not in capitals."}
    bare = {"path": "check.py", "line": 1, "text": "No quote."}
    items = [quoted | {"text": "Why upper case?\nSay it."}, removed, earlier, bare]
    sent = server.post(f"/api/runs/{key}/comments", {"items": items})
    assert (sent.status, sent.data.get("comments")) == (200, 4), sent.text
    view = server.wait_for(key, lambda view: view["signals"] and view["signals"][0]["receipts"])
    assert [(one["path"], one["line"], one["side"], one["text"]) for one in view["comments"]] == [
        ("value.txt", 2, "new", "Why upper case?\nSay it."),
        ("value.txt", 2, "old", "Keep this."),
        ("value.txt", 2, "new", "Not in capitals."),
        ("check.py", 1, "new", "No quote."),
    ]
    server.wait_for(key, lambda view: len(view["turns"]) > 3 and not view["alive"])
    prompt = server.get(f"/api/runs/{key}/turns/4/prompt").data["text"]
    for words in ("`value.txt`, line 2", ">>+Two", "Why upper case?", "removed line 2", "Keep this.", ">>+TWO"):
        assert words in prompt
    assert ">> import sys" in prompt, "the engine quotes the lines of a comment without a quote"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ({"path": "value.txt", "line": 99}, "value.txt has 1 line, so there is no line 99"),
        ({"path": "value.txt", "line": 1, "last_line": 4}, "there is no line 4"),
        ({"path": "value.txt", "line": 4, "side": "old"}, "value.txt has 3 lines"),
        ({"path": "nothing.txt", "line": 1}, "there is no file 'nothing.txt'"),
        ({"path": "value.txt", "line": 1, "hunk": "+never there", "marks": [0]}, "is not what was quoted"),
        ({"path": "value.txt", "line": 99, "hunk": "+wrong", "marks": [0]}, "there is no line 99"),
        ({"path": "value.txt", "line": 2, "side": "old", "hunk": "-one"}, "is not what was quoted"),
        ({"path": "value.txt", "line": 1, "hunk": "-one"}, "is not what was quoted"),
    ],
)
def test_a_comment_on_lines_that_do_not_exist_is_refused(server: Server, place: dict, what: str) -> None:
    server.stopped = server.stopped or server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(server.stopped, lambda view: not view["alive"])
    good = {"path": "value.txt", "line": 1, "text": "This one is right."}
    refused = server.post(f"/api/runs/{server.stopped}/comments", {"items": [good, place | {"text": "x"}]})
    assert (refused.status, what in refused.error["what"]) == (400, True), refused.text
    assert server.view(server.stopped)["signals"] == [], "none of them is sent"


def test_an_answer_is_given_in_place(server: Server) -> None:
    key = server.start_loop(ASKS)
    view = server.wait_for(key, lambda view: view["needs"])
    [need] = view["needs"]
    assert (need["kind"], need["options"]) == ("question", ["per line", "once"])
    row = next(row for row in server.get("/api/runs").data["rows"] if row["key"] == key)
    assert (row["group"], row["need_labels"][0][1]) == ("needs you", "Question")
    answered = server.post(f"/api/runs/{key}/answers", {"question": need["id"], "text": "once"})
    assert answered.status == 200, answered.text
    again = server.post(f"/api/runs/{key}/answers", {"question": need["id"], "text": "per line"})
    assert again.status == 400
    server.wait_for(key, lambda view: not view["alive"])
    line = next(line for line in server.journal(key) if line["type"] == "question.answered")
    assert (line["answer"], line["by"]) == ("once", "web:owner")


def test_undo_needs_the_passphrase_and_is_journaled_with_who_did_it(server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    assert (server.root / "value.txt").read_text() == "wrong\n"
    refused = server.post(f"/api/runs/{key}/undo", {})
    assert (refused.status, refused.error["code"]) == (403, "passphrase")
    assert server.post("/api/unlock", {"passphrase": "wrong"}).status == 403
    assert (server.root / "value.txt").read_text() == "wrong\n"
    server.unlock()
    try:
        done = server.post(f"/api/runs/{key}/undo", {}, headers={"Idempotency-Key": "a"})
        assert (done.status, done.data["files"]) == (200, ["value.txt"])
        assert server.post(f"/api/runs/{key}/undo", {}, headers={"Idempotency-Key": "a"}).data == done.data
    finally:
        server.proof = ""
    assert (server.root / "value.txt").read_text() == "one\ntwo\nthree\n"
    [action] = server.view(key)["actions"]
    assert (action["id"], action["by"]) == (done.data["action"], "web:owner")
    assert action["result"] == "undid turn 1 (implementer): 1 file written"


CHANGES_CHECK = """
turns:
  - steps:
      - patch: {path: check.py, find: "'right' not in", replace: "'two' not in"}
      - answer: {status: done, summary: The check asks for what is there.}
"""
PROOF_ONLY = ("--require", "proven", "--may-change", "check.py")


def test_unproven_work_is_accepted_with_the_passphrase_and_a_reason(tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state") as server:
        key = server.start_loop(CHANGES_CHECK, *PROOF_ONLY)
        view = server.wait_for(key, lambda view: not view["alive"])
        assert [(need["kind"], need["options"]) for need in view["needs"]] == [("unproven", ["accept"])]
        assert view["display"]["grade"][1] == "Unproven"
        refused = server.post(f"/api/runs/{key}/accept", {"text": "I read it"})
        assert (refused.status, refused.error["code"]) == (403, "passphrase")
        server.unlock()
        empty = server.post(f"/api/runs/{key}/accept", {"text": " "})
        assert (empty.status, empty.error["where"]) == (400, "text")
        done = server.post(f"/api/runs/{key}/accept", {"text": "I read <b>it</b>"})
        assert done.status == 200, done.text
        view = server.wait_for(key, lambda view: view["state"] == "success" and not view["alive"])
        assert (view["display"]["grade"][1], len(view["turns"])) == ("Accepted", 1)
        [action] = view["actions"]
        assert (action["id"], action["by"]) == (done.data["action"], "web:owner")
        assert "web:owner" in view["ended"]["evidence"]["reason"]
        assert "I read <b>it</b>" in view["ended"]["evidence"]["reason"]
        assert server.get("/api/runs").data["rows"][0]["label"][1] == "Accepted"
        again = server.post(f"/api/runs/{key}/accept", {"text": "again"})
        assert (again.status, len(server.view(key)["actions"])) == (400, 1)


def test_journal_page_and_schema_of_a_run_can_be_fetched(server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    journal = server.journal(key)
    found = server.get(f"/api/runs/{key}/journal?from=2&to=4").data
    assert (found["lines"], found["next"]) == (journal[1:4], None)
    [ended] = server.get(f"/api/runs/{key}/journal?type=run.ended").data["lines"]
    assert ended == journal[-1]
    assert server.get(f"/api/runs/{key}/journal?from=x").status == 400
    page = server.get(f"/api/export/{key}.html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "<script" not in page.text and key.partition("@")[0] in page.text
    assert "headline" in server.get("/api/schema").data["properties"]


def test_escapes_and_changes_of_direction_do_nothing_in_any_text(server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1", task="Make \u202eit \x1b[2J\x1b[31mpass\x1b[0m")
    view = server.wait_for(key, lambda view: not view["alive"])
    row = next(row for row in server.get("/api/runs").data["rows"] if row["key"] == key)
    assert (view["run"]["task"], row["task"]) == ("Make ⟨U+202E⟩it pass",) * 2


def test_documents_of_a_run_can_be_read_and_nothing_else(server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    run = key.partition("@")[0]
    listed = {one["path"]: one["size"] for one in server.get(f"/api/runs/{key}/documents").data["documents"]}
    state = f".aiwg/ralph/loops/{run}/state.json"
    report = next(path for path in listed if "completion-" in path)
    assert state in listed and all(run in path or path == report for path in listed)
    found = server.get(f"/api/runs/{key}/documents/{report}").data
    assert (found["size"], found["next"], "Make it pass" in found["text"]) == (listed[report], None, True)
    (server.root / ".aiwg" / "ralph" / "loops" / run / "link.md").symlink_to(server.root / "check.py")
    for path in (
        "check.py",
        ".ralph/runs",
        f".ralph/runs/{run}/run.json",
        f".aiwg/ralph/loops/{run}/../../../../check.py",
        f".aiwg/ralph/loops/{run}/%2e%2e/%2e%2e/%2e%2e/%2e%2e/check.py",
        f".aiwg/ralph/loops/{run}/link.md",
        "/etc/passwd",
    ):
        assert server.get(f"/api/runs/{key}/documents/{path}").status == 404, path


WRITES = "sh -c 'cat > /dev/null; echo right >> value.txt'"


def test_a_run_is_planned_agreed_to_and_started(tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state") as server:
        assert server.get("/api/me").data["can_start"]
        project = server.get("/api/me").data["projects"][0]["key"]
        options = {"until": "`python3 -B check.py` passes", "agent_command": WRITES, "max_iterations": 2}
        body = {"project": project, "task": "Make it <b>right</b>", "options": options}
        plan = server.post("/api/runs", body).data
        assert [one["command"] for one in plan["checks"]] == ["python3 -B check.py"]
        assert plan["worst_case"].startswith("2 iterations") and "Make it <b>right</b>" in plan["prompt"]
        consent = plan["consent"]
        assert consent["is_required"] and "echo right" in consent["items"][0]["text"]
        assert server.get("/api/runs").data["rows"] == [], "a plan starts nothing"

        start = {**body, "dry_run": False, "consent": consent["digest"]}
        refused = server.post("/api/runs", start)
        assert (refused.status, refused.error["code"]) == (403, "passphrase")
        server.unlock()
        refused = server.post("/api/runs", {**start, "consent": ""})
        assert (refused.status, refused.error["where"]) == (400, "consent")
        other = {**options, "agent_command": "sh -c 'touch other'"}
        refused = server.post("/api/runs", {**start, "options": other})
        assert (refused.status, refused.error["where"]) == (400, "consent"), "the user agreed to another agent"
        assert server.get("/api/runs").data["rows"] == []

        started = server.post("/api/runs", start, headers={"Idempotency-Key": "one"})
        assert started.status == 200, started.text
        assert server.post("/api/runs", start, headers={"Idempotency-Key": "one"}).data == started.data
        view = server.wait_for(started.data["key"], lambda view: not view["alive"])
        assert (view["state"], view["run"]["by"]) == ("success", "web:owner")
        assert not server.post("/api/runs", body).data["consent"]["is_required"]
        assert len(server.get("/api/runs").data["rows"]) == 1


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"project": "nowhere"}, 404, "project"),
        ({"project": ""}, 400, "project"),
        ({"task": " "}, 400, "empty"),
        ({"workflow": "dance"}, 400, "workflow"),
        ({"dry_run": "no"}, 400, "dry_run"),
        ({"options": ["x"]}, 400, "options"),
        ({"options": {"until": "it is nice"}}, 400, "cannot verify"),
        ({"options": {"until": "@/etc/passwd"}}, 400, "reads a file"),
        ({"options": {"scenario": "x.yaml"}}, 400, "reads a file"),
        ({"options": {"max_iterations": "many"}}, 400, "max_iterations"),
        ({"options": {"explode": True}}, 400, "no option explode"),
    ],
)
def test_a_wrong_request_for_a_run_is_refused(server: Server, change: dict, status: int, word: str) -> None:
    body = {"project": project_name(server.root), "task": "Make it", "options": {"until": "`true`"}}
    refused = server.post("/api/runs", {**body, **change})
    assert (refused.status, word in refused.error["what"] + refused.error["where"]) == (status, True), refused.text


def test_a_server_for_one_run_shows_only_that_run_and_ends_with_it(tmp_path: Path) -> None:
    root, state = make_project(tmp_path), tmp_path / "state"
    with serving(root, state) as first:
        over = first.start_loop(WAITS, "--max-iterations", "1")
        first.wait_for(over, lambda view: not view["alive"])
        key = first.start_loop(LISTENS)
        first.wait_for(key, is_writing)
    # With a server that runs, `--once` would open the run there.
    with serving(root, state, "--once", key.partition("@")[0]) as server:
        assert [row["key"] for row in server.get("/api/runs").data["rows"]] == [key]
        assert server.get(f"/api/runs/{over}").status == 404
        assert server.post("/api/runs", {"project": "x", "task": "x"}).status == 403
        server.post(f"/api/runs/{key}/signals", {"type": "ABORT"})
        assert server.process.wait(60) == 0
    refused = first.ralph("web", "--once", over.partition("@")[0], "--json", ok=False)
    assert "is not running" in json.loads(refused)["error"]["what"]


def test_without_a_passphrase_the_page_can_only_view_and_steer(server: Server, tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state", passphrase=False) as other:
        for action in ("undo", "land", "approve", "accept", "resume"):
            refused = other.post(f"/api/runs/x@y/{action}", {})
            assert (refused.status, refused.error["code"]) == (403, "no-passphrase")
            assert "ralph web passphrase" in refused.error["todo"]


def test_a_stopped_run_is_resumed_and_aborted(server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    server.unlock()
    try:
        resumed = server.post(f"/api/runs/{key}/resume", {"text": "try harder"})
        assert resumed.status == 200, resumed.text
    finally:
        server.proof = ""
    server.wait_for(key, lambda view: view["resumes"] == 1 and not view["alive"])
    taken = [line["signal"] for line in server.journal(key) if line["type"] == "signal.accepted"]
    assert [(one["type"], one["by"]) for one in taken] == [("RESUME", "web:owner")]
    aborted = server.post(f"/api/runs/{key}/signals", {"type": "ABORT"})
    assert aborted.status == 200, aborted.text
    view = server.wait_for(key, lambda view: view["state"] == "aborted")
    [ack] = [one for one in view["signals"] if one["name"] == aborted.data["signal"]]
    assert (ack["type"], ack["by"], ack["state"]) == ("ABORT", "web:owner", "accepted")


@pytest.mark.slow
def test_feedback_to_a_session_is_stored_and_planned(server: Server, tmp_path: Path) -> None:
    quick = "---\nplanning:\n  max_cycles: 1\n  categories: [technical]\n---\n# Instructions\n"
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"never": ["task-3"], "instructions": quick}))
    agent = shlex.join(["env", f"SCRIPT={script}", sys.executable, "-I", str(SESSION_AGENT)])
    server.ralph("session", "new", "Build it", "--agent-command", agent, "--land", "branch", "--yes", ok=False)
    [session] = [path for path in (server.root / ".ralph-sessions").iterdir() if path.is_dir()]
    key = f"{session.name}@{project_name(server.root)}"
    assert server.view(key)["needs"][0]["kind"] == "feedback"
    script.write_text(json.dumps({"instructions": quick}))
    server.unlock()
    try:
        resumed = server.post(f"/api/runs/{key}/resume", {"text": "Task 3 may use the network"})
        assert resumed.status == 200, resumed.text
    finally:
        server.proof = ""
    [batch] = (session / "iterations" / "2" / "feedbacks").glob("*/feedbacks.md")
    assert "Task 3 may use the network" in batch.read_text()
    server.wait_for(key, lambda view: view["state"] == "success")


@pytest.mark.parametrize(
    ("action", "body", "word"),
    [
        ("signals", {"type": "APPROVE"}, "cannot be sent"),
        ("signals", {"type": "STEER", "text": "  "}, "empty"),
        ("signals", {"type": "STEER", "text": 7}, "text"),
        ("signals", {"type": "STEER", "text": "x" * 30_000}, "longer"),
        ("signals", {"type": "STEER", "text": "x", "target": "nobody"}, "no role"),
        ("answers", {"question": "q9", "text": "x"}, "no open question"),
        ("answers", {"question": "../q1", "text": "x"}, "no open question"),
        ("comments", {"items": []}, "items"),
        ("comments", {"items": [{"path": "a", "line": 0, "text": "x"}]}, "line"),
        ("comments", {"items": [{"path": "a`\n", "line": 1, "text": "x"}]}, "path"),
        ("comments", {"items": [{"path": "a/../../b", "line": 1, "text": "x"}]}, "path"),
        ("comments", {"items": [{"path": "/etc/passwd", "line": 1, "text": "x"}]}, "path"),
        ("comments", {"items": ["x"]}, "comment"),
    ],
)
def test_wrong_input_is_refused_with_a_reason(server: Server, action: str, body: dict, word: str) -> None:
    server.stopped = server.stopped or server.start_loop(WAITS, "--max-iterations", "1")
    key = server.stopped
    server.wait_for(key, lambda view: not view["alive"])
    before = server.journal(key)
    answer = server.post(f"/api/runs/{key}/{action}", body)
    assert (answer.status, word in answer.error["what"]) == (400, True), answer.text
    assert server.journal(key) == before


def test_an_unknown_action_is_not_found(server: Server) -> None:
    assert server.post("/api/runs/x@y/explode", {}).status == 404
    assert (
        json.loads(server.post("/api/runs/x@y/signals", {"type": "PAUSE"}).text)["error"]["what"]
        == "there is no such run"
    )

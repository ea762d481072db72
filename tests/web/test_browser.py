"""The page in a real browser: what a user sees and does, from the first link to the answer of an agent."""

import dataclasses
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_actions import ASKS, CHANGES_CHECK, CHANGES_TWICE, LISTENS, PROOF_ONLY, SESSION_AGENT, WAITS
from web_server import PASSPHRASE, Server, make_project, project_name, serving

from ralph.store.runs import Project

HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\x1b[31m"
CHROMIUM = os.environ.get("RALPH_CHROMIUM") or shutil.which("chromium") or ""
playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: `make test-web`")
if not CHROMIUM:
    pytest.skip("browser tests need chromium: `make test-web`", allow_module_level=True)
WAIT = 60_000
TABS = ("live", "checks", "diff", "signals")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """A page with the token, which must not report an error nor ask another host."""
    opened = open_page(browser, server)
    yield opened
    assert opened.problems == []
    opened.context.close()


def open_page(browser: Any, server: Server, path: str = "/", **options: Any) -> Any:
    context = browser.new_context(**options)
    opened = context.new_page()
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on("request", lambda sent: note_foreign(opened, sent.url, server))
    opened.set_default_timeout(WAIT)
    opened.goto(f"http://127.0.0.1:{server.port}{path}?token={server.token}")
    return opened


def note_foreign(opened: Any, url: str, server: Server) -> None:
    if not url.startswith((f"http://127.0.0.1:{server.port}/", "data:")):
        opened.problems.append(f"asked {url}")


def go(page: Any, server: Server, path: str) -> None:
    page.goto(f"http://127.0.0.1:{server.port}{path}")


def test_the_token_leaves_the_address_and_a_tab_without_it_asks(browser: Any, server: Server, page: Any) -> None:
    page.get_by_label("Filter runs").wait_for()
    assert "token" not in page.url
    context = browser.new_context()
    other = context.new_page()
    other.goto(f"http://127.0.0.1:{server.port}/")
    other.get_by_placeholder("Token").fill("wrong")
    other.get_by_role("button", name="Open").click()
    other.get_by_text("The token is wrong").or_(other.get_by_text("the token is wrong")).wait_for()
    context.close()


def test_a_run_appears_streams_is_steered_and_commented(page: Any, server: Server) -> None:
    page.get_by_label("Filter runs").wait_for()
    key = server.start_loop(LISTENS, task=f"Change the value {HOSTILE}")
    page.locator(f"tr[data-run='{key.partition('@')[0]}'] a").click()
    page.locator(".ev .words", has_text="I am looking.").wait_for()
    page.get_by_role("link", name="Diff").click()
    row = page.locator("tr.add", has_text="TWO")
    # The diff is of whole turns. While the first turn works, the page has none of it yet.
    page.get_by_text("Nothing changed").or_(page.locator(".note.fail")).or_(row).first.wait_for()
    page.get_by_role("link", name="Live").click()
    composer = page.get_by_label("Message to the agent").first
    composer.fill(f"Use the plain name {HOSTILE}")
    page.get_by_role("button", name="Steer", exact=True).first.click()
    page.locator(".ack", has_text="Received by turn").first.wait_for()
    assert page.evaluate("window.hacked") is None
    server.wait_for(key, lambda view: not view["alive"])


def test_a_comment_on_a_line_goes_to_the_agent(page: Any, server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    go(page, server, f"/r/{key}/diff")
    page.get_by_role("button", name="Comment on line 1").focus()
    page.keyboard.press("2")
    assert page.url.endswith("/diff"), "a digit on a focused line is not a shortcut"
    page.keyboard.press("c")
    playwright.expect(page.locator("textarea:focus")).to_have_value("", timeout=WAIT)
    page.keyboard.press("Escape")
    playwright.expect(page.locator("[data-comment=draft]")).to_have_count(0, timeout=WAIT)
    page.locator("tr.add td", has_text="wrong").click()
    playwright.expect(page.locator("textarea:focus")).to_have_value("", timeout=WAIT)
    page.get_by_role("heading", name="value.txt").click()
    page.locator("tr.add td", has_text="wrong").click()
    playwright.expect(page.locator("textarea:focus")).to_have_value("", timeout=WAIT)
    page.keyboard.type("2 words: this must say right.")
    comment = page.get_by_label("Comment", exact=True)
    playwright.expect(comment).to_have_value("2 words: this must say right.", timeout=WAIT)
    page.locator("tr.del td", has_text="two").click()
    playwright.expect(page.locator("textarea:focus")).to_have_value("", timeout=WAIT)
    page.keyboard.type("Why is this gone?")
    page.get_by_role("button", name="Keep").last.click()
    # One is kept, the other is still open.
    playwright.expect(page.locator("[data-comment=draft] textarea")).to_have_count(1, timeout=WAIT)
    page.get_by_role("button", name="Send 2 comments").wait_for()
    page.get_by_label("Comment", exact=True).press("Control+Enter")
    playwright.expect(page.locator("[data-comment=sent]")).to_have_count(2, timeout=WAIT)
    playwright.expect(page.locator("[data-comment=draft]")).to_have_count(0, timeout=WAIT)
    assert page.evaluate("document.activeElement.className") == "add-comment", "the keyboard goes on at the line"
    page.locator("[data-comment=sent]", has_text="Not received yet").first.wait_for()
    page.get_by_role("button", name="Resume…").first.click()
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_role("button", name="Continue").click()
    server.wait_for(key, lambda view: view["resumes"] == 1 and not view["alive"])
    page.locator("[data-comment=sent]", has_text="Received by turn 2").first.wait_for()
    playwright.expect(page.locator("[data-comment=sent] .badge").first).to_have_text("Received", timeout=WAIT)
    prompt = server.get(f"/api/runs/{key}/turns/2/prompt").data["text"]
    for words in ("`value.txt`, line 1", ">>+wrong", "this must say right.", "removed line 2", "Why is this gone?"):
        assert words in prompt


def test_a_comment_names_the_turn_that_changed_its_lines(page: Any, server: Server) -> None:
    key = server.start_loop(CHANGES_TWICE)
    server.wait_for(key, lambda view: len(view["turns"]) == 3 and (view["turns"][2]["activity"] or {}).get("events"))
    comment = {"path": "value.txt", "line": 2, "hunk": " one\n-two\n+Two\n three", "marks": [2], "text": "Say right."}
    server.post(f"/api/runs/{key}/comments", {"items": [comment]})
    server.wait_for(key, lambda view: len(view["turns"]) > 3 and not view["alive"])
    go(page, server, f"/r/{key}/diff")
    badge = page.locator("[data-comment=sent] .badge")
    playwright.expect(badge).to_have_text("Changed by turn 4", timeout=WAIT)


def test_a_lost_connection_is_retried_at_once_by_a_button(page: Any, server: Server) -> None:
    tried: list[Any] = []
    failed: list[Any] = []
    page.on("request", lambda request: tried.append(request) if "/api/stream" in request.url else None)
    page.on("requestfailed", lambda request: failed.append(request) if "/api/stream" in request.url else None)
    page.clock.install()
    page.route("**/api/stream*", lambda route: route.abort())
    go(page, server, "/")
    retry = page.get_by_role("button", name="Retry now")
    retry.wait_for()
    # No timer runs from here on, and no request is under way: only the button can connect.
    page.clock.pause_at(page.evaluate("Date.now()") + 5000)
    page.wait_for_timeout(300)
    while len(tried) > len(failed):
        page.wait_for_timeout(50)
    retry.wait_for()
    page.unroute("**/api/stream*")
    retry.click()
    playwright.expect(retry).to_have_count(0, timeout=WAIT)


def test_every_iteration_is_reached_in_the_matrix_with_its_output(page: Any, server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "8", "--on-stuck", "continue")
    server.wait_for(key, lambda view: not view["alive"])
    go(page, server, f"/r/{key}/checks")
    heads = page.locator(".mx thead th")
    playwright.expect(heads.filter(has_text="8")).to_have_count(1, timeout=WAIT)
    playwright.expect(page.locator(".mx abbr")).to_have_count(0, timeout=WAIT)
    page.get_by_role("button", name="Earlier").click()
    playwright.expect(page.locator(".mx abbr")).to_have_count(1, timeout=WAIT)
    page.locator(".mx tbody button.cell").first.click()
    page.get_by_text("failed before the run").first.wait_for()
    page.locator("pre.out", has_text="three").wait_for()
    page.get_by_role("button", name="Iteration 8").click()
    playwright.expect(heads.filter(has_text="8")).to_have_count(1, timeout=WAIT)


CUT = """[...document.querySelectorAll('.runs *, .mx *, .box > header *, .badge, .state')].filter((one) => {
  const style = getComputedStyle(one);
  return style.overflowX === 'hidden' && one.scrollWidth > one.clientWidth + 1 && !one.closest('.sr');
}).map((one) => one.textContent)"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_state_headline_or_check_is_cut(browser: Any, server: Server, width: int) -> None:
    task = "Make the value right in all of the places in which somebody may ever have written it down, on every page"
    key = server.start_loop(WAITS, "--max-iterations", "1", task=task)
    server.wait_for(key, lambda view: not view["alive"])
    page = open_page(browser, server, "/runs", viewport={"width": width, "height": 844})
    page.locator(f"tr[data-key='{key}']").wait_for()
    words = ("Nothing to do", "Cost unknown", "Could not verify")
    for word in words:
        # The longest states have to fit, though none of these runs has them.
        page.evaluate("(word) => { document.querySelector('.runs .state').lastChild.textContent = word; }", word)
        assert page.evaluate(CUT) == []
    go(page, server, f"/r/{key}/checks")
    page.locator(".mx").wait_for()
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.context.close()


def test_a_question_is_answered_by_keys_on_the_focused_card_only(page: Any, server: Server) -> None:
    page.get_by_label("Filter runs").wait_for()
    key = server.start_loop(ASKS)
    card = page.locator("article.card", has_text="Round per line")
    card.wait_for()
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("r")
    # What is typed into the filter answers nothing. The card is away while the filter hides it.
    page.get_by_label("Filter runs").fill("r2 no run is called like this")
    playwright.expect(card).to_have_count(0, timeout=WAIT)
    assert server.view(key)["needs"]
    page.get_by_label("Filter runs").fill("")
    card.wait_for()
    card.focus()
    page.keyboard.press("2")
    page.keyboard.press("r")
    page.get_by_text("Answered “once”").first.wait_for()
    server.wait_for(key, lambda view: not view["alive"])
    answers = [line["answer"] for line in server.journal(key) if line["type"] == "question.answered"]
    assert answers == ["once"]


def test_keys_are_listed_and_can_be_switched_off(page: Any, server: Server) -> None:
    field = page.get_by_label("Filter runs")
    field.wait_for()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    keys.get_by_text("Next run that needs you").wait_for()
    keys.get_by_label("Use single keys in this browser").uncheck()
    page.keyboard.press("Escape")
    keys.wait_for(state="hidden")
    page.reload()
    field.wait_for()
    page.keyboard.press("/")
    page.keyboard.press("?")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    assert keys.count() == 0
    page.get_by_role("button", name="Keys").click()
    keys.get_by_label("Use single keys in this browser").check()
    keys.get_by_role("button", name="Close").click()
    page.keyboard.press("/")
    playwright.expect(page.locator("input:focus")).to_have_attribute("placeholder", "state:stuck agent:codex cost>2")


def test_undo_asks_for_the_passphrase(page: Any, server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    go(page, server, f"/r/{key}/checks")
    page.get_by_role("button", name="Undo…").click()
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_label("Passphrase", exact=True).fill("wrong one")
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("that is not the passphrase").wait_for()
    assert (server.root / "value.txt").read_text() == "wrong\n"
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("undid turn 1").first.wait_for()
    assert (server.root / "value.txt").read_text() == "one\ntwo\nthree\n"


def test_unproven_work_is_accepted_on_its_card(browser: Any, tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state") as server:
        key = server.start_loop(CHANGES_CHECK, *PROOF_ONLY, task="Mend the check")
        server.wait_for(key, lambda view: not view["alive"])
        page = open_page(browser, server, viewport={"width": 390, "height": 844})
        card = page.locator(".card[data-need=unproven]")
        card.get_by_text("Accept this result without a proof?").wait_for()
        assert card.get_by_role("button", name="Accept…").is_disabled(), "a reason is needed"
        card.get_by_label("Your reason").fill("I read the change of the check")
        card.get_by_role("button", name="Accept…").click()
        card.get_by_text("Accepting…").wait_for()
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Accepted. Ralph runs the checks once more.").first.wait_for()
        server.wait_for(key, lambda view: view["state"] == "success" and not view["alive"])
        go(page, server, f"/r/{key}/checks")
        evidence = page.locator("[data-grade=accepted]")
        evidence.get_by_text("I read the change of the check").wait_for()
        evidence.get_by_text("Accepted", exact=True).wait_for()
        assert page.problems == []
        page.context.close()


def test_work_that_only_guards_hold_up_is_accepted_on_its_card(page: Any, server: Server) -> None:
    key = server.start_loop(OUT_OF_SCOPE, "--scope", "value.txt", "--max-iterations", "1", task="Stay in scope")
    server.wait_for(key, lambda view: not view["alive"])
    page.get_by_label("Filter runs").fill("Stay in scope")
    card = page.locator(".card", has_text="Are these changes right?")
    card.get_by_text("notes.txt").first.wait_for()
    card.get_by_label("Your reason").fill("The notes are welcome")
    card.get_by_role("button", name="Accept…").click()
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_role("button", name="Continue").click()
    server.wait_for(key, lambda view: view["state"] == "success" and not view["alive"])
    assert server.view(key)["ended"]["evidence"]["grade"] == "accepted"


def test_a_run_is_started_after_its_plan_was_shown(browser: Any, tmp_path: Path) -> None:
    agent = tmp_path / "bin" / "claude"
    agent.parent.mkdir()
    agent.write_text("#!/bin/sh\ncat > /dev/null\necho right >> value.txt\n")
    agent.chmod(0o755)
    root = make_project(tmp_path)
    (root / "ralph.yml").write_text(f"agent_command: {agent}\n")
    with serving(root, tmp_path / "state") as server:
        page = open_page(browser, server, "/")
        page.get_by_role("link", name="New run").click()
        page.get_by_label("Task").fill(f"Make it right {HOSTILE}")
        page.get_by_label("Done when").fill("it is nice")
        page.locator(".note.fail", has_text="Done when: Ralph cannot verify").wait_for()
        assert page.get_by_label("Done when").get_attribute("aria-invalid") == "true"
        page.get_by_label("Done when").fill("`python3 -B check.py` passes")
        plan = page.get_by_label("Plan", exact=True)
        plan.get_by_text("You have not agreed to this yet").wait_for()
        plan.get_by_text(f"agent_command: {agent}").wait_for()
        assert server.get("/api/runs").data["rows"] == []
        plan.get_by_role("button", name="Agree and start…").click()
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/live")
        [row] = server.get("/api/runs").data["rows"]
        server.wait_for(row["key"], lambda view: view["state"] == "success" and not view["alive"])
        assert page.evaluate("window.hacked") is None
        assert page.problems == []
        page.context.close()


def test_several_runs_are_chosen_by_keys_and_removed_together(page: Any, server: Server) -> None:
    keys = []
    for number in (1, 2):
        # One after the other: two runs of one directory wait for each other, and the second would be refused.
        key = server.start_loop(WAITS, "--max-iterations", "1", task=f"Select me {number}")
        server.wait_for(key, lambda view: not view["alive"])
        keys.append(key)
    page.get_by_label("Filter runs").fill("Select me")
    page.get_by_text("Select me 2").first.wait_for()
    page.keyboard.press("Escape")
    playwright.expect(page.get_by_label("Filter runs")).to_have_value("", timeout=WAIT)
    page.get_by_label("Filter runs").fill("Select me")
    page.get_by_role("button", name="Select", exact=False).first.click()
    rows = page.locator("tr[data-key]")
    playwright.expect(rows).to_have_count(2, timeout=WAIT)
    playwright.expect(rows.filter(has_text="Select me")).to_have_count(2, timeout=WAIT)
    rows.first.focus()
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_text("2 runs selected").wait_for()
    page.get_by_role("button", name="Remove… 2").click()
    page.get_by_label("Type 2 to confirm").fill("2")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("2 runs removed.").first.wait_for()
    gone = server.get(f"/api/runs/{keys[0]}")
    assert gone.status == 404 and f"run {keys[0].partition('@')[0]} was removed on" in gone.error["what"]
    assert "by web:owner (clean-" in gone.error["what"]


def test_hostile_text_stays_text_on_every_screen(page: Any, server: Server) -> None:
    """Markup, scripts and escapes in the task, messages, tool calls, file names, lines, outputs, questions and comments."""
    text, name = json.dumps(HOSTILE), "<img src=x onerror=window.hacked=1>.txt"
    ask = shlex.join(["tools", "interact", "ask", HOSTILE, "--options", f"{HOSTILE}|no", "--timeout", "60"])
    steps = [f"say: {text}", f"write: {{path: {json.dumps(name)}, content: {text}}}", f"error: {{message: {text}}}"]
    steps += [f"write: {{path: value.txt, content: {text}}}", f"run: {json.dumps(f'printf %s {shlex.quote(HOSTILE)}')}"]
    steps += [
        f"run: {json.dumps(f'$RALPH_BIN {ask}')}",
        f"answer: {{status: partial, summary: {text}, learned: {text}}}",
    ]
    scenario = "turns:\n  - steps:\n" + "".join(f"      - {step}\n" for step in steps)
    key = server.start_loop(scenario, "--max-iterations", "1", task=HOSTILE)
    page.locator(".card[data-need=question]", has_text="window.hacked").first.wait_for()
    page.get_by_role("link", name="Runs").click()
    page.locator(f"tr[data-key='{key}'] a").click()
    page.get_by_role("link", name="Live").click()
    page.locator(".ev .words", has_text="window.hacked").first.wait_for()
    server.post(f"/api/runs/{key}/signals", {"type": "STEER", "text": HOSTILE})
    question = server.view(key)["needs"][0]["id"]
    server.post(f"/api/runs/{key}/answers", {"question": question, "text": HOSTILE})
    server.wait_for(key, lambda view: not view["alive"])
    item = {"path": name, "line": 1, "text": HOSTILE}
    assert server.post(f"/api/runs/{key}/comments", {"items": [item]}).status == 200
    for tab, place in (("checks", "pre.out"), ("diff", "[data-comment=sent]"), ("signals", ".sig"), ("live", ".ev")):
        go(page, server, f"/r/{key}/{tab}")
        page.locator(place, has_text="window.hacked").first.wait_for()
    page.get_by_role("button", name="Raw").click()
    page.locator(".raw .out", has_text="window.hacked").first.wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main iframe").count() == 0
    cut_and_remove(server, page, key)


def cut_and_remove(server: Server, page: Any, key: str) -> None:
    """A journal that is cut and broken while the page shows it, and a run that is deleted: the page says so."""
    run = server.root / ".ralph" / "runs" / key.partition("@")[0]
    journal = run / "journal.jsonl"
    data = journal.read_bytes()
    journal.write_bytes(data[: len(data) // 2])
    with journal.open("ab") as file:
        file.write(b"\xff\x00 {broken\n")
    go(page, server, f"/r/{key}/checks")
    page.get_by_text("Ralph cannot verify this run").or_(page.locator(".note.fail")).first.wait_for()
    shutil.rmtree(run)
    page.get_by_text("The run was removed").or_(page.get_by_text("There is no such run")).first.wait_for()
    assert page.evaluate("window.hacked") is None


def test_a_removed_line_is_commented_in_the_split_diff(page: Any, server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    go(page, server, f"/r/{key}/diff")
    page.get_by_role("button", name="Split").click()
    row = page.locator("table.split tr", has_text="wrong")
    row.wait_for()
    assert [cell.strip() for cell in row.locator("td").all_inner_texts()] == ["1", "−", "one", "1", "+", "wrong"]
    row.get_by_role("button", name="Comment on removed line 1").click()
    page.get_by_label("Comment", exact=True).fill("Keep this line.")
    page.get_by_role("button", name="Keep", exact=True).click()
    page.locator("td.cm[colspan='6']", has_text="Keep this line.").wait_for()
    page.get_by_role("button", name="Discard").click()


def test_whitespace_is_hidden_and_raw_output_has_its_colors(page: Any, server: Server) -> None:
    show = "import sys; print('\\x1b[32mall good\\x1b[0m'); open('value.txt', 'w').write(' one\\nTWO\\nthree\\n')"
    agent = shlex.join([sys.executable, "-c", show])
    run = ("loop", "Change it", "--until", "`false` passes", "--agent-command", agent, "--max-iterations", "1")
    (server.root / "value.txt").write_text("one\ntwo\nthree\n")
    name = json.loads(server.ralph(*run, "--yes", "--json", ok=False).splitlines()[-1])["run"]
    key = f"{name}@{project_name(server.root)}"
    go(page, server, f"/r/{key}/diff")
    page.locator("tr.add", has_text="one").wait_for()
    page.get_by_label("Hide whitespace").check()
    playwright.expect(page.locator("tr.add")).to_have_count(1, timeout=WAIT)
    go(page, server, f"/r/{key}/live")
    page.get_by_role("button", name="Raw").click()
    playwright.expect(page.locator(".raw .out .c2")).to_have_text("all good", timeout=WAIT)
    go(page, server, "/nope")
    page.get_by_role("link", name="Go to the inbox").click()
    page.get_by_label("Filter runs").wait_for()


def test_two_viewers_see_the_same_and_a_lost_connection_loses_nothing(browser: Any, server: Server) -> None:
    key = server.start_loop(LISTENS)
    pages = [open_page(browser, server, f"/r/{key}/live") for _ in range(2)]
    for one in pages:
        one.locator(".ev .words", has_text="I am looking.").wait_for()
    pages[0].context.set_offline(True)
    server.post(f"/api/runs/{key}/signals", {"type": "STEER", "text": "go on"})
    server.wait_for(key, lambda view: not view["alive"])
    pages[0].context.set_offline(False)
    for one in pages:
        one.locator(".badge", has_text="Done").first.wait_for()
        assert one.problems == []
        one.context.close()


def test_the_phone_shows_one_pane_and_large_targets(browser: Any, server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    phone = open_page(browser, server, "/", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    phone.locator(".botbar").wait_for()
    card = phone.locator("article.card").first
    card.wait_for()
    assert phone.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert all(box["height"] >= 44 for box in (one.bounding_box() for one in card.get_by_role("button").all()))
    phone.context.close()


def test_a_thousand_runs_are_listed_and_filtered(browser: Any, tmp_path: Path) -> None:
    root = make_project(tmp_path)
    with serving(root, tmp_path / "state") as server:
        key = server.start_loop(WAITS, "--max-iterations", "1")
        server.wait_for(key, lambda view: not view["alive"])
        first = root / ".ralph" / "runs" / key.partition("@")[0]
        for number in range(1000):
            copied = first.with_name(f"250101-{number // 60:04d}{number % 60:02d}-{number:04x}")
            copied.mkdir()
            for name in ("run.json", "journal.jsonl"):
                (copied / name).write_text((first / name).read_text().replace(first.name, copied.name))
        page = open_page(browser, server, "/runs")
        page.get_by_role("button", name="Show 100 more").wait_for()
        playwright.expect(page.locator("tr[data-run]")).to_have_count(100, timeout=WAIT)
        page.get_by_role("button", name="Show 100 more").click()
        playwright.expect(page.locator("tr[data-run]")).to_have_count(200, timeout=WAIT)
        page.get_by_label("Filter runs").fill("run:250101-001639")
        playwright.expect(page.locator("tr[data-run]")).to_have_count(1, timeout=WAIT)
        assert page.problems == []
        page.context.close()


@pytest.fixture(scope="module")
def exported(server: Server) -> str:
    """The id of a run that is proven, with markup in its task."""
    key = server.start_loop(SUCCEEDS, task="Fix <img src=x onerror=alert(1)> the cart")
    server.wait_for(key, lambda view: not view["alive"])
    return key.partition("@")[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_an_exported_run_opens_without_a_network(
    browser: Any, server: Server, exported: str, width: int, scheme: str
) -> None:
    path = server.root.parent / f"export-{width}-{scheme}.html"
    server.ralph("export", exported, "--html", "-o", str(path), "--force")
    options: dict[str, Any] = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme, "offline": True}
    context = browser.new_context(**options)
    opened = context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    opened.on("request", lambda sent: requests.append(sent.url))
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(path.as_uri())
    for heading in ("Evidence", "Findings", "Diff", "Timeline", "Cost"):
        assert opened.get_by_role("heading", name=heading, exact=True).is_visible()
    assert requests == [path.as_uri()]
    assert problems == []
    assert opened.locator("img, script, iframe").count() == 0
    assert opened.evaluate("document.documentElement.scrollWidth") == width, "nothing is wider than the screen"
    why = opened.locator("dt", has_text="Why").locator("xpath=following-sibling::dd[1]").bounding_box()
    assert why["width"] > 0.4 * width, "the sentence is not squeezed into a narrow column"
    colors = opened.evaluate("[getComputedStyle(document.documentElement).backgroundColor]")
    assert colors == ["rgb(246, 247, 248)" if scheme == "light" else "rgb(14, 16, 18)"]
    context.close()


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_screen_meets_wcag(browser: Any, server: Server, look: str) -> None:
    """axe-core finds what a program can find of WCAG 2.2 AA: contrast, names, roles, order of headings, target sizes."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs `make test-web`").Axe()
    stopped = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(stopped, lambda view: not view["alive"])
    asking = server.start_loop(ASKS)
    server.wait_for(asking, lambda view: view["needs"])
    options: dict[str, Any] = {"color_scheme": "dark" if look == "dark" else "light"}
    if look == "phone":
        options |= {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    page = open_page(browser, server, "/", **options)
    page.get_by_role("heading", name="Needs you").wait_for()
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    found = {}
    for path in ("/", "/runs", "/new", *(f"/r/{key}/{tab}" for key in (asking, stopped) for tab in TABS)):
        go(page, server, path)
        page.locator("main .hunk tr.add" if path == f"/r/{stopped}/diff" else "main .box, main table").first.wait_for()
        violations = axe.run(page, options={"runOnly": {"type": "tag", "values": tags}}).response["violations"]
        if violations:
            found[path] = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in violations]
    server.post(f"/api/runs/{asking}/signals", {"type": "ABORT"})
    server.wait_for(asking, lambda view: not view["alive"])
    assert found == {}
    page.context.close()


OUT_OF_SCOPE = """
turns:
  - steps:
      - write: {path: value.txt, content: "right\\n"}
      - write: {path: notes.txt, content: "How I did it\\n"}
      - answer: {status: done, summary: Done.}
"""
APPROVAL = """---
planning: {max_cycles: 1, categories: [technical]}
knowledge: {approval: signal}
---
# Instructions
"""
SUCCEEDS = """
turns:
  - steps:
      - write: {path: value.txt, content: "right\\n"}
      - answer: {status: done, summary: Done.}
"""


def test_approve_needs_the_focused_card_and_the_passphrase(browser: Any, tmp_path: Path) -> None:
    root = make_project(tmp_path)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"instructions": APPROVAL}))
    agent = shlex.join(["env", f"SCRIPT={script}", sys.executable, "-I", str(SESSION_AGENT)])
    with serving(root, tmp_path / "state") as server:
        server.ralph("session", "new", "Build it", "--agent-command", agent, "--land", "branch", "--yes", ok=False)
        [session] = [path for path in (root / ".ralph-sessions").iterdir() if path.is_dir()]
        key = f"{session.name}@{project_name(root)}"
        page = open_page(browser, server)
        card = page.locator("article.card[data-need=approval]")
        card.locator("details").first.wait_for()
        [learned] = session.glob("iterations/*/knowledge/*/*.md")
        body = learned.read_text().split("---\n")[-1].split("\n", 1)[1].strip()
        assert body in card.locator("details").inner_text(), "what is approved can be read"
        assert "ralph session" not in card.inner_text(), "the buttons stand for the commands"
        page.locator("body").click(position={"x": 5, "y": 5})
        page.keyboard.press("a")
        card.focus()
        page.keyboard.press("a")
        page.get_by_label("Passphrase", exact=True).wait_for()
        page.keyboard.press("Escape")
        assert server.view(key)["needs"][0]["kind"] == "approval", "without the passphrase nothing is approved"
        card.focus()
        page.keyboard.press("a")
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Approved. The session keeps what it learned").first.wait_for()
        view = server.wait_for(key, lambda view: view["state"] == "success")
        page.set_viewport_size({"width": 390, "height": 844})
        go(page, server, f"/r/{key}/live")
        [planner, *_] = [turn for turn in view["turns"] if turn["role"] == "planner"]
        turns = page.locator("aside[aria-label=Work] .divided").filter(has=page.get_by_role("heading", name="Turns"))
        turns.get_by_role("button", name=re.compile("^Show [0-9]+ earlier$")).click()
        turns.get_by_role("button", name=re.compile(f"^{planner['number']} planner")).click()
        page.locator(f"[data-turn='{planner['number']}']").wait_for()
        approved = [line["signal"] for line in server.journal(key) if line["type"] == "signal.accepted"]
        assert [(one["type"], one["by"]) for one in approved] == [("APPROVE", "web:owner")]
        assert page.problems == []
        page.context.close()


def test_land_takes_two_steps_and_the_passphrase(browser: Any, tmp_path: Path) -> None:
    root = make_project(tmp_path)
    with serving(root, tmp_path / "state") as server:
        key = server.start_loop(SUCCEEDS, "--worktree")
        server.wait_for(key, lambda view: view["state"] == "success")
        page = open_page(browser, server, f"/r/{key}/checks")
        page.get_by_role("button", name="Land…").click()
        land = page.get_by_role("button", name="Land", exact=True)
        assert land.is_disabled(), "the end of the run's id has to be typed first"
        (root / "value.txt").write_text("my own change\n")
        page.get_by_label("to confirm").fill(key.partition("@")[0][-4:])
        land.click()
        page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
        page.get_by_role("button", name="Continue").click()
        refused = page.locator(".note.fail", has_text="The work has not landed")
        refused.get_by_text("git merge").wait_for()
        assert (root / "value.txt").read_text() == "my own change\n"
        subprocess.run(("git", "checkout", "-q", "value.txt"), cwd=root, check=True)
        page.get_by_role("button", name="Land…").click()
        page.get_by_label("to confirm").fill(key.partition("@")[0][-4:])
        land.click()
        page.locator(".rhead .badge", has_text="Done").first.wait_for()
        playwright.expect(refused).to_have_count(0, timeout=WAIT)
        server.wait_for(key, lambda view: view["attention"] != 5)
        assert (root / "value.txt").read_text() == "right\n"
        shown = subprocess.run(("git", "log", "--format=%s", "-3"), cwd=root, capture_output=True, text=True)
        assert "base" in shown.stdout.splitlines()[1:]
        assert page.problems == []
        page.context.close()


def test_a_run_with_a_hundred_thousand_journal_lines_opens_and_follows(browser: Any, tmp_path: Path) -> None:
    root = make_project(tmp_path)
    views = load_bench("views")
    project = Project(root)
    run = views.create_run(project, "261117-093000-k3x9", 7)
    views.write_journal(run, 25_000, None)
    with serving(root, tmp_path / "state") as server:
        key = f"{run.id}@{project_name(root)}"
        page = open_page(browser, server, f"/r/{key}/checks")
        page.get_by_role("heading", name="task 7").wait_for()
        page.locator(".cell").first.wait_for()
        playwright.expect(page.locator(".mx tbody tr")).to_have_count(1, timeout=WAIT)
        view = server.view(key)
        assert (view["seq"], view["iteration"], len(view["turns"]) < 25_000) == (100_001, 25_000, True)
        assert page.problems == []
        page.context.close()


def load_bench(name: str) -> Any:
    """A module of the benchmarks, which knows how to write a long journal fast."""
    path = Path(__file__).parents[2] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_name_their_project_if_there_are_several(browser: Any, tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state") as server:
        other = dataclasses.replace(server, root=make_project(tmp_path, "bakery"))
        for one in (server, other):
            key = one.start_loop(SUCCEEDS)
            one.wait_for(key, lambda view: not view["alive"])
        page = open_page(browser, server, "/runs")
        page.locator("tr[data-run] .project", has_text="shop").wait_for()
        page.locator("tr[data-run] .project", has_text="bakery").wait_for()
        page.context.close()

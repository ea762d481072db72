"""Take the pictures of the web page: small real projects with runs in every state, in a real browser, light and dark.

`make pictures` writes the two pictures of the README to `docs/pictures`. `--all DIR` writes every screen there instead.
The agents are scripted; engine, git, checks and page are real.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from web_server import Server, project_name, serving, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENT = shlex.join([sys.executable, "-I", str(EXAMPLES / "session" / "agent.py")])
SESSION_CHECKS = ("--check", "`python3 -m unittest -q` passes", "--check", "`python3 acceptance.py` passes")
TESTS_PASS = "`python3 -m unittest` passes"
REQUESTS = {
    "approval": "Build a URL shortener with stats",
    "feedback": "Shorten the links of the newsletter",
    "conflict": "Count visits per day",
    "session": "Let customers shorten their own links",
}
AWAITING = 7
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = (("light", False, WIDE), ("dark", True, WIDE), ("phone", False, PHONE), ("phone-dark", True, PHONE))
EXPORTED = ("judged", "disproven", "approval", "long")

CART = '''"""The cart of the shop. All amounts are cents."""


def total(lines):
    return sum(line["price"] for line in lines)


def discount(lines, percent):
    return total(lines)


def shipping(lines):
    return 495
'''
CART_TESTS = """import unittest

from cart import discount, shipping, total

BOOK, PEN = {"price": 1500, "count": 2}, {"price": 120, "count": 5}


class Cart(unittest.TestCase):
    def test_total_multiplies_by_the_count(self):
        self.assertEqual(total([BOOK, PEN]), 3600)

    def test_discount_is_taken_from_the_total(self):
        self.assertEqual(discount([BOOK, PEN], 10), 3240)

    def test_shipping_is_free_above_thirty(self):
        self.assertEqual(shipping([BOOK, PEN]), 0)


if __name__ == "__main__":
    unittest.main()
"""
COUNT = """patch: {path: cart.py, find: '["price"] for', replace: '["price"] * line["count"] for'}"""
FREE = 'patch: {path: cart.py, find: "return 495", replace: "return 0 if total(lines) > 3000 else 495"}'
PERCENT = (
    'patch: {path: cart.py, find: "percent):\\n    return total(lines)", '
    'replace: "percent):\\n    return total(lines) * (100 - percent) // 100"}'
)
USAGE = "usage: {input_tokens: 21400, output_tokens: 1830, cached_tokens: 16000, cost: 0.31, model: claude-sonnet-5}"
FIRST_TURN = f"""
  - when: {{turn: 1}}
    steps:
      - say: The total ignores the count of a line. I fix that first.
      - {COUNT}
      - run: python3 -m unittest 2>&1 | tail -3
      - {USAGE}
      - answer: {{summary: "total() multiplies by the count", learned: "discount() ignores its percentage", next: "discount()"}}
"""
SUCCEEDS = f"""
turns:{FIRST_TURN}
  - when: {{turn: ">=2"}}
    steps:
      - say: The discount and the shipping are left.
      - {PERCENT}
      - {FREE}
      - run: python3 -m unittest 2>&1 | tail -3
      - {USAGE}
      - answer: {{summary: "discount() and shipping() follow the tests"}}
"""
DEARER = 'patch: {path: test_cart.py, find: "PEN]), 0)", replace: "PEN]), 495)"}'
CHANGES_TEST = f"""
turns:
  - when: {{role: judge}}
    steps:
      - say: The request asks for another limit, so the test has to expect another price.
      - answer: {{files: [{{path: test_cart.py, accept: true, why: "36 euros are below the new limit"}}]}}
  - steps:
      - say: The cart of the test costs 36 euros. Below the new limit, shipping costs 4.95.
      - {COUNT}
      - {PERCENT}
      - {DEARER}
      - {USAGE}
      - answer: {{summary: "Shipping is free above 40 euros; its test expects 4.95 for 36 euros"}}
"""
SKIP = "    @unittest.skip('later')\\n    def test_shipping"
SKIPS = f"""
turns:{FIRST_TURN}
  - when: {{turn: 2}}
    steps:
      - say: Shipping is not clear to me. I skip its test for now.
      - {PERCENT}
      - patch: {{path: test_cart.py, find: "    def test_shipping", replace: "{SKIP}"}}
      - {USAGE}
      - answer: {{summary: "Two tests pass, one is skipped"}}
otherwise: finish
"""
ASKS = f"""
turns:{FIRST_TURN}
  - when: {{turn: 2}}
    steps:
      - say: Cents can be lost when a discount is rounded. I ask.
      - run: >-
          "$RALPH_BIN" tools interact ask "Round the discount per line, or once for the whole cart?
          Per line differs from the invoice by up to 3 cents." --options "per line|once, on the total" --timeout 3000
      - {PERCENT}
      - {FREE}
      - answer: {{summary: "Rounded once, on the total"}}
"""
WORKS = f"""
turns:{FIRST_TURN}
  - when: {{turn: 2}}
    steps:
      - say: I read the tests again before I change the discount.
      - run: cat test_cart.py
      - run: grep -n discount -r . --include=*.py
      - say: "`discount()` returns the total unchanged. It has to subtract the percentage, in whole cents."
      - {PERCENT}
      - run: python3 -m unittest 2>&1 | tail -4
      - usage: {{input_tokens: 18200, output_tokens: 960, cached_tokens: 15000, cost: 0.17, model: claude-sonnet-5}}
      - listen: {{seconds: 3000}}
      - say: "Understood: whole cents only, so I round down with `//`. Shipping is next."
      - run: python3 -m unittest test_cart.Cart.test_discount_is_taken_from_the_total 2>&1 | tail -3
      - sleep: 3000
"""
HATS = """
turns:
  - when: {hat: tester}
    steps:
      - say: I write a test that fails for a coupon.
      - run: python3 -m unittest 2>&1 | tail -3
      - sleep: 3000
"""
LOCAL = """patch: {path: cart.py, find: "return 495", replace: "return int(open('local.txt').read())"}"""
DISPROVEN = f"""
turns:
  - steps:
      - say: The price of shipping belongs into a file of this machine.
      - {COUNT}
      - {PERCENT}
      - {LOCAL}
      - write: {{path: .gitignore, content: "local.txt\\n__pycache__/\\n"}}
      - write: {{path: local.txt, content: "0\\n"}}
      - {USAGE}
      - answer: {{summary: "shipping() reads local.txt"}}
"""
LONG_TASK = (
    "Find out why shipping_costs_of_international_orders_with_several_parcels is wrong for customers whose "
    "address_line_2 is empty, and mend it in every place in which the warehouse, the invoice and the mail of the shop say it"
)
CONFLICTS = '''"""The agent of the example. Two of its executors also write the same line, and its resolver gives up."""

import os, pathlib, subprocess, sys

role, task = os.environ["RALPH_ROLE"], os.environ.get("RALPH_TASK", "")
if role == "resolver":
    print("I cannot decide which line is right.")
    sys.exit()
done = subprocess.run([sys.executable, "-I", os.environ["EXAMPLE_AGENT"]])
if role == "executor" and task in ("task-1", "task-2"):
    pathlib.Path("CHANGES.md").write_text(f"# Changes\\n\\n1.1: made by {task}\\n")
sys.exit(done.returncode)
'''
GIVES_UP = """
turns:
  - steps:
      - say: I look for the cause of the wrong shipping.
      - run: python3 -m unittest 2>&1 | tail -3
      - usage: {input_tokens: 9400, output_tokens: 420, cost: 0.12, model: claude-sonnet-5}
      - answer: {summary: "Read cart.py; found nothing to change"}
"""


@dataclass
class Stage:
    """The server and the runs that it shows, by what they show."""

    server: Server
    directory: Path
    keys: dict[str, str]

    def project(self, name: str, source: Path | None = None) -> Path:
        """A repository in the directory, with the cart of a shop or with a copy of `source`."""
        root = self.directory / name
        if source:
            shutil.copytree(source, root)
        else:
            root.mkdir()
            (root / "cart.py").write_text(CART)
            (root / "test_cart.py").write_text(CART_TESTS)
        for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "The shop as it is")):
            subprocess.run(("git", *command), cwd=root, env=self.server.environment, check=True)
        return root

    def ralph(self, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "ralph", *arguments]
        return subprocess.run(command, cwd=root, env=self.server.environment, capture_output=True, text=True)

    def start_loop(self, name: str, root: Path, task: str, scenario: str, *options: str) -> str:
        path = self.directory / f"{name}.yml"
        path.write_text(scenario)
        arguments = ("--until", TESTS_PASS, "--scenario", str(path), "--yes", "--detach", "--json", *options)
        done = self.ralph(root, "loop", task, *arguments)
        if done.returncode:
            sys.exit(f"{name}: {done.stdout}{done.stderr}")
        return self.add(name, root, json.loads(done.stdout.splitlines()[-1])["run"])

    def add(self, name: str, root: Path, run: str) -> str:
        self.keys[name] = f"{run}@{project_name(root)}"
        return self.keys[name]

    def start_session(self, name: str, root: Path, *options: str) -> str:
        self.ralph(root, "session", "new", REQUESTS[name], *SESSION_CHECKS, *options, "--yes")
        [session] = [path for path in (root / ".ralph-sessions").iterdir() if path.is_dir()]
        return self.add(name, root, session.name)


def set_up(stage: Stage, *, is_whole: bool) -> None:
    """Start runs in several states, or in every state that the page shows. The session that works comes last."""
    server = stage.server
    shop, web = stage.project("shop"), stage.project("shop-web")
    done = stage.start_loop("success", shop, "Make the prices of the cart right", SUCCEEDS, "--max-cost", "5")
    server.wait_for(done, lambda view: not view["alive"])
    working = stage.start_loop("working", web, "Fix the totals of the cart", WORKS, "--max-cost", "5", "--worktree")
    stage.start_loop("question", web, "Give every customer a discount", ASKS, "--max-cost", "2", "--worktree")
    graded = start_graded(stage)
    skipped = stage.start_loop(
        "limit", web, "Make shipping free above 30 euros", SKIPS, "--max-iterations", "2", "--worktree"
    )
    landable = stage.start_loop("not-landed", web, "Make the prices of the shop right", SUCCEEDS, "--worktree")
    stuck = stage.start_loop("stuck", web, "Find out why shipping is wrong", GIVES_UP, "--worktree")
    set_up_session(stage, "approval")
    if is_whole:
        start_hats(stage)
        parts = stage.project("shop-with-a-name-that-is-longer-than-most")
        few = ("--max-iterations", "1", "--max-cost", "3")
        disproven = stage.start_loop("disproven", parts, "Read the price of shipping from a file", DISPROVEN, *few)
        server.wait_for(disproven, lambda view: not view["alive"])
        many = ("--max-iterations", "20", "--on-stuck", "continue", "--worktree")
        stage.start_loop("long", parts, LONG_TASK, GIVES_UP, *many)
        set_up_session(stage, "feedback")
        set_up_conflict(stage)
    set_up_session(stage, "session")
    server.wait_for(working, lambda view: len(view["turns"]) > 1)
    server.wait_for(stage.keys["question"], lambda view: view["needs"])
    for key in (skipped, stuck, landable, *graded):
        server.wait_for(key, lambda view: not view["alive"])
    server.post(f"/api/runs/{working}/signals", {"type": "INFO", "text": "Prices are in cents, never in floats."})


def start_graded(stage: Stage) -> tuple[str, ...]:
    """Runs whose success rests on a changed test: judged, not proven, and accepted by the user."""
    allowed = ("--may-change", "test_cart.py", "--max-cost", "5")
    judged = stage.start_loop(
        "judged", stage.project("shop-judged"), "Make shipping free above 40 euros", CHANGES_TEST, *allowed
    )
    strict = (*allowed, "--require", "proven")
    unproven = stage.start_loop(
        "unproven",
        stage.project("shop-unproven"),
        "Raise the limit of free shipping to 40 euros",
        CHANGES_TEST,
        *strict,
    )
    root = stage.project("shop-accepted")
    accepted = stage.start_loop("accepted", root, "Charge shipping below 40 euros", CHANGES_TEST, *strict)
    stage.server.wait_for(accepted, lambda view: not view["alive"])
    because = "I read the change of the test: 36 euros are below the new limit"
    stage.ralph(root, "accept", accepted.partition("@")[0], "--because", because, "--yes")
    return judged, unproven


def set_up_session(stage: Stage, name: str) -> None:
    """A session that waits for feedback, for an approval, or works on its first two tasks."""
    root = stage.project(f"links-{name}", EXAMPLES / "session" / "project")
    begun = root.with_name(f"{name}.begun")
    stage.server.environment["EXAMPLE_BEGUN"] = str(begun)
    if name == "session":
        key = stage.start_session(name, root, "--agent-command", AGENT, "--detach")
        stage.server.wait_for(key, lambda view: sum(turn["ended_at"] is None for turn in view["turns"]) > 1)
        return
    begun.touch()
    key = stage.start_session(name, root, "--agent-command", AGENT)
    if name == "feedback":
        return
    notes = EXAMPLES / "session"
    stage.ralph(root, "session", "feedback", "--from", str(notes / "notes.md"), "--attach", str(notes / "app.log"))
    instructions = root / ".ralph-sessions" / f"{key.partition('@')[0]}.instructions.md"
    text = instructions.read_text().replace("task_wip_minutes: 0.15", "task_wip_minutes: 30")
    instructions.write_text(text)
    ended = stage.ralph(root, "session", "resume")
    if ended.returncode != AWAITING:
        sys.exit(f"the session ended with {ended.returncode}: {ended.stdout}{ended.stderr}")


def set_up_conflict(stage: Stage) -> None:
    """A session that stopped because two of its tasks cannot be merged."""
    root = stage.project("links-conflict", EXAMPLES / "session" / "project")
    agent = stage.directory / "conflicting.py"
    agent.write_text(CONFLICTS)
    begun = stage.directory / "conflict.begun"
    begun.touch()
    stage.server.environment |= {"EXAMPLE_BEGUN": str(begun), "EXAMPLE_AGENT": str(EXAMPLES / "session" / "agent.py")}
    stage.start_session("conflict", root, "--agent-command", shlex.join([sys.executable, "-I", str(agent)]))


def start_hats(stage: Stage) -> None:
    root = stage.project("shop-hats")
    scenario = stage.directory / "hats.yml"
    scenario.write_text(HATS)
    arguments = (
        "--hats",
        "tdd",
        "--prompt",
        "Coupons for the cart",
        "--check",
        TESTS_PASS,
        "--scenario",
        str(scenario),
        "--yes",
        "--detach",
    )
    done = stage.ralph(root, "run", *arguments, "--json")
    if done.returncode:
        sys.exit(f"hats: {done.stdout}{done.stderr}")
    key = stage.add("hats", root, json.loads(done.stdout.splitlines()[-1])["run"])
    stage.server.wait_for(key, lambda view: view["turns"])


@contextmanager
def open_stage() -> Iterator[Stage]:
    directory = Path(tempfile.mkdtemp(prefix="ralph-pictures-"))
    root = directory / "start"
    root.mkdir()
    subprocess.run(("git", "init", "-q"), cwd=root, check=True)
    try:
        with serving(root, directory / "state") as server:
            stage = Stage(server, directory, {})
            try:
                yield stage
            finally:
                for key in stage.keys.values():
                    server.post(f"/api/runs/{key}/signals", {"type": "ABORT"})
                for key in stage.keys.values():
                    wait_until(lambda key=key: not server.view(key)["alive"])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def open_page(browser: Browser, stage: Stage, *, is_dark: bool, viewport: dict[str, int]) -> Page:
    page = browser.new_context(
        viewport=viewport,  # type: ignore[arg-type]
        color_scheme="dark" if is_dark else "light",
        device_scale_factor=1,
        reduced_motion="reduce",
    ).new_page()
    page.goto(f"http://127.0.0.1:{stage.server.port}/?token={stage.server.token}")
    page.get_by_role("heading", name="Needs you").wait_for()
    return page


def take_picture(page: Page, stage: Stage, path: str, file: Path, *, whole: bool = False) -> None:
    page.goto(f"http://127.0.0.1:{stage.server.port}{path}")
    page.locator("main").wait_for()
    page.wait_for_timeout(1500)  # The page keeps its stream open, so it never becomes idle.
    page.screenshot(path=str(file), full_page=whole)
    print(file)


def take_export(page: Page, stage: Stage, name: str, file: Path) -> None:
    """The exported page of a run, opened from its file."""
    run, path = stage.keys[name].partition("@")[0], stage.directory / f"{name}.html"
    [root] = [one for one in stage.directory.iterdir() if (one / ".ralph" / "runs" / run).is_dir()]
    stage.ralph(root, "export", run, "--html", "-o", str(path), "--force")
    page.goto(path.as_uri())
    page.screenshot(path=str(file), full_page=True)
    print(file)


def screens(stage: Stage) -> dict[str, str]:
    """The paths of all screens, by the name of their picture."""
    found = {"inbox": "/", "runs": "/runs", "new": "/new"}
    for name, key in reversed(stage.keys.items()):
        for tab in ("live", "checks", "diff", "signals"):
            found[f"{name}-{tab}"] = f"/r/{key}/{tab}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--all", type=Path, metavar="DIR", help="write every screen and exported page there, in all looks"
    )
    parser.add_argument("--to", type=Path, default=Path("docs/pictures"), help="where the README's pictures go")
    asked = parser.parse_args()
    chromium = os.environ.get("RALPH_CHROMIUM") or shutil.which("chromium")
    with open_stage() as stage, sync_playwright() as running:
        set_up(stage, is_whole=bool(asked.all))
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if asked.all:
            asked.all.mkdir(parents=True, exist_ok=True)
            for look, is_dark, viewport in LOOKS:
                page = open_page(browser, stage, is_dark=is_dark, viewport=viewport)
                for name, path in screens(stage).items():
                    take_picture(page, stage, path, asked.all / f"{name}-{look}.png", whole=name == "inbox")
                for name in EXPORTED:
                    take_export(page, stage, name, asked.all / f"{name}-export-{look}.png")
        else:
            asked.to.mkdir(parents=True, exist_ok=True)
            page = open_page(browser, stage, is_dark=False, viewport=WIDE)
            take_picture(page, stage, "/", asked.to / "inbox.png")
            take_picture(page, stage, f"/r/{stage.keys['judged']}/checks", asked.to / "checks.png")
        browser.close()


if __name__ == "__main__":
    main()

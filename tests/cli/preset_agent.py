"""An agent that wears every hat of the presets on a small project: it calls the tools that its page names, and does the work.

SCRIPT names a JSON file: `lies` has it claim everything and do nothing. At first it is careless on purpose, where the engine
should notice: a test that shows nothing, a fix that is none, a citation that leads nowhere. Every call of `ralph` is noted
in `calls` beside SCRIPT.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(os.environ["SCRIPT"])
HAT, LIES = os.environ["RALPH_HAT"], json.loads(SCRIPT.read_text()).get("lies", False)
PAGE = sys.stdin.read()
SHOP, TESTS = Path("shop.py"), Path("test_shop.py")


def section(name: str) -> str:
    found = re.search(rf"^<{name}(?: [^>]*)?>\n(.*?)^</{name}>$", PAGE, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


EVENT = section("event-for-you")
[TOPIC] = re.findall(r"^`([^`]+)` from", EVENT, re.MULTILINE)
# A preset that has no use for documents is told of none.
[HOME] = map(Path, re.findall(r"documents in `([^`]+)`", section("documents")) or [".agents/scratchpad/own"])
GIVEN = next((json.loads(line) for line in EVENT.splitlines() if line.startswith("{")), {})


def ralph(*words: str) -> str:
    with SCRIPT.with_name("calls").open("a") as log:
        log.write(json.dumps(words) + "\n")
    done = subprocess.run([os.environ["RALPH_BIN"], *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"ralph {' '.join(words)} exited with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def emit(topic: str, **payload: str) -> None:
    ralph("emit", topic, "--json", json.dumps(payload))


def try_to_emit(topic: str) -> None:
    """Publish what Ralph may refuse, and go on as if nothing had happened."""
    subprocess.run([os.environ["RALPH_BIN"], "emit", topic, "--json", "{}"], capture_output=True, check=False)


def task(*words: str) -> str:
    return ralph("tools", "task", *words)


def ready() -> str:
    """The id of the first task that can be started; empty where there is none."""
    found = json.loads(task("ready", "--format", "json"))
    return found[0]["id"] if found else ""


def ensure(*slugs: str, prefix: str) -> None:
    for slug in slugs:
        task("ensure", slug, "--key", f"{prefix}:{HOME.name}:{slug}", "--description", f"all of {slug}")


def first_time(what: str) -> bool:
    """Whether this is done for the first time in the run."""
    mark = SCRIPT.with_name(f"done-{what}")
    if mark.exists():
        return False
    mark.touch()
    return True


def document(name: str, text: str, *, more: bool = False) -> None:
    if LIES:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    path = HOME / name
    path.write_text((path.read_text() if more and path.exists() else "") + text)


def change(path: Path, old: str, new: str) -> None:
    if not LIES:
        assert old in path.read_text(), (path, old)
        path.write_text(path.read_text().replace(old, new))


def test(name: str, body: str) -> None:
    if not LIES:
        TESTS.write_text(TESTS.read_text() + f"\n    def test_{name}(self):\n        {body}\n")


def decide(what: str) -> None:
    ralph("tools", "decision", "add", what, "--confidence", "60", "--alternatives", "the other way", "--reasoning", "safer",
          "--reversibility", "one commit")  # fmt: skip


EMPTY = "self.assertEqual(shop.average([]), 0)"
GUARD = "    if not prices:\n        return 0\n    return sum(prices) / len(prices)"


def debug() -> None:
    match HAT:
        case "investigator":
            ralph("tools", "memory", "search", "average")
            document("context.md", "The list is empty: `shop.py:8` divides by its length.\n")
            if first_time("look"):
                test("nothing", "self.assertTrue(shop.average([1]) > 0)")
            else:
                test("empty", EMPTY)
            emit("bug.reproduced", test="test_empty", cause="shop.py:8")
        case "fixer":
            if not first_time("fix") and "if not prices" not in SHOP.read_text():
                change(SHOP, "    return sum(prices) / len(prices)", GUARD)
            ralph("tools", "memory", "add", "average of nothing: division by zero", "-t", "fix", "--tags", "average")
            emit("fix.ready", what="an empty list has the average 0")
        case "sceptic":
            if first_time("doubt"):
                return emit("fix.rejected", why="say in the report which version has it")
            emit("LOOP_COMPLETE", cause="division by zero")
    return None


BEHAVIOURS = {
    "empty": EMPTY,
    "doubled": "self.assertEqual(shop.doubled(2), 4)",
    "rounded": "self.assertEqual(shop.average([1, 1, 2]), 1.33)",
}


def tdd() -> None:
    match HAT, TOPIC:
        case "tester", _:
            if TOPIC == "tdd.start":
                ensure("empty", "doubled", prefix="tdd")
            if TOPIC == "behaviour.missing":
                ensure("rounded", prefix="tdd")
            id = GIVEN["task_id"] if TOPIC == "test.passes" else ready()
            slug = json.loads(task("show", id, "--format", "json"))["title"]
            task("start", id)
            if slug == "rounded" and first_time("red"):
                test("rounded_one", "self.assertEqual(shop.average([1, 2]), 1.5)")
            else:
                test(slug, BEHAVIOURS[slug])
            emit("test.red", task_id=id, test=f"test_{slug}")
        case "coder", _:
            if not first_time("green"):
                text = SHOP.read_text()
                if "if not prices" not in text:
                    change(SHOP, "    return sum(prices) / len(prices)", GUARD)
                elif "doubled" not in text:
                    change(SHOP, "def average", "def doubled(price):\n    return 2 * price\n\n\ndef average")
                else:
                    change(SHOP, "return sum(prices) / len(prices)", "return round(sum(prices) / len(prices), 2)")
            emit("test.green", task_id=GIVEN["task_id"])
        case "refactorer", _:
            task("close", GIVEN["task_id"])
            if ready():
                emit("behaviour.done", task_id=GIVEN["task_id"])
            elif first_time("whole"):
                emit("behaviour.missing", what="two digits")
            else:
                emit("LOOP_COMPLETE")


def spec_driven() -> None:
    match HAT:
        case "specifier":
            if first_time("spec"):
                ralph(
                    "tools",
                    "interact",
                    "ask",
                    "What of nothing?",
                    "--options",
                    "0|an error",
                    "--default",
                    "0",
                    "--timeout",
                    "1",
                )
                decide("The average of nothing is 0")
                document("spec.md", "# Averages\n\n- AC-1: the average of nothing is 0\n- AC-2: two digits\n")
            else:
                test("ac_1", EMPTY)
                test("ac_2", "self.assertEqual(shop.average([1, 1, 2]), 1.33)")
            ensure("AC-1", "AC-2", prefix="spec")
            emit("spec.ready", task_id=ready())
        case "builder":
            id = GIVEN["task_id"]
            slug = json.loads(task("show", id, "--format", "json"))["title"]
            task("start", id)
            if slug == "AC-1":
                change(SHOP, "    return sum(prices) / len(prices)", GUARD)
            elif not first_time("second"):
                change(SHOP, "return sum(prices) / len(prices)", "return round(sum(prices) / len(prices), 2)")
            emit("criterion.built", task_id=id)
        case "verifier":
            slug = json.loads(task("show", GIVEN["task_id"], "--format", "json"))["title"]
            if slug == "AC-2" and first_time("doubt"):
                return emit("criterion.rejected", task_id=GIVEN["task_id"], why="1.3333333333333333")
            task("close", GIVEN["task_id"])
            following = ready()
            emit("criterion.next", task_id=following) if following else emit("LOOP_COMPLETE")
    return None


OLD_GONE = 'self.assertFalse([name for name in ("shop.py", "bill.py") if "import tax_old" in open(name).read()])'


def migration() -> None:
    match HAT:
        case "surveyor":
            if TOPIC == "slice.blocked":
                task("add", "Teach tax the old name", "--blocked-by", ready() or GIVEN["task_id"])
            document("context.md", "`git grep -n tax_old` finds 4 uses, in `shop.py:1` and `bill.py:1`.\n")
            document("plan.md", "1. shop\n2. bill\n")
            ensure("01-shop.py", "02-bill.py", prefix="migration")
            if not first_time("survey"):
                test("old_is_gone", OLD_GONE)
            emit("survey.ready", task_id=ready())
        case "migrator":
            id = GIVEN["task_id"]
            title = json.loads(task("show", id, "--format", "json"))["title"]
            task("start", id)
            if title.startswith("0"):
                change(Path(title.partition("-")[2]), "tax_old", "tax")
            ralph("tools", "memory", "add", "tax rounds, tax_old did not", "-t", "pattern", "--tags", "migration")
            if title.startswith("02") and first_time("block"):
                change(Path("bill.py"), "tax", "tax_old")
                task("reopen", id)
                return emit("slice.blocked", task_id=id, why="the name is taken")
            emit("slice.moved", task_id=id)
        case "inspector":
            task("close", GIVEN["task_id"])
            following = ready()
            emit("slices.left", task_id=following) if following else emit("LOOP_COMPLETE")
    return None


NEW_ENOUGH = 'self.assertNotIn("==1", open("requirements.txt").read())'


def dependency_upgrade() -> None:
    match HAT:
        case "surveyor":
            document("context.md", "alpha 2 renames nothing; beta 2 neither; see `requirements.txt:1`.\n")
            ensure("alpha", "beta", prefix="upgrade")
            if not first_time("plan"):
                test("versions", NEW_ENOUGH)
            emit("plan.ready", task_id=ready())
        case "upgrader":
            id = GIVEN["task_id"]
            name = json.loads(task("show", id, "--format", "json"))["title"]
            task("start", id)
            stuck = json.loads(SCRIPT.read_text()).get("stuck") == name
            if stuck or first_time(name):
                decide(f"{name} stays: what it needs is not there yet")
                return emit("upgrade.impossible", task_id=id, why="it needs a newer Python")
            change(Path("requirements.txt"), f"{name}==1", f"{name}==2")
            emit("upgrade.made", task_id=id)
        case "inspector":
            if TOPIC.endswith(".exhausted"):  # an agent that lies claims the end here, too
                return try_to_emit("LOOP_COMPLETE")
            id = GIVEN["task_id"]
            stuck = json.loads(SCRIPT.read_text()).get("stuck")
            if TOPIC == "upgrade.impossible":
                if not stuck or json.loads(task("show", id, "--format", "json"))["title"] != stuck:
                    return emit("upgrade.rejected", task_id=id, why="it can be: I tried")
                task("fail", id)
            else:
                task("close", id)
            if following := ready():
                emit("upgrades.left", task_id=following)
            elif stuck:
                emit("upgrade.incomplete", which=stuck)
            else:
                emit("LOOP_COMPLETE")
    return None


def written(
    prefix: str, slugs: tuple[str, ...], begins: str, done: str, doubt: str, left: str, own: str, report: str
) -> None:
    """Presets that write: one plans, one works through the tasks, one checks and writes the report."""
    if TOPIC.endswith(".start"):
        document("context.md", "What it is about.\n")
        ensure(*slugs, prefix=prefix)
        emit(begins)
    elif done != TOPIC:
        id = GIVEN.get("task_id") or ready()
        task("start", id)
        slug = json.loads(task("show", id, "--format", "json"))["title"]
        document(own.replace("SLUG", slug), f"### {slug}\n\nSee `shop.py:8`.\n", more=own == report)
        if prefix == "docs" and not LIES:
            Path("docs").mkdir(exist_ok=True)
            Path("docs", f"{slug}.md").write_text(f"# {slug}\n\nThe average of prices.\n")
        emit(done, task_id=id)
    else:
        slug = json.loads(task("show", GIVEN["task_id"], "--format", "json"))["title"]
        if first_time("doubt"):
            emit(doubt, task_id=GIVEN["task_id"], why="it says nothing of the empty list")
            return
        notes = section("notes")
        refused = "was refused" in notes
        task("close", GIVEN["task_id"])
        if own != report:
            place = "shop.py:8" if refused or slug != slugs[-1] else "shop.py:800"
            document(report, f"### {slug}\n\nAn empty list ends in an error: `{place}`.\n", more=not refused)
        if not refused and not LIES:
            Path("notes.txt").write_text("left behind\n")
        elif "notes.txt was changed" in notes:
            Path("notes.txt").unlink()
        if ready():
            emit(left)
        else:
            emit("LOOP_COMPLETE")


def main() -> None:
    with SCRIPT.with_name("turns").open("a") as log:
        log.write(f"{HAT} {TOPIC}\n")
    print(f"I am {HAT}, about {TOPIC}.")
    if HAT == "ralph":
        # The coordinator claims the end. Ralph refuses that at once, because a hat of the preset owns the promise.
        subprocess.run([os.environ["RALPH_BIN"], "emit", "LOOP_COMPLETE", "all of it is done"], check=False)
        return
    preset = SCRIPT.with_name("preset").read_text()
    match preset:
        case "review":
            written("review", ("edges", "tests"), "areas.ready", "area.reviewed", "area.doubtful", "review.left",
                    "findings-SLUG.md", "report.md")  # fmt: skip
        case "research":
            written("research", ("how", "why"), "questions.ready", "answer.ready", "answer.doubtful", "research.left",
                    "answer-SLUG.md", "report.md")  # fmt: skip
        case "bug-triage":
            written("triage", ("one", "two"), "reports.ready", "report.triaged", "report.doubtful", "triage.left",
                    "triage-SLUG.md", "report.md")  # fmt: skip
        case "docs":
            written("docs", ("first", "second"), "outline.ready", "page.written", "page.unclear", "pages.left",
                    "sources.md", "sources.md")  # fmt: skip
        case _:
            {"debug": debug, "tdd": tdd, "spec-driven": spec_driven, "migration": migration,
             "dependency-upgrade": dependency_upgrade}[preset]()  # fmt: skip
    return


if __name__ == "__main__":
    main()

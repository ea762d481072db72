"""Many writers at once, into a run that is killed and taken up again: every signal is handled exactly once."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_loop import Project, eventually, make_project

WRITER = """
import os, random, sys, time
from pathlib import Path
from ralph.core.signals import Signal, SignalType
from ralph.store.mailbox import Mailbox
home, writer, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
chance, box = random.Random(f"{seed}/{writer}"), Mailbox(home)
(home / "inputs").mkdir(parents=True, exist_ok=True)
for number in range(count):
    text = f"word {writer}-{number}"
    kind = chance.choice(["INFO", "INFO", "INFO", "STEER"])
    target = chance.choice(["", "", "executor", "Ralph-v2-Executor"])
    style = chance.randrange(3)
    if style == 0:
        box.post(Signal("", SignalType(kind), text, target="executor" if target else ""))
    elif style == 1:
        name = f"signal.261116-0{chance.randrange(10)}0000-{writer:02d}{number:04d}.yaml"
        (home / "inputs" / name).write_text(f"type: {kind.lower()}\\ntarget: {target or 'ALL'}\\nmessage: {text}\\n")
    else:
        with open(home / "inputs" / f"by-hand-{writer}-{number}.yaml", "w") as file:
            file.write(f"type: {kind}\\n")
            file.flush()
            time.sleep(0.002)
            file.write(f"target: {target or 'ALL'}\\nmessage: '{text}'\\n")
    time.sleep(chance.random() * 0.02)
"""
AGENT = """cat > /dev/null
[ -e enough ] && touch done.txt
sleep 0.3"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


@pytest.mark.parametrize(
    ("writers", "each", "kills"),
    [(4, 20, 2), pytest.param(8, 125, 12, marks=pytest.mark.slow)],
    ids=["80 of 4", "1,000 of 8"],
)
def test_every_signal_is_handled_exactly_once(project: Project, writers: int, each: int, kills: int) -> None:
    engine = project.start(
        *project.working(AGENT, "--on-stuck", "continue", "--max-iterations", "100000", "--timeout", "600")
    )
    eventually(lambda: project.journal("turn.started"))
    home, chance = project.run / "signals", random.Random(1)
    pens = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(home), str(writer), str(each), "7"])
        for writer in range(writers)
    ]
    for _ in range(kills):
        time.sleep(0.3 + chance.random())
        engine.kill()
        engine.communicate()
        before = len(project.journal("run.started"))
        engine = project.start("resume", "--json")
        eventually(lambda known=before: len(project.journal("run.started")) > known)  # type: ignore[misc]
    assert [pen.wait() for pen in pens] == [0] * writers
    reader = threading.Thread(target=engine.communicate)
    reader.start()
    eventually(lambda: not list((home / "inputs").iterdir()))
    (project.root / "enough").touch()
    reader.join(120)
    assert engine.returncode == 0

    taken = Counter(entry["signal"]["message"].strip() for entry in project.journal("signal.accepted"))
    assert taken == Counter({f"word {writer}-{number}": 1 for writer in range(writers) for number in range(each)})
    ids = {entry["signal"].get("key") or entry["signal"]["name"] for entry in project.journal("signal.accepted")}
    given: dict[str, set[str]] = {}
    for entry in project.journal("turn.started"):
        for one in entry.get("messages", []):
            given.setdefault(one, set()).add(entry["key"])
    assert given.keys() == ids, "each reached a turn"
    assert all(len(keys) == 1 for keys in given.values()), "and no other work"
    # Under load, one more entry was seen here once for a moment after the engine had ended. The cause is not known.
    eventually(lambda: len(list((home / "processed").iterdir())) == writers * each)
    assert not (home / "rejected").exists()
    assert project.living() == []

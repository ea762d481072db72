"""The agent of these tests: it does its task by its number, or resolves a conflict; some of it goes wrong on purpose."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

SHARED = Path("shared.txt")
LIB = Path("lib.py")


def do(task: str, attempt: int) -> None:
    number = int(task[1:])
    Path("tasks").mkdir(exist_ok=True)
    Path(f"tasks/{task}.txt").write_text(f"{task}\n")
    if number % 5 == 0:
        SHARED.write_text(SHARED.read_text() + f"line of {task}\n")
    if number == 3:
        # One half of a conflict that git does not see: the function gets another name, with all that call it.
        LIB.write_text(LIB.read_text().replace("old_name", "new_name"))
    if number == 4:
        Path("caller.py").write_text("import lib\n\nassert lib.old_name() == 1\n")
    if number == 7 and attempt == 1:
        Path("broken.py").write_text("this is no python\n")


def resolve(task: str) -> None:
    tried = Path(os.environ["TRIED"]) / task
    first = not tried.exists()
    tried.touch()
    if first and task == "t10":
        return  # it leaves everything as it is, marks and all
    if first and task == "t15":
        subprocess.run(["git", "merge", "--abort"], check=False)  # and so takes back what others did
        return
    if SHARED.exists():
        lines = SHARED.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("<<<<<<<", "=======", ">>>>>>>", "|||||||"))]
        SHARED.write_text("".join(f"{line}\n" for line in dict.fromkeys(kept)))
    if first and task == "t20":
        sys.exit(3)
    for file in (LIB, Path("caller.py")):
        if file.exists():
            file.write_text(file.read_text().replace("old_name", "new_name"))


def main() -> None:
    task, attempt = os.environ["RALPH_TASK"], int(os.environ["RALPH_ATTEMPT"])
    time.sleep(random.random() * float(os.environ.get("SLOWNESS", "0.05")))
    if os.environ["RALPH_ROLE"] == "resolver":
        resolve(task)
    else:
        # The attempt is that of the task, which names its worktree; a try of the engine's own counts apart.
        own = Path.cwd().name.rpartition(".")[2]
        do(task, int(own) if own.isdigit() else 1)
    print(f"done {task} {attempt}")


if __name__ == "__main__":
    main()

"""The check of these tests, a file of the repository: everything that is there must fit together."""

import pathlib
import runpy
import sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
sys.dont_write_bytecode = True
for path in here.glob("*.py"):
    compile(path.read_text(), str(path), "exec")
lines = (here / "shared.txt").read_text().splitlines()
assert len(lines) == len(set(lines)), "a line is there twice"
assert not any(line.startswith(("<<<<<<<", ">>>>>>>")) for line in lines), "a conflict was left"
for line in lines:
    name = line.rpartition(" ")[2]
    assert name == "nobody" or (here / "tasks" / f"{name}.txt").exists(), name
for path in sorted(here.glob("caller*.py")):
    runpy.run_path(str(path))

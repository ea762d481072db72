"""Code-assist with the real Claude Code: every hat is a turn of the program, against a model that is scripted.

What the instructions tell a hat to call, the model has it call: the commands are run by the program, in its own shell.
"""

import json
import sys

import pytest
from agent_project import AgentProject
from script import Step, run, say

from ralph.documents.hats.definition import find_work_source

pytestmark = [pytest.mark.real_agents, pytest.mark.quick_agents, pytest.mark.needs_agents("claude")]
OBJECTIVE = "Greet by name"
SOURCE = find_work_source(OBJECTIVE, ".agents/scratchpad/", lambda path: "", "builder,critic,finalizer,planner")
DOCS = SOURCE.documents.rstrip("/")
CHECK = f"`{sys.executable} -m unittest -q`"
CURRENT_TASK = """\
id=$(ralph tools task list --format quiet | head -n 1)
key=$(ralph tools task show "$id" --format json | sed -n 's/.*"key": "\\([^"]*\\)".*/\\1/p')
payload="{\\"task_id\\": \\"$id\\", \\"task_key\\": \\"$key\\"}"
"""
"""Shell commands that read the current task into `id`, `key` and `payload`."""
TEST = """\
import subprocess, sys, unittest


class Greets(unittest.TestCase):
    def test_{name}(self):
        done = subprocess.run([sys.executable, "greet.py", *{arguments}], capture_output=True, text=True)
        self.assertEqual(done.stdout, "hello {name_greeted}\\n")
"""


def hat(*commands: str, task: bool = True) -> tuple[Step, ...]:
    """One turn: commands in a shell that stops at the first error, and the end."""
    return run("\n".join(["set -e", *([CURRENT_TASK] if task else []), *commands])), say("Done.")


def ensure(step: str, title: str) -> str:
    key = f"code-assist:{SOURCE.task_name}:step-{step}:{title.split()[0].lower()}"
    return f'ralph tools task ensure "{title}" --key {key} --description "with a test"'


def progress(step: str, done: str) -> str:
    text = f"## Current Step\n{step}\n\n## Active Wave\n\n## Verification Notes\n\n## Completed Steps\n{done}"
    return f"cat > {DOCS}/progress.md <<'END'\n{text}\nEND"


def build(program: str, name: str, arguments: str, name_greeted: str) -> tuple[Step, ...]:
    return hat(
        f"cat {DOCS}/context.md {DOCS}/plan.md {DOCS}/progress.md",
        'ralph tools task start "$id"',
        "ralph tools memory search greet",
        f"cat > test_{name}.py <<'END'\n{TEST.format(name=name, arguments=arguments, name_greeted=name_greeted)}END",
        f"! {sys.executable} -m unittest -q test_{name}",
        f"cat > greet.py <<'END'\n{program}END",
        f"{sys.executable} -m unittest -q > {DOCS}/logs/{name}.txt 2>&1",
        f'echo "- {name} passes" >> {DOCS}/progress.md',
        f'ralph tools memory add "{name} is greeted by greet.py" -t pattern --tags cli',
        f'ralph tools interact progress "{name} is built"',
        "ralph tools signals",
        'ralph emit review.ready --json "$payload"',
    )


CRITIC = hat(
    'ralph tools task show "$id" --format json',
    f"{sys.executable} -m unittest -q",
    f"{sys.executable} greet.py '' > /dev/null",
    'ralph tools decision add "An empty name is greeted" --confidence 60 --alternatives "an error" --reasoning "harmless"'
    ' --reversibility "easy"',
    'ralph emit review.passed --json "$payload"',
)
JUDGMENT = {"files": [{"path": f"test_{name}.py", "accept": True, "why": "It tests it."} for name in ("world", "name")]}
RUN = (
    *hat(
        f"mkdir -p {DOCS}/logs",
        f"echo '# Context' > {DOCS}/context.md",
        f"printf '# Plan\\n1. Step 1 - It greets\\n2. Step 2 - By name\\n' > {DOCS}/plan.md",
        ensure("01", "World is greeted"),
        progress("01", ""),
        CURRENT_TASK,
        'ralph emit tasks.ready --json "$payload"',
        task=False,
    ),
    *build("print('hello world')\n", "world", "[]", "world"),
    *CRITIC,
    *hat('ralph tools task close "$id"', "ralph emit queue.advance 'step 2 is left'"),
    *hat(
        ensure("02", "Name is greeted"),
        progress("02", "01"),
        CURRENT_TASK,
        'ralph emit tasks.ready --json "$payload"',
        task=False,
    ),
    *hat(
        'ralph tools task start "$id"',
        "! ralph emit review.ready 'no ids' 2> refused.txt",
        'ralph emit review.ready --json "$payload"',
    ),
    *hat('ralph emit review.rejected --json "$payload"'),
    *build("import sys\nprint('hello', *(sys.argv[1:] or ['world']))\n", "name", '["ada"]', "ada"),
    *CRITIC,
    *hat('ralph tools task reopen "$id"', 'ralph emit finalization.failed --json "$payload"'),
    *hat('ralph tools task start "$id"', "ralph tools task ready", 'ralph emit review.ready --json "$payload"'),
    *CRITIC,
    *hat('ralph tools task close "$id"', f"{sys.executable} -m unittest -q", "ralph emit LOOP_COMPLETE 'both steps'"),
    *hat(f"echo '{json.dumps(JUDGMENT)}' > \"$RALPH_OUTBOX/result.json\"", task=False),
)
"""Every turn in its order: two steps, a rejection, a task that is opened again, an event that is refused, and the judge."""


def test_code_assist_runs_from_build_start_to_loop_complete(project: AgentProject) -> None:
    project.set_up("claude")
    project.model.play(*RUN)
    assert project.ralph("init", "--preset", "code-assist").code == 0
    project.git("add", "ralph.yml")
    project.git("commit", "-qm", "preset")
    done = project.ralph("run", "-p", OBJECTIVE, "-b", "claude", "--check", CHECK, "--yes", timeout=400)
    assert done.code == 0, done.output
    assert set(project.turn_ends()) == {"finished"}
    one = ["builder", "critic", "finalizer"]
    roles = [entry["role"] for entry in project.journal("turn.started")]
    assert roles == ["planner", *one, "planner", "builder", "critic", *one, *one, "judge"]
    [path] = (project.root / ".ralph").glob("events-*.jsonl")
    topics = [json.loads(line)["topic"] for line in path.read_text().splitlines()]
    assert topics == [
        *("build.start", "tasks.ready", "review.ready", "review.passed", "queue.advance", "tasks.ready"),
        *("review.ready", "review.rejected", "review.ready", "review.passed", "finalization.failed"),
        *("review.ready", "review.passed", "LOOP_COMPLETE"),
    ]
    agent = project.root / ".ralph" / "agent"
    tasks = [json.loads(line) for line in (agent / "tasks.jsonl").read_text().splitlines()]
    assert [(task["status"], task["key"].rpartition(":")[2]) for task in tasks] == [
        ("closed", "world"),
        ("closed", "name"),
    ]
    assert "name is greeted by greet.py" in (agent / "memories.md").read_text()
    assert "DEC-003" in (agent / "decisions.md").read_text()
    assert {file.name for file in (project.root / DOCS).iterdir()} == {"context.md", "plan.md", "progress.md", "logs"}
    assert "name is built" in project.ralph("logs").out
    assert "In each turn you wear one hat" in project.model.requests[0].user_text
    assert "`review.ready` lacks task_id, task_key" in (project.root / "refused.txt").read_text()

"""`ralph loop` and `ralph run`, and what every workflow needs to start: options, the dry run, foreground and background."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeAlias, TypeVar

import click

from ralph.app.loop import LoopRequest, plan_loop
from ralph.app.run_engine import run_engine, start_detached
from ralph.app.run_options import RunOptions
from ralph.app.runs import count_worktrees, refuse_inside_a_turn
from ralph.app.start import (
    NewRun,
    Preview,
    describe_place,
    describe_worst_case,
    list_limits,
    open_new_run,
    preview_run,
)
from ralph.app.views import read_facts
from ralph.cli.console import DOLLARS, MINUTES, SECONDS, json_option, open_project, print_result
from ralph.cli.render.journal import renderer_for
from ralph.cli.render.live import view_for
from ralph.cli.terminal import print_json, print_text
from ralph.cli.trust import ask_consent
from ralph.core.codec import to_plain
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.store.runs import Project, RunDir
from ralph.workflows.loop.state import OnStuck, TaskType

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = (
    click.option(
        "--agent",
        "agents",
        multiple=True,
        help="The agent: claude, codex, gemini, ... Repeat the option to add agents that take over if one reaches its"
        " provider's limit. Default: the agents in ralph.yml, or the first agent that is installed and signed in.",
    ),
    click.option("--model", default="", help="The model of the first agent, as the agent names it."),
    click.option(
        "--agent-arg",
        "agent_args",
        multiple=True,
        metavar="ARG",
        help="An argument for the first agent's program. Can be repeated.",
    ),
    click.option(
        "--no-sub-agents", is_flag=True, help="Don't let agents start sub-agents. Not every agent supports this."
    ),
    click.option(
        "--agent-acp", help="The command of an agent that speaks the Agent Client Protocol, for example 'opencode acp'."
    ),
    click.option(
        "--agent-command",
        help="Use this program as the agent. It reads the prompt from standard input and works in the run's directory.",
    ),
    click.option("--scenario", help="The scenario file of the scripted agent."),
    click.option(
        "--max-iterations",
        type=int,
        help="The maximum number of iterations. Default: 10; with hats, what the preset says. Not for sessions.",
    ),
    click.option(
        "--timeout",
        type=MINUTES,
        help="The maximum active time, in minutes. Pauses don't count. Default: 60; with hats, what the preset says;"
        " for sessions, no limit.",
    ),
    click.option(
        "--deadline", help="The local time at which all work stops, for example 2026-11-16T07:00. Default: none."
    ),
    click.option(
        "--max-cost",
        type=DOLLARS,
        help="The maximum cost, in US dollars. Default: no limit. Refused if the cost of an agent is unknown.",
    ),
    click.option(
        "--allow-unpriced",
        is_flag=True,
        help="Start even if Ralph cannot enforce --max-cost because a cost is unknown.",
    ),
    click.option("--max-tokens", type=int, help="The maximum number of tokens. Default: no limit."),
    click.option(
        "--max-quota",
        help="Stop using an agent when this share of its subscription is used up, by this run or by anything else."
        " For example: 80%. Default: no limit. Works with agents that report it: claude and codex.",
    ),
    click.option("--turn-timeout", type=MINUTES, help="The maximum duration of one turn, in minutes. Default: 60."),
    click.option(
        "--idle-timeout", type=MINUTES, help="The maximum time without output in a turn, in minutes. Default: 15."
    ),
    click.option("--check-timeout", type=SECONDS, help="The maximum duration of one check, in seconds. Default: 600."),
    click.option(
        "--parallel",
        type=int,
        help="How many turns run at the same time, in sessions and in waves of hats. Default: 3.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="RULE=REASON",
        help="Switch off a guard rule. The reason goes into the journal. Can be repeated.",
    ),
    click.option(
        "--may-change",
        multiple=True,
        metavar="GLOB",
        help="Let the run change tests and settings of checks that match. Can be repeated.",
    ),
    click.option(
        "--require",
        type=click.Choice(["auto", "proven", "judged"]),
        help="What a success needs. `proven`: a proof; a judge cannot accept changed tests. `judged`: a judge also looks at "
        "work that is proven, and tests it. `auto`: a judge only if tests or settings had to change. Default: auto.",
    ),
    click.option(
        "--judge",
        metavar="AGENT",
        help="The agent that judges. Implies --require judged. Default: the second agent of the run, or else the first.",
    ),
    click.option(
        "--no-clean-room",
        is_flag=True,
        help="Don't confirm the result in a clean checkout. Files that git ignores can then decide what passes.",
    ),
    click.option("--worktree", is_flag=True, help="Work in a git worktree, on the branch ralph/<run>/run."),
    click.option(
        "--land",
        type=click.Choice(["ff", "branch", "push"]),
        help="What to do with the run's branch on success: fast-forward yours, leave it, or push it."
        " Default: branch; for sessions: ff.",
    ),
    click.option(
        "--no-snapshots", is_flag=True, help="Don't record your files. `ralph diff` and `ralph undo` then don't work."
    ),
    click.option(
        "--sandbox",
        type=click.Choice(["auto", "off", "write", "strict", "require"]),
        help="How agents and checks are isolated. Default: the level in your own settings, or auto.",
    ),
    click.option(
        "--pool",
        metavar="POOL",
        help="Where turns run: `local`, `ray`, or the address of a Ray cluster (docs/cluster.md). Default: the pool in your"
        " own settings, or local.",
    ),
)
"""The options of `RunOptions`: they become part of the run's record."""
_START = (
    click.option(
        "--dir",
        "directory",
        metavar="PATH",
        help="The directory in which the agent and the checks work. Default: this directory.",
    ),
    click.option("--detach", "detached", is_flag=True, help="Work in the background, even if this terminal closes."),
    click.option(
        "--dry-run", is_flag=True, help="Show the prompt, the checks, the limits and the worst case. Start nothing."
    ),
    click.option("--yes", is_flag=True, help="Agree to everything that the run starts. Don't ask."),
    json_option,
)
"""How the run is started."""


def run_options(command: F) -> F:
    """Give a command the options with which a run of any workflow is started."""
    for option in reversed((*_SETTINGS, *_START)):
        command = option(command)
    return command


def options_from(params: Mapping[str, Any]) -> RunOptions:
    """The options of a run among the parameters of a command."""
    return RunOptions(**{field.name: params[field.name] for field in fields(RunOptions) if field.name != "cwd"})


@click.command("loop")
@click.argument("task")
@click.option(
    "--until",
    "criterion",
    help="When the task is done: commands in backticks, metrics, files, or phrases like 'tests pass', joined by AND."
    " @FILE reads it from a file.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice([kind.value for kind in TaskType]),
    help="The type of task. Default: Ralph guesses it from the wording of the task.",
)
@click.option("--scope", multiple=True, metavar="GLOB", help="Allow changes only to files that match. Can be repeated.")
@click.option("--confirm", type=int, help="How many times in a row the checks must pass on the same tree. Default: 1.")
@click.option(
    "--on-stuck",
    type=click.Choice([choice.value for choice in OnStuck]),
    help="What to do when the loop is stuck. Default: stop.",
)
@click.option("--reflector", is_flag=True, help="Add a turn that reflects on every failed iteration.")
@click.option("--no-recall", is_flag=True, help="Don't tell the agent what earlier loops learned.")
@click.option(
    "--commit/--no-commit", "commits", default=None, help="Commit every iteration to the current branch. Default: no."
)
@run_options
def loop(task: str, **params: Any) -> int:
    """Work on TASK until the criterion in --until holds. Ralph runs the checks itself. TASK `-` reads standard input.

    \b
    ralph loop "Fix the failing tests" --until '`pytest -q` passes' --agent-command "python3 my_agent.py"
    """
    refuse_inside_a_turn()
    text = sys.stdin.read() if task == "-" else task
    names = ("criterion", "kind", "scope", "confirm", "on_stuck", "reflector", "no_recall", "commits")
    request = LoopRequest(text, **{name: params[name] for name in names})
    return start_or_show(plan_loop(open_project(params["directory"]), request, options_from(params)), params)


@click.command("run")
@click.option(
    "-c",
    "--config",
    "given",
    multiple=True,
    metavar="FILE|KEY=VALUE",
    help="A file, or one key, that overrides ralph.yml. Can be repeated.",
)
@click.option(
    "-H",
    "--hats",
    "preset",
    metavar="FILE|NAME",
    help="The preset, which overrides all files: a file, or a name from `ralph hats list`.",
)
@click.option("-p", "--prompt", help="The objective. `-` reads standard input.")
@click.option("-P", "--prompt-file", help="The file with the objective. Default: PROMPT.md.")
@click.option("-b", "--backend", help="The same as --agent.")
@click.option("--completion-promise", help="The event or last line that ends the run. Default: LOOP_COMPLETE.")
@click.option(
    "--check",
    "criteria",
    multiple=True,
    help="A criterion in addition to those of the preset, in the syntax of --until. Can be repeated.",
)
@click.option("--unchecked", is_flag=True, help="Start even if `ralph hats check` finds errors in the preset.")
@run_options
def run(prompt: str | None, backend: str | None, **params: Any) -> int:
    """Work on an objective with the hats of ralph.yml, one turn for each event, until it is done and verified.

    \b
    ralph init --preset code-assist && ralph run -p "Add --verbose to the CLI" --check 'tests pass'
    """
    from ralph.app.hats import HatsRequest, plan_hats  # a loop does not need the rules of hats

    refuse_inside_a_turn()
    text = sys.stdin.read() if prompt == "-" else prompt
    names = ("prompt_file", "preset", "given", "completion_promise", "criteria", "unchecked")
    request = HatsRequest(text, **{name: params[name] for name in names})
    options = options_from(params)
    if backend:
        options = replace(options, agents=(*options.agents, backend))
    return start_or_show(plan_hats(open_project(params["directory"]), request, options), params)


Describe: TypeAlias = Callable[[RunDir], Mapping[str, Any]]
"""Returns what the JSON output of a command says about a run besides its outcome."""


def start_or_show(
    new: NewRun, params: Mapping[str, Any], describe: Describe = lambda run: {}, guidance: str = ""
) -> int:
    """Start a new run as the options say, or only show it. Its first turns receive the guidance."""
    as_json = params["as_json"]
    if params["dry_run"]:
        return _show_plan(new, preview_run(new), as_json=as_json)
    ask_consent(new.find_consent(), yes=params["yes"])
    with open_new_run(new) as (run, notices):
        if guidance:
            # The message of a RESUME holds for the whole run and asks for no response.
            run.mailbox.post(Signal("", SignalType.RESUME, guidance))
        if params["detached"]:
            return detach(new.project, run, as_json=as_json, notices=notices, describe=describe)
        return run_in_foreground(new.project, run, notices, as_json=as_json, describe=describe)


def run_in_foreground(
    project: Project,
    run: RunDir,
    notices: tuple[str, ...],
    *,
    as_json: bool,
    granted: Limits | None = None,
    resumes: bool = False,
    describe: Describe = lambda run: {},
) -> int:
    """Run the engine in this terminal, and print how the run ended."""
    record = run.record()
    limits = granted or record.limits
    renderer = renderer_for(project, record, limits)
    so_far = replace(read_facts(project, run), allowed=limits)
    with view_for(renderer, so_far, as_json=as_json) as view:
        stop = asyncio.run(run_engine(project, run, view, notices, granted=granted, resumes=resumes))
    report = next((path for path in view.documents if "completion-" in path), "")
    lines = ["", *renderer.closing(view.ended, report)] if view.ended else []
    if landed := view.landed:
        where = (
            f"on {landed.branch}, as {landed.commit[:10]}"
            if landed.moved
            else landed.notice.removeprefix("the work is ")
        )
        lines.append(f"Work:   {where}")
    if turns := renderer.committing_turns:
        lines.append(f"Commits: in {'turn' if len(turns) == 1 else 'turns'} {', '.join(map(str, turns))}, by the agent")
    # The reason of an unproven run is its evidence.
    if view.ended and view.ended.evidence and view.ended.outcome is not Outcome.UNPROVEN:
        lines.append(f"Evidence: {view.ended.evidence.sentence}")
    if view.ended and view.ended.is_exposed:
        lines.append(f"Sandbox: {view.ended.sandbox}")
    lines += [f"CHANGED: {sentence}" for sentence in (view.ended.missing if view.ended else ())]
    if not stop.outcome.resumable and (trees := count_worktrees(project, record)):
        advice = "`ralph worktrees` lists them, --prune removes those that are merged"
        lines.append(f"Trees:  {trees} in .ralph/worktrees; {advice}")
    spent = to_plain(view.ended.spent) if view.ended else {}
    facts = {"outcome": stop.outcome, "reason": stop.reason, "exit_code": stop.outcome.exit_code, "spent": spent}
    if view.ended and view.ended.evidence:
        facts["evidence"] = to_plain(view.ended.evidence)
    if as_json:
        print_json(command="run", run=run.id, **facts, report=report, **describe(run))
    else:
        view.print_lines(lines)
    return stop.outcome.exit_code


def detach(
    project: Project,
    run: RunDir,
    *,
    as_json: bool,
    command: tuple[str, ...] = ("resume",),
    options: tuple[str, ...] = (),
    notices: tuple[str, ...] = (),
    describe: Describe = lambda run: {},
) -> int:
    """Run the engine in the background, and print how to follow it."""
    engine = start_detached(project, run, command, options)
    lines = [f"note: {notice}" for notice in notices if notice]
    lines.append(f"Run {run.id} continues in the background (process {engine.pid}).")
    lines.append(f"Next:   ralph logs -f {run.id}   ralph status   ralph abort {run.id}")
    facts = {"run": run.id, "pid": engine.pid, "log": str(engine.log), "notices": notices}
    described = describe(run) if as_json else {}
    return print_result(as_json, lines, command="detach", **facts, **described)


def _show_plan(new: NewRun, shown: Preview, *, as_json: bool) -> int:
    """Print what a run would do, and what it could cost at worst."""
    record, worst = new.record, describe_worst_case(new.record, shown.unpriced)
    if as_json:
        print_json(command="plan", settings=asdict(record), prompt=shown.prompt, worst_case=worst, notes=new.notices)
        return 0
    lines = ["Checks:" if record.checks else "Checks:     none"]
    for check in record.checks:
        lines.append(f"  {check.title}" + (f"   (at most {check.timeout:g} s)" if check.command else ""))
    lines += [f"note: {note}" for note in new.notices]
    if record.workflow == "loop":
        lines.append(f"Type:       {record.loop.type}")
    lines += [f"Agent:      {label}: {words} < prompt" for label, words in shown.agents.items()]
    lines += [f"Directory:  {describe_place(new)}", f"Worst case: {worst}"]
    lines += [f"  {name:<16} {value}" for name, value in list_limits(record)]
    print_text("\n".join([*lines, "\nFirst prompt:\n"]))
    print_text(shown.prompt, wraps=False)
    return 0

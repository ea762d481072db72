"""`ralph simulate`: thousands of runs without an agent, before one is paid for."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ralph.cli.console import here, json_option, positive, tell
from ralph.cli.simulated import plan_for
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome
from ralph.simulate import profile as profiles
from ralph.simulate.figures import SHARES, TAKEN, Figures
from ralph.simulate.picture import amount, histogram, svg
from ralph.simulate.play import Plan, play
from ralph.simulate.profile import Profile
from ralph.simulate.telling import story
from ralph.store.files import read_text, refuse_unwritable, write_text
from ralph.workflows.loop.state import OnStuck

USUAL = "competent"


@click.command("simulate")
@click.argument("target", required=False, default="")
@click.option("--agent", "name", default="", help="How the agent behaves: competent, lazy, lying, ... (competent).")
@click.option("--profile", "file", metavar="FILE", help="A profile of your own, over that of a competent agent.")
@click.option("--runs", type=int, default=500, help="How many runs (500).")
@click.option("--seed", type=int, default=1, help="The seed of the first run; each next one has the next (1).")
@click.option("--crashes/--no-crashes", default=True, help="Whether engines are killed and started again.")
@click.option("--signals/--no-signals", default=True, help="Whether people pause, steer, inform and abort.")
@click.option("--check", "checks", multiple=True, help="What the engine checks; here it tells the truth.")
@click.option(
    "-c", "--config", "given", multiple=True, metavar="FILE|KEY=VALUE", help="A file, or one key, over ralph.yml."
)
@click.option(
    "--on-stuck", type=click.Choice([one.value for one in OnStuck]), help="A loop: what follows when nothing moves."
)
@click.option("--reflector", is_flag=True, help="A loop: a turn reflects on every failed iteration.")
@click.option("--parallel", type=int, help="A session: tasks at once (3).")
@click.option("--max-iterations", type=int, help="Iterations at most.")
@click.option("--timeout", type=float, help="Active minutes at most.")
@click.option("--max-cost", type=float, help="US dollars at most.")
@click.option("--max-tokens", type=int, help="Tokens at most.")
@click.option("--svg", "picture", metavar="FILE", help="Write a picture of the distribution (- for standard output).")
@click.option("--replay", type=int, metavar="SEED", help="Tell the run of that seed turn by turn.")
@click.option(
    "--require", type=float, metavar="SHARE", help="Fail where fewer are completed (0.99), or one claims it falsely."
)
@json_option
def command(
    target: str,
    name: str,
    file: str | None,
    runs: int,
    seed: int,
    crashes: bool,
    signals: bool,
    picture: str | None,
    replay: int | None,
    require: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Have TARGET run thousands of times with simulated agents, on the real rules: does it finish, and what does it take?

    TARGET is a preset by its name or file (else the ralph.yml of this project), `loop`, `session`, or a run or session of this
    project by its id: a session goes on from where it is.

    \b
    ralph simulate code-assist --agent lying --require 0
    ralph simulate loop --max-iterations 10 --on-stuck continue
    """
    positive("--runs", runs, None)
    if require is not None and not 0 <= require <= 1:
        raise UsageError(f"--require {require} is no share", todo="give a number from 0 to 1, such as 0.99")
    plan = plan_for(here(), target, _profile(name, file, crashes=crashes, signals=signals), options)
    if replay is not None:
        if picture or require is not None:
            raise UsageError("--replay is about one run", todo="leave --svg and --require out")
        run = play(plan, replay, keeps=True)
        facts = {"seed": replay, "outcome": run.outcome, "reason": run.reason, "true": run.true}
        return tell(as_json, story(run), command="simulate", **facts, story=[*story(run)])
    if picture == "-" and as_json:
        raise UsageError("--svg - and --json exclude each other", todo="give --svg the name of a file")
    if picture and picture != "-":
        refuse_unwritable(Path.cwd() / picture)
    hidden = not sys.stderr.isatty()
    with click.progressbar(range(seed, seed + runs), file=sys.stderr, label="simulating", hidden=hidden) as seeds:
        figures = Figures([play(plan, one) for one in seeds])
    agent = file or name or USUAL
    title = f"{target or plan.name}, agent {agent}"
    if picture and picture != "-":
        write_text(Path.cwd() / picture, svg(figures, title))
    facts = {"target": target, "agent": agent, "seed": seed, "assumed": plan.about, **figures.plain()}
    lines = [svg(figures, title).rstrip()] if picture == "-" else _table(figures, plan, title, seed)
    tell(as_json, lines, command="simulate", **facts)
    met = require is None or (figures.share >= require and not figures.false)
    return 0 if met else Outcome.FAILED.exit_code


def _profile(name: str, file: str | None, *, crashes: bool, signals: bool) -> Profile:
    if name and file:
        raise UsageError("--agent and --profile exclude each other", todo="give one of them")
    if file:
        text = read_text(Path.cwd() / file, 64 * 1024, "the profile", "give the path of a YAML file")
    profile = profiles.parse(text, file) if file else profiles.named(name or USUAL)
    gone = {} if crashes else {"crash": 0.0}
    gone |= {} if signals else dict.fromkeys(("pause", "steer", "inform", "abort"), 0.0)
    return profile.model_copy(update={"befalls": profile.befalls.model_copy(update=gone)})


def _table(figures: Figures, plan: Plan, title: str, seed: int) -> Iterator[str]:
    number, (low, high) = len(figures.runs), figures.between
    yield f"{title}: {number} runs, seeds {seed} to {seed + number - 1}"
    yield f"Assumed    {plan.about}\n" if plan.about else ""
    yield f"Completed  {figures.share:.1%}  (with 95% confidence {low:.1%} to {high:.1%})"
    yield f"False      {len(figures.false)} ended as a success and are none"
    if aborted := number - len(figures.counted):
        yield f"Aborted    {aborted} by a person; they are not counted"
    yield "\n" + " " * 9 + "".join(f"{label:>10}" for label in SHARES)
    for name in TAKEN:
        yield f"{name:<9}" + "".join(f"{amount(name, value):>10}" for value in figures.quantiles(name).values())
    yield "\nOutcomes"
    for outcome, count, reason in figures.outcomes:
        yield f"  {outcome:<18}{count:>6}  {reason[:90]}"
    if figures.in_the_way:
        yield "\nIn the way of those that were not completed"
        for text, count in figures.in_the_way:
            yield f"  {count:>6}  {text[:110]}"
    yield "\nTurns in a run, on average: " + ", ".join(f"{role} {mean:.1f}" for role, mean in figures.roles.items())
    yield "\nRuns by turns (hollow: not completed)"
    yield from histogram(figures, "turns")
    yield "\nWorst      " + ", ".join(f"{what} {one}" for what, one in figures.worst.items())
    yield f"Next:      the same with --replay {next(iter(figures.worst.values()))} tells that run turn by turn"

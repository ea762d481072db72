"""`ralph workers`: the machines of a Ray cluster on which turns run."""

from dataclasses import asdict

import click

from ralph.app import workers as app
from ralph.app.workers import WorkerOptions, WorkerProof
from ralph.cli.console import json_option, print_result
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome
from ralph.core.text import count

pool_option = click.option(
    "--pool",
    metavar="HOST:PORT",
    help="The address of the cluster. Default: the address in your own settings, or `auto`.",
)


@click.group("workers", invoke_without_command=True)
@pool_option
@json_option
@click.pass_context
def workers(context: click.Context, pool: str | None, as_json: bool) -> int:
    """List the workers of the cluster, and what each offers."""
    if context.invoked_subcommand:
        return 0
    nodes = app.list_workers(pool)
    lines = [f"{'WORKER':<16} {'ADDRESS':<16} {'FREE CPU':<10} {'MEMORY':<9} {'AGENTS':<24} LABELS"]
    for node in sorted(nodes, key=lambda one: one.name):
        cpus = f"{node.free.get('CPU', 0):g}/{node.offers.get('CPU', 0):g}"
        memory = f"{node.offers.get('memory', 0) / (1 << 30):.0f} GiB"
        agents = ", ".join(f"{name} ({turns})" for name, turns in node.agents.items()) or "-"
        name = f"{node.name} (head)" if node.is_head else node.name
        lines.append(
            f"{name:<16} {node.address:<16} {cpus:<10} {memory:<9} {agents:<24} {', '.join(node.labels) or '-'}"
        )
    return print_result(as_json, lines, command="workers", workers=[asdict(node) for node in nodes])


@workers.command("check")
@pool_option
@json_option
def check(pool: str | None, as_json: bool) -> int:
    """Check each worker: do Ralph, git, the sandbox and its agents start there, and do its versions match this machine's?"""
    proofs = app.check_workers(pool)
    lines: list[str] = []
    for proof in proofs:
        lines += _describe_proof(proof)
    found = [asdict(proof) for proof in proofs]
    print_result(as_json, lines or ["The cluster has no worker."], command="workers check", workers=found)
    return 0 if proofs and all(proof.ok for proof in proofs) else Outcome.USAGE.exit_code


def _describe_proof(proof: WorkerProof) -> list[str]:
    agents = ", ".join(proof.node.agents) or "no agent announced"
    mark = "ok" if proof.ok else "FAIL"
    if proof.ok:
        facts = f"Ralph {proof.ralph}, Python {proof.python}, git, sandbox: {proof.sandbox}; {agents}"
        return [f"{mark:<4} {proof.node.name:<16} {facts}"]
    return [f"{mark:<4} {proof.node.name:<16} {name}: {why}" for name, why in proof.problems.items()]


@workers.command("start")
@click.option("--head", is_flag=True, help="Start a new cluster with this machine as its head.")
@click.option("--join", metavar="HOST:PORT", help="Join the cluster whose head has this address.")
@click.option("--host", help="The address at which other machines reach this one. Default: the one that Ray finds.")
@click.option("--port", type=int, default=app.PORT, show_default=True, help="The port of a new head.")
@click.option("--name", help="The name of the worker on all screens. Default: the host name.")
@click.option("--label", "labels", multiple=True, help="A label that turns can ask for. Can be repeated.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME[=TURNS]",
    help="An agent that this machine offers, and how many of its turns run here at once. Can be repeated."
    " Default: all installed agents, 4 turns each.",
)
@click.option("--cpus", type=float, help="How many CPUs turns may use; 0 for a head that runs no turns. Default: all.")
@click.option("--home", metavar="DIR", help="Where to keep repositories. Default: ~/.cache/ralph/worker.")
@json_option
def start(head: bool, join: str | None, labels: tuple[str, ...], agents: tuple[str, ...], **more: object) -> int:
    """Make this machine a worker of a cluster, in the background.

    Access to a cluster is like ssh access: anyone who can reach its address can start programs on all its machines.
    """
    as_json = bool(more.pop("as_json"))
    if head == bool(join):
        raise UsageError("pass either --head or --join", todo="`ralph workers start --head` starts a new cluster")
    given = {name: value for name, value in more.items() if value is not None}
    options = WorkerOptions(join=join or "", labels=labels, agents=agents, **given)  # type: ignore[arg-type]
    worker = app.start_worker(options)
    lines = [f"The worker {worker.name} is running (log: {worker.log})."]
    if worker.is_head:
        lines += [
            f"On every other machine:  ralph workers start --join {worker.address}",
            f'Then:                    ralph loop "..." --until "..." --pool {worker.address}',
        ]
    lines.append("`ralph workers stop` ends it.")
    return print_result(as_json, lines, command="workers start", worker=asdict(worker))


@workers.command("stop")
@click.argument("name", default="")
@json_option
def stop(name: str, as_json: bool) -> int:
    """End the workers that `ralph workers start` started on this machine, and everything that they run."""
    ended = app.stop_workers(name)
    names = ", ".join(worker.name for worker in ended)
    lines = [f"Ended {count(len(ended), 'worker')}: {names}."] if ended else ["No worker was started on this machine."]
    return print_result(as_json, lines, command="workers stop", ended=[asdict(worker) for worker in ended])

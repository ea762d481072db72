"""`ralph steer`, `ralph pause`, `ralph signal`, `ralph signals` and `ralph answer`: message a run, and see the effect."""

import re
import time
from dataclasses import asdict

import click

from ralph.app.runs import find_latest_run, find_live_run
from ralph.app.steer import PostedSignal, ReceiptRow, SignalRow, allow_hosts, answer_question, list_signals, post_signal
from ralph.cli.console import (
    clock_time,
    complete_roles,
    complete_runs,
    json_option,
    open_project,
    print_result,
    run_argument,
)
from ralph.cli.render.run import comment_text
from ralph.cli.terminal import print_json, print_text
from ralph.core.codec import parse_time
from ralph.core.errors import UsageError
from ralph.core.ids import is_start_of_run_id
from ralph.core.signals import ASKED_FOR, MESSAGE_ONLY_TYPES, Signal, SignalType
from ralph.core.text import count
from ralph.documents.hats.definition import show_role
from ralph.view.labels import describe_means

_QUESTION_ID = re.compile(r"q[0-9]+")

run_option = click.option(
    "--run",
    metavar="ID",
    shell_complete=complete_runs,
    help="The run. Default: the live run, or the only run that can continue.",
)
to_option = click.option(
    "--to",
    "role",
    default="",
    metavar="ROLE",
    shell_complete=complete_roles,
    help="The role that should receive it. Default: all.",
)
now_option = click.option(
    "--now", is_flag=True, help="Interrupt the turn and continue the same conversation with your message."
)


@click.command("signal")
@click.argument("type", type=click.Choice([kind.lower() for kind in SignalType], case_sensitive=False))
@click.argument("message", default="")
@to_option
@run_option
@now_option
@click.option(
    "--iteration",
    type=click.IntRange(min=0),
    help="Deliver the signal in this iteration. It expires afterwards. Default: now.",
)
@click.option("--item", "items", multiple=True, help="What you approve. Can be repeated. Default: everything.")
@json_option
def signal(
    type: str,
    message: str,
    role: str,
    run: str | None,
    now: bool,
    iteration: int | None,
    items: tuple[str, ...],
    as_json: bool,
) -> int:
    """Send a signal to a run, with a MESSAGE.

    \b
    steer    change direction
    info     give the agents information
    pause    stop the run after its turn; with --now, at once
    resume   end a pause
    abort    end the run for good
    approve  keep what a session learned
    skip     drop what a session learned
    """
    signal = Signal("", SignalType.parse(type), message, iteration=iteration, items=items, now=now)
    return _show_posted(post_signal(open_project(), signal, role, run), as_json=as_json)


@click.command("steer")
@click.argument("message")
@to_option
@run_option
@now_option
@json_option
def steer(message: str, role: str, run: str | None, now: bool, as_json: bool) -> int:
    """Give MESSAGE as guidance to the agents of a run. It stays in force until the run ends.

    These agents receive it in the middle of a turn, with their next step: claude, codex, gemini, opencode, copilot, qwen, pi
    and mini, and most agents through ACP. Any other agent is asked to run `ralph tools signals`
    while it works. If it does not, it receives the message with its next turn, or at once with --now. `ralph signals` shows
    who received it, and with what effect.
    """
    signal = Signal("", SignalType.STEER, message, now=now)
    return _show_posted(post_signal(open_project(), signal, role, run), as_json=as_json)


@click.command("pause")
@click.argument("words", nargs=-1, metavar="[RUN] [MESSAGE]", shell_complete=complete_runs)
@run_option
@click.option("--now", is_flag=True, help="Interrupt the turn now. `ralph resume` continues its conversation.")
@json_option
def pause(words: tuple[str, ...], run: str | None, now: bool, as_json: bool) -> int:
    """Pause RUN after its current turn. `ralph resume` continues it. Default: the live run.

    MESSAGE is the reason. The end screen and `ralph status` show it.
    """
    message = list(words)
    if message and is_start_of_run_id(message[0]):
        run = message.pop(0)
    if len(message) > 1:
        raise UsageError("the message is more than one argument", todo="put it in quotes")
    signal = Signal("", SignalType.PAUSE, " ".join(message), now=now)
    return _show_posted(post_signal(open_project(), signal, "", run), as_json=as_json)


@click.command("allow")
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@run_option
@json_option
def allow(hosts: tuple[str, ...], run: str | None, as_json: bool) -> int:
    """Let the agents and checks of a run reach HOST, if its sandbox is `strict`. It lasts until the run ends.

    HOST is a name (ports 80 and 443), `name:port`, `*.domain` for all hosts of a domain, or `localhost:port`. For all your runs,
    put it into your own settings: `sandbox: {connect: [HOST]}`.
    """
    from ralph.app.sandbox import is_of_this_machine  # the other commands of this module need no settings

    found, new, name = allow_hosts(open_project(), hosts, run)
    lines = [f"Run {found.id} can reach {', '.join(new)} now." if new else f"Run {found.id} could already reach that."]
    if any(is_of_this_machine(host) for host in new):
        lines.append("A port of this machine opens with the next turn.")
    return print_result(as_json, lines, command="allow", run=found.id, hosts=new, name=name)


def _show_posted(posted: PostedSignal, *, as_json: bool) -> int:
    """Print when the run receives a signal, and how to follow that."""
    run, signal = posted.run, posted.signal
    next_command = f"ralph signals --run {run.id} --watch"
    if signal.type is SignalType.ABORT:
        effect = "The run is still ending its turn." if run.alive else f"The run is over: {run.outcome()}."
        next_command = f"ralph status {run.id}"
    elif not run.alive:
        effect = "The run receives it when you resume it."
        next_command = f"ralph resume {run.id}"
    elif signal.type in ASKED_FOR:
        effect = "The session receives it when it asks whether to keep what it learned."
    else:
        effect = "The run receives it within a few seconds."
    target = f" for {show_role(signal.target)}" if signal.target else ""
    lines = [f"Sent {signal.type}{target} to run {run.id}. {effect}"]
    if signal.message:
        lines.append(f'  "{" ".join(signal.message.split())}"')
    lines.append(f"Next:   {next_command}")
    facts = {"type": signal.type, "to": signal.target or "ALL", "name": posted.name, "alive": run.alive}
    return print_result(as_json, lines, command="signal", run=run.id, **facts)


@click.command("answer")
@click.argument("words", nargs=-1, required=True, metavar="[ID] ANSWER")
@run_option
@json_option
def answer(words: tuple[str, ...], run: str | None, as_json: bool) -> int:
    """Answer the question ID. Default: the only open question. The agent receives ANSWER as you type it."""
    id = words[0] if len(words) > 1 and _QUESTION_ID.fullmatch(words[0]) else ""
    text = " ".join(words[1:] if id else words).strip()
    chosen, question = answer_question(open_project(), run, id, text)
    lines = [f"Answered {question.id} of run {chosen.id}: {question.question.splitlines()[0]}"]
    return print_result(as_json, lines, command="answer", run=chosen.id, question=question.id, answer=text)


@click.command("signals")
@run_argument
@click.option("--run", "named", metavar="ID", shell_complete=complete_runs, help="The same as RUN.")
@click.option("--watch", is_flag=True, help="Follow the run until it ends.")
@json_option
def signals(run: str | None, named: str | None, watch: bool, as_json: bool) -> int:
    """Show the signals of a run: who received each, how, and with what effect. Default: the live run, or the latest."""
    if run and named and run != named:
        raise UsageError(f"two runs are named: {run} and {named}", todo="give one of them")
    run = run or named
    project = open_project()
    is_alive = not run and any(one.alive for one in project.runs())
    chosen = (
        find_live_run(project, None, "show the signals of", "--run ID") if is_alive else find_latest_run(project, run)
    )
    shown: dict[str, str] = {}
    while True:
        continues = watch and chosen.alive
        rows = list_signals(project, chosen)
        if as_json and not watch:
            print_json(command="signals", run=chosen.id, signals=[asdict(row) for row in rows])
            return 0
        for row in rows:
            key, text = f"{row.name} {row.at}", "\n".join(_signal_lines(row))
            if shown.get(key) == text:
                continue
            shown[key] = text
            if as_json:
                print_json(command="signals", run=chosen.id, signal=asdict(row))
            else:
                print_text(text)
        if not continues:
            break
        time.sleep(0.2)
    if not shown and not as_json:
        print_text(f"Run {chosen.id} has received no signals.")
        if chosen.can_go_on:
            print_text(f'Next:   ralph steer "..." --run {chosen.id}')
    return 0


def _signal_lines(row: SignalRow) -> list[str]:
    when = clock_time(parse_time(row.at)) if row.at else "--:--:--"
    if row.state == "refused":
        # What was refused could not be read as a signal, so only its file can be named.
        return [f"{when}  refused {row.name}: {row.reason}"]
    head = f"{when}  {row.type}"
    if row.target != "ALL":
        head += f" for {row.target}"
    if row.comments:
        head += f": {count(len(row.comments), 'comment')} on the changes"
    elif message := " ".join(row.message.split()):
        head += f": {message}"
    comments = [f"{'':10}{comment_text(one)}" for one in row.comments]
    if row.state == "waiting":
        return [head, *comments, f"{'':10}{row.reason}"]
    receipts = [f"{'':10}{_receipt_text(one)}" for one in row.receipts]
    if receipts:
        return [head, *comments, *receipts]
    head = "\n".join([head, *comments])
    goes_to_agents = row.type in MESSAGE_ONLY_TYPES
    return [head, f"{'':10}no turn has received it yet" if goes_to_agents else f"{'':10}done"]


def _receipt_text(receipt: ReceiptRow) -> str:
    """Who received a signal, how, when, and what the agent made of it."""
    when = clock_time(parse_time(receipt.at))
    text = f"{show_role(receipt.role)}, turn {receipt.turn}, {describe_means(receipt.means)}, at {when}"
    if receipt.response:
        text += f": {receipt.response}"
    if receipt.note:
        text += f", {receipt.note}"
    return text

"""`ralph signals`: what was said to a run, who took it in, how and when, and what came of it."""

import time
from dataclasses import asdict, dataclass, field

import click

from ralph.cli.choose_run import live_run
from ralph.cli.console import clock_time, here, json_option, latest_run, say_json
from ralph.cli.signal import run_option
from ralph.core.signals import ASKED_FOR, Signal
from ralph.engine.signals import SignalLog, TakenSignal
from ralph.store.journal import moment, read_claimed, timestamp
from ralph.store.runs import RunDir


@dataclass
class Taken:
    """A turn that took a signal in."""

    role: str
    turn: int
    means: str
    at: str
    response: str = ""
    note: str = ""


@dataclass
class Row:
    """One signal, and what became of it."""

    name: str
    type: str
    state: str
    """`waiting`, `taken` or `refused`."""
    at: str = ""
    target: str = "ALL"
    message: str = ""
    reason: str = ""
    taken_in: list[Taken] = field(default_factory=list)


@click.command("signals")
@run_option
@click.option("--watch", is_flag=True, help="Follow the run until it ends.")
@json_option
def command(run: str | None, watch: bool, as_json: bool) -> int:
    """Show the signals of a run (the one that is under way, or the latest): each with who took it in, and what came of it."""
    project = here()
    is_alive = not run and any(one.alive for one in project.runs())
    chosen = live_run(project, None, "show the signals of", "--run ID") if is_alive else latest_run(project, run)
    shown: dict[str, str] = {}
    while True:
        goes_on = watch and chosen.alive
        rows = signals_of(chosen)
        if as_json and not watch:
            say_json(command="signals", run=chosen.id, signals=[asdict(row) for row in rows])
            return 0
        for key, row in ((f"{row.name} {row.at}", row) for row in rows):
            text = "\n".join(_lines(row))
            if shown.get(key) != text:
                shown[key] = text
                say_json(command="signals", run=chosen.id, signal=asdict(row)) if as_json else click.echo(text)
        if not goes_on:
            break
        time.sleep(0.2)
    if not shown and not as_json:
        click.echo(f"Nothing was said to run {chosen.id}.")
        if chosen.can_go_on:
            click.echo(f'Next:   ralph steer "..." --run {chosen.id}')
    return 0


def signals_of(run: RunDir) -> list[Row]:
    """What the journal and the mailbox of a run tell of its signals, the oldest first."""
    path = run.path / "journal.jsonl"
    log = SignalLog.of(read_claimed(path) if path.exists() else ())
    rows = [_taken(one) for one in log.taken.values()]
    rows += [Row(one.name, "", "refused", timestamp(one.at), reason=one.reason) for one in log.refused]
    known = {row.name for row in rows}
    until = ""
    if not run.alive:
        until = "for `ralph resume`" if run.can_go_on else "for nobody: the run is over"
    waiting = [_waiting(signal, until) for signal in run.mailbox.look() if signal.name not in known]
    return [*sorted(rows, key=lambda row: row.at), *waiting]


def _taken(one: TakenSignal) -> Row:
    signal = one.signal
    row = Row(signal.name, str(signal.type), "taken", timestamp(one.at), signal.target or "ALL", signal.message)
    for receipt in one.receipts:
        at = timestamp(receipt.at)
        row.taken_in.append(Taken(receipt.role, receipt.turn, receipt.means, at, receipt.response, receipt.note))
    return row


def _waiting(signal: Signal, until: str) -> Row:
    reason = "until the session asks whether what it learned is kept" if signal.type in ASKED_FOR else until
    reason = f"for iteration {signal.iteration}" if signal.iteration is not None else reason
    row = Row(signal.name, str(signal.type), "waiting", target=signal.target or "ALL", reason=reason)
    row.message = signal.message
    return row


def _lines(row: Row) -> list[str]:
    when = clock_time(moment(row.at)) if row.at else "--:--:--"
    if row.state == "refused":
        return [f"{when}  refused {row.name}: {row.reason}"]
    whom = "" if row.target == "ALL" else f" for {row.target}"
    words = " ".join(row.message.split())
    head = f"{when}  {row.type}{whom}" + (f": {words}" if words else "") + f"  ({row.name})"
    if row.state == "waiting":
        return [head, f"{'':10}waits {row.reason}".rstrip()]
    told = [
        f"{'':10}{one.role}, turn {one.turn}, by {one.means} at {clock_time(moment(one.at))}"
        + (f": {one.response}" if one.response else "")
        + (f", {one.note}" if one.note else "")
        for one in row.taken_in
    ]
    needs = row.type in ("STEER", "INFO")
    return [head, *(told or ([f"{'':10}no turn has taken it in yet"] if needs else [f"{'':10}done"]))]

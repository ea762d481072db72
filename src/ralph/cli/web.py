"""`ralph web`: the page in the browser, its tokens and its passphrase."""

import sys
import time
import webbrowser
from pathlib import Path

import click

from ralph.app.runs import refuse_inside_a_turn
from ralph.cli.console import complete_runs, json_option, open_project, print_result
from ralph.cli.terminal import print_json, print_text
from ralph.core.errors import UsageError
from ralph.store.projects import web_directory
from ralph.web.access import (
    OWNER,
    Role,
    add_token,
    has_passphrase,
    read_tokens,
    remove_token,
    set_passphrase,
)
from ralph.web.server import LOOPBACK, ServerOptions, Started, serve

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("web", invoke_without_command=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port. Default: the port that Ralph chose last, or another free one.",
)
@click.option("--unix", type=_FILE, metavar="PATH", help="Listen on a Unix socket instead, for ssh -L.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option(
    "--once",
    default="",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Show only RUN, and exit when it ends. If a server is already running, print the link to RUN there.",
)
@click.option("--bind", default=LOOPBACK, show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--cert", "certificate", type=_FILE, help="The TLS certificate. Access from other machines needs one.")
@click.option("--key", type=_FILE, help="The key of the certificate.")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Trust a proxy on this machine that adds TLS and names the user (X-Forwarded-User).",
)
@click.option(
    "--public-url", default="", metavar="URL", help="The address that users type, for --bind and --behind-proxy."
)
@json_option
@click.pass_context
def web(
    context: click.Context,
    port: int | None,
    unix: Path | None,
    read_only: bool,
    opens: bool,
    once: str,
    bind: str,
    certificate: Path | None,
    key: Path | None,
    behind_proxy: bool,
    public_url: str,
    as_json: bool,
) -> int:
    """Show all your runs in the browser: watch them, answer questions, steer, review.

    The server listens on this machine only. It prints a link with your token once. If a server is already running, this
    command prints the link to it, or with --once the link to RUN there. Options such as --port have no effect on a server
    that is already running; the command says so.

    Some actions, such as approving, landing and undoing, need a passphrase: see `ralph web passphrase`.
    """
    if context.invoked_subcommand:
        return 0
    options = ServerOptions(
        port=port,
        bind=bind,
        unix=unix,
        read_only=read_only,
        once=once,
        certificate=certificate,
        key=key,
        behind_proxy=behind_proxy,
        public_url=public_url,
    )

    def announce(started: Started) -> None:
        _announce(started, once=once, as_json=as_json, read_only=read_only)
        if opens and started.link:
            webbrowser.open(started.link)

    serve(open_project(), options, announce)
    return 0


def _announce(started: Started, *, once: str, as_json: bool, read_only: bool) -> None:
    """Print where the page is. Standard output has the link and nothing else."""
    if as_json:
        facts = {"address": started.address, "link": started.link, "new": started.is_new}
        print_json(command="web", **facts, pid=started.pid or None, ignored=list(started.ignored))
    elif started.link:
        print_text(started.link)
    else:
        print_text(f"Listening on {started.address}. Your token is in the file {web_directory() / 'token'}.")
    sys.stdout.flush()
    if as_json:
        return
    if not started.is_new:
        _describe_running(started, once)
        return
    secret = "The link contains your token: do not share it. " if started.link else ""
    print_text(f"{secret}Ctrl-C stops the server, but not the runs.", err=True)
    if not has_passphrase() and not read_only:
        print_text(
            "note: you can watch, steer and answer. For more, set a passphrase: `ralph web passphrase`", err=True
        )


def _describe_running(started: Started, once: str) -> None:
    """Say that another process serves the page, and what it does not do. The user must not believe that it does."""
    process = f" (process {started.pid})" if started.pid else ""
    shown = f"The link opens run {once} there." if once and started.link else "This is its address."
    print_text(f"The server is already running{process}. {shown}", err=True)
    if once:
        print_text("It keeps running when the run ends.", err=True)
    if started.ignored:
        stop = f"`kill {started.pid}`" if started.pid else "Ctrl-C in its terminal"
        names = " and ".join(started.ignored)
        effect = "has" if len(started.ignored) == 1 else "have"
        print_text(f"{names} {effect} no effect on it. Stop that server first ({stop}), then try again.", err=True)


@web.group("token")
def token() -> None:
    """Manage the tokens of the web page, for example one for your phone."""


@token.command("add")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.VIEW.value,
    show_default=True,
    help="What the token allows.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How many days it is valid.",
)
@json_option
def add(name: str, role: str, days: float, as_json: bool) -> int:
    """Create the token NAME and print it once."""
    refuse_inside_a_turn("an agent cannot create tokens", "leave that to the user")
    secret = add_token(name, Role(role), days)
    return print_result(as_json, [secret], command="web token add", name=name, role=role, token=secret)


@token.command("list")
@json_option
def listing(as_json: bool) -> int:
    """List the tokens."""
    rows: list[dict[str, object]] = [{"name": OWNER, "role": Role.ADMIN.value, "expires": None}]
    rows += [{"name": one.name, "role": one.role.value, "expires": one.expires} for one in read_tokens()]
    lines = [f"{row['name']:<20} {row['role']:<6} {_when(row['expires'])}" for row in rows]
    return print_result(as_json, lines, command="web token list", tokens=rows)


def _when(expires: object) -> str:
    if not isinstance(expires, float):
        return "does not expire"
    if expires < time.time():
        return "expired"
    return time.strftime("until %Y-%m-%d %H:%M", time.localtime(expires))


@token.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> int:
    """Remove the token NAME: pages that use it lose access at once.

    If you remove `owner`, Ralph creates a new one when it needs it.
    """
    refuse_inside_a_turn("an agent cannot remove tokens", "leave that to the user")
    remove_token(name)
    return print_result(as_json, [f"Removed the token {name}."], command="web token remove", name=name)


@web.command("passphrase")
@json_option
def passphrase(as_json: bool) -> int:
    """Set the passphrase for actions that an agent must not take, such as starting, approving, landing and undoing.

    The page asks for it at most once every 15 minutes. Set it here, in a terminal.
    """
    refuse_inside_a_turn("an agent cannot set the passphrase", "leave that to the user")
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to type the passphrase in", todo="run `ralph web passphrase` in a terminal"
        )
    old = click.prompt("Current passphrase", hide_input=True, err=True) if has_passphrase() else None
    new = click.prompt("New passphrase", hide_input=True, confirmation_prompt=True, err=True)
    set_passphrase(new, old)
    return print_result(as_json, ["The passphrase is set."], command="web passphrase")

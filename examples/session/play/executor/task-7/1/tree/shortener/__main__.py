"""The command line: add, open, stats, export, top."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from shortener.chart import chart
from shortener.codes import code_of, number_of
from shortener.export import Row, as_csv
from shortener.links import Links
from shortener.ranking import ranking
from shortener.stats import stats_of
from shortener.store import Store


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words say."""
    asked = parser().parse_args(words)
    store = Store(asked.file)
    try:
        print(asked.does(store, asked))
    except (ValueError, LookupError) as error:
        print(f"shortener: {error}", file=sys.stderr)
        return 2
    finally:
        store.close()
    return 0


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    whole = argparse.ArgumentParser(prog="shortener", description="Short codes for long addresses.")
    whole.add_argument("--file", default="links.db", help="where links are kept (links.db)")
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for does, argument in ((add, "address"), (open_link, "code"), (stats, "code"), (export, "target")):
        name = does.__name__.removesuffix("_link")
        one = commands.add_parser(name, help=does.__doc__)
        one.add_argument(argument)
        one.set_defaults(does=does)
    one = commands.add_parser("top", help=top.__doc__)
    one.add_argument("most", nargs="?", type=int, default=5)
    one.set_defaults(does=top)
    return whole


def add(store: Store, asked: argparse.Namespace) -> str:
    """Shorten an address, and print its code."""
    return Links(store).shorten(asked.address)


def open_link(store: Store, asked: argparse.Namespace) -> str:
    """Print where a code leads, and count the visit."""
    return Links(store).follow(asked.code, datetime.now())


def stats(store: Store, asked: argparse.Namespace) -> str:
    """Show the visits of a code."""
    number = number_of(asked.code)
    if store.url(number) is None:
        raise LookupError(f"there is no link with the code {asked.code!r}")
    return chart(stats_of(store.visits(number)))


def export(store: Store, asked: argparse.Namespace) -> str:
    """Write all links to a file for the accounts department."""
    told = {number: stats_of(store.visits(number)) for number in store.numbers()}
    rows = [Row(code_of(number), store.url(number) or "", one.visits, one.last) for number, one in told.items()]
    Path(asked.target).write_bytes(as_csv(rows))
    return f"{len(rows)} links in {asked.target}"


def top(store: Store, asked: argparse.Namespace) -> str:
    """Show the links with the most visits (5)."""
    visits = {code_of(number): len(store.visits(number)) for number in store.numbers()}
    best = ranking(visits, asked.most)
    return "\n".join(f"{count:>6}  {code}  {store.url(number_of(code))}" for code, count in best) or "no visits yet"


if __name__ == "__main__":
    sys.exit(main())

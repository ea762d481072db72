"""What was done to the history during a run: refs are recorded before it and compared later.

New branches, new tags and commits on top are work. What cannot be got back by itself is a finding: a branch that lost
commits or is gone, a tag that moved, work that was stashed away, a stash of the user's that was dropped, a push.
"""

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.findings import Finding, Rule, Severity
from ralph.git.command import Git
from ralph.git.repository import RALPH, Repository

MOST = 5000
"""How many refs are recorded at most."""
HEADS, TAGS, REMOTES = "refs/heads/", "refs/tags/", "refs/remotes/"
OURS = f"{HEADS}ralph/"
"""The branches of runs."""
PINS = "refs/ralph-pins/"
"""What keeps the objects that a run's record names."""
_STASH = "refs/stash"
_WATCHED = (HEADS, TAGS, REMOTES)
_LINE = re.compile(r"^Ralph-Ref: (\S+) (\S+)$", re.M | re.ASCII)
_STASHED_ON = re.compile(r"(?:WIP on|On) (.+?): ")
_MOST_PUSHED = 100


def record(place: Repository) -> dict[str, str]:
    """Where HEAD, the branches, the tags and the stash stand: a commit by each name, for HEAD the branch it is on."""
    if place.private:
        return {}
    now = Refs.of(place)
    names = [name for name in now.tips if not name.startswith(OURS) or name == now.head]
    names.sort(key=lambda name: (name != now.head, [name.startswith(kind) for kind in _WATCHED].index(True)))
    stash = {f"stash@{{{number}}}": entry.sha for number, entry in enumerate(now.stash)}
    found = {"HEAD": now.head} | stash | {name: now.tips[name] for name in names}
    return dict(itertools.islice(found.items(), MOST))


def write(refs: Mapping[str, str]) -> str:
    """The lines of a commit message that keep a record."""
    return "".join(f"Ralph-Ref: {value} {name}\n" for name, value in refs.items())


def read(message: str) -> dict[str, str]:
    """The record in a commit message; empty where there is none."""
    return {name: value for value, name in _LINE.findall(message)}


def head_of(git: Git) -> str:
    """The full name of the branch that HEAD is on; where it is on none, its commit."""
    return git.run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text or git.run("rev-parse", "HEAD").text


def contains(git: Git, tip: str, commit: str) -> bool:
    """Whether a commit is the tip of a history or in it."""
    return tip == commit or git.run("merge-base", "--is-ancestor", commit, tip, ok=(0, 1, 128)).code == 0


def findings(place: Repository, before: Mapping[str, str]) -> list[Finding]:
    """What was done to the history since a record was made."""
    return [] if place.private else compare(Refs.of(place), before)


def compare(now: "Refs", before: Mapping[str, str]) -> list[Finding]:
    """What of a record is not so any more."""
    if not before:
        return []
    return [
        *_head(now, before),
        *_branches(now, before),
        *_tags(now, before),
        *_stash(now, before),
        *_pushes(now, before),
    ]


def new_commits(now: "Refs", before: Mapping[str, str]) -> tuple[str, ...]:
    """How many commits were made on which branches since these tips; those of Ralph itself do not count.

    A branch that is checked out in another worktree is left out: people work there.
    """
    found = []
    for name, tip in now.tips.items():
        was = before.get(name) or before.get(now.head, "")
        if not name.startswith(HEADS) or name.startswith(OURS) or name in now.elsewhere:
            continue
        if tip == was or (before and not was):
            continue
        others = ("--invert-grep", "--grep=^Ralph-Run: ")
        count = int(now.git.run("rev-list", "--count", *others, tip, *(["--not", was] if was else [])).text)
        if count:
            found.append(f"the agent made {count} commit{'s' if count > 1 else ''} on {_short(name)}")
    return tuple(found)


def pin(place: Repository, run: str, refs: Mapping[str, str]) -> None:
    """Keep what a record names from being collected as garbage, for as long as the advice to bring it back may be needed.

    One commit has all commits as its parents, so that thousands of branches need one ref. Tag objects cannot be parents.
    """
    if place.private or not refs:
        return
    git = place.git.adding("core.logAllRefUpdates=false", **RALPH)
    shas = dict.fromkeys(sha for name, sha in refs.items() if name != "HEAD")
    listed = git.run("cat-file", "--batch-check", stdin="".join(f"{sha}\n" for sha in shas).encode()).text.split("\n")
    kinds = [line.split()[:2] for line in listed if line]
    parents = [word for sha, kind in kinds if kind == "commit" for word in ("-p", sha)]
    tree = git.run("mktree").text
    wanted = [(f"{PINS}{run}/commits", git.run("commit-tree", tree, *parents, stdin=b"Pinned by Ralph\n").text)]
    wanted += [(f"{PINS}{run}/{kind}-{sha}", sha) for sha, kind in kinds if kind not in ("commit", "missing")]
    git.run("update-ref", "--stdin", stdin="".join(f"update {ref} {sha}\n" for ref, sha in wanted).encode())


def unpin(git: Git, run: str) -> None:
    """Let go of what was pinned for a run."""
    pins = git.run("for-each-ref", "--format=delete %(refname)", f"{PINS}{run}").out if run else b""
    if pins:
        git.run("update-ref", "--stdin", stdin=pins)


@dataclass(frozen=True)
class _Stashed:
    """An entry of the stash."""

    sha: str
    subject: str

    @property
    def branch(self) -> str:
        """The branch on which it was made."""
        found = _STASHED_ON.match(self.subject)
        return HEADS + found[1] if found else ""


@dataclass(frozen=True)
class Refs:
    """The refs as they are now."""

    git: Git
    head: str
    tips: Mapping[str, str]
    stash: tuple[_Stashed, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """The other worktrees in which people may be at work, by the branch that is checked out there."""

    @classmethod
    def of(cls, place: Repository) -> "Refs":
        # Nobody gets around this by putting another commit in the place of one (`git replace`).
        git = place.git.adding("log.showSignature=false", GIT_NO_REPLACE_OBJECTS="1")
        form = "--format=%(objectname) %(refname)%00%(symref)%00%(worktreepath)%00%(HEAD)%00"
        fields = git.run("for-each-ref", form, *(kind[:-1] for kind in _WATCHED), _STASH).text.split("\0")
        rows = zip(fields[::4], fields[1::4], fields[2::4], fields[3::4], strict=False)
        refs, head = {}, ""
        for row, symbolic, path, mark in rows:
            sha, name = row.lstrip("\n").split(" ", 1)
            head = name if mark == "*" else head
            if not symbolic:
                refs[name] = (sha, path)
        stash = _stash_entries(git) if refs.pop(_STASH, None) else ()
        elsewhere = {name: path for name, (_, path) in refs.items() if path and Path(path) != place.top}
        return cls(git, head or head_of(git), {name: sha for name, (sha, _) in refs.items()}, tuple(stash), elsewhere)


def _stash_entries(git: Git) -> Iterator[_Stashed]:
    for line in git.run("log", "-g", "--format=%H %gs", _STASH, "--").text.split("\n"):
        sha, _, subject = line.partition(" ")
        yield _Stashed(sha, subject)


def _head(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    was, on_branch = before.get("HEAD", now.head), now.head.startswith("refs/")
    if was == now.head:
        return
    if was.startswith("refs/"):
        back = f"`git switch {_quoted(was)}` goes back"
        yield _finding("HEAD", f"HEAD is {_where(now.head)} and was {_where(was)} before the run; {back}", warn=True)
    elif on_branch:
        back = f"`git switch --detach {was}` goes back"
        yield _finding("HEAD", f"HEAD is {_where(now.head)} and was {_where(was)} before the run; {back}", warn=True)
    elif not contains(now.git, now.head, was):
        back = f"`git reset --soft {was}` brings it back, and changes no file"
        yield _finding("HEAD", f"HEAD was reset or rewritten: {was[:12]} is no longer in it; {back}")


def _branches(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    for name, was in _recorded(before, HEADS):
        short, tip, elsewhere = _short(name), now.tips.get(name), now.elsewhere.get(name)
        if tip is None:
            back = f"`git branch {_quoted(name)} {was}` brings it back"
            yield _finding(short, f"the branch {short} was deleted; {back}")
        elif not contains(now.git, tip, was):
            what = f"the branch {short} was reset or rewritten: {was[:12]} is no longer in it"
            move = f"git reset --soft {was}" if name == now.head else f"git update-ref {shlex.quote(name)} {was}"
            if elsewhere:
                what += f" (perhaps by you: it is checked out in {elsewhere})"
                move = f"git -C {shlex.quote(elsewhere)} reset --soft {was}"
            back = f"`{move}` brings it back, and changes no file"
            yield _finding(short, f"{what}; {back}", warn=elsewhere is not None)


def _tags(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    for name, was in _recorded(before, TAGS):
        if now.tips.get(name) != was:
            what = "moved" if name in now.tips else "deleted"
            back = f"`git update-ref {shlex.quote(name)} {was}` brings it back"
            yield _finding(_short(name), f"the tag {_short(name)} was {what}; {back}")


def _stash(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    known = dict(_recorded(before, "stash@{"))
    for number, entry in enumerate(now.stash):
        if entry.sha in known.values():
            continue
        name = f"stash@{{{number}}}"
        if tree := now.elsewhere.get(entry.branch):
            what = f"work was stashed away, perhaps by you in {tree}"
            yield _finding(name, f"{what} ({entry.subject}); `git stash pop {name}` there brings it back", warn=True)
        else:
            back = f"`git stash pop{f' {name}' if number else ''}` brings it back"
            yield _finding(name, f"the agent stashed work away ({entry.subject}); {back}")
    left = {entry.sha for entry in now.stash}
    # The oldest entry comes first: if the user pastes the commands in order, the stack is as it was.
    for name, sha in reversed(known.items()):
        if sha not in left:
            back = f'`git stash store -m "$(git log -1 --format=%s {sha})" {sha}` brings it back'
            yield _finding(name, f"the stash entry {sha[:12]} from before the run was dropped; {back}")


def _pushes(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    complete = len(before) < MOST
    moved = [name for name, tip in now.tips.items() if name.startswith(REMOTES) and tip != before.get(name)]
    moved = [name for name in moved if complete or name in before][:_MOST_PUSHED]
    for name in _pushed(now.git, moved, before):
        yield _finding(_short(name), f"{_short(name)} was pushed to during the run; that cannot be undone", warn=True)


def _pushed(git: Git, names: list[str], before: Mapping[str, str]) -> list[str]:
    """Those of some remote-tracking refs that a push moved since they were recorded, by their reflogs."""
    if not names:
        return []
    settled, pushed = set(), []
    for line in git.run("log", "-g", "--format=%H %gD %gs", *names, "--").text.split("\n"):
        sha, _, rest = line.partition(" ")
        entry, _, message = rest.partition(" ")
        name = entry.partition("@{")[0]
        if sha == before.get(name):
            settled.add(name)
        elif name not in settled and message == "update by push":
            settled.add(name)
            pushed.append(name)
    return pushed


def _recorded(before: Mapping[str, str], kind: str) -> Iterable[tuple[str, str]]:
    return [(name, sha) for name, sha in before.items() if name.startswith(kind)]


def _short(name: str) -> str:
    return name.split("/", 2)[2]


def _quoted(name: str) -> str:
    return shlex.quote(_short(name))


def _where(head: str) -> str:
    return f"on {_short(head)}" if head.startswith("refs/") else f"detached at {head[:12]}"


def _finding(path: str, sentence: str, *, warn: bool = False) -> Finding:
    return Finding(
        rule=Rule.HISTORY_REWRITTEN,
        path=path,
        line=0,
        sentence=sentence,
        severity=Severity.WARNING if warn else Severity.ERROR,
    )

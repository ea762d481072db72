"""What was done to the history during a run: refs are recorded before it and compared later.

New refs and commits on top are work. A loss is a finding: a branch or a note ref that lost commits or is gone, a tag that
moved, work that the agent stashed, a stash entry of the user that was dropped, a push.
"""

import itertools
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.checks import Finding, HistoryChange, Rule, Severity
from ralph.core.text import count
from ralph.git.command import RALPH_IDENTITY, Git, Repository, printable
from ralph.git.submodules import read_positions

MAX_RECORDED_REFS = 5000
"""How many refs are recorded at most."""
HEADS, TAGS, REMOTES = "refs/heads/", "refs/tags/", "refs/remotes/"
OURS = f"{HEADS}ralph/"
"""The branches of runs."""
PINS = "refs/ralph-pins/"
"""What keeps the objects that a run's record names."""
_MAX_PINNED_ALONE = 50
"""How many commits get a ref each."""
NOTES = "refs/notes/"
_STASH = "refs/stash"
_USUAL = (HEADS, TAGS, REMOTES)
_OF_TOOLS = ("refs/ralph", "refs/bisect/", "refs/jj/", "refs/prefetch/", "refs/rewritten/", "refs/worktree/")
"""Refs that Ralph, git itself or jj rewrite all the time."""
_LINE = re.compile(r"^Ralph-Ref: (\S+) (\S+)$", re.M | re.ASCII)
_STASHED_ON = re.compile(r"(?:WIP on|On) (.+?): ")
_MAX_PUSHED = 100


def record_refs(repository: Repository) -> dict[str, str]:
    """Where HEAD, the stash and all refs of the user stand: an object by each name, for HEAD the branch it is on.

    For a symbolic ref it is the ref that it stands for.
    """
    if repository.private:
        return {}
    now = Refs.read(repository, namespaces=("refs",))
    names = [name for name in now.tips if not name.startswith(OURS) or name == now.head]
    names.sort(key=lambda name: (name != now.head, _rank_ref(name)))
    stash = {f"stash@{{{number}}}": entry.sha for number, entry in enumerate(now.stash)}
    symbolic = {name: target for name, target in now.symbolic.items() if not name.startswith(OURS)}
    found = {"HEAD": now.head} | stash | {name: now.tips[name] for name in names} | symbolic
    return dict(itertools.islice(found.items(), MAX_RECORDED_REFS))


def _rank_ref(name: str) -> int:
    """What is recorded first if there are more refs than fit: branches, then tags, then the others."""
    for position, kind in enumerate((*_USUAL, NOTES)):
        if name.startswith(kind):
            return position
    return len(_USUAL) + 1


def format_record(refs: Mapping[str, str]) -> str:
    """The lines of a commit message that hold a record."""
    return "".join(f"Ralph-Ref: {value} {name}\n" for name, value in refs.items())


def parse_record(message: str) -> dict[str, str]:
    """The record in a commit message; empty if there is none."""
    return {name: value for value, name in _LINE.findall(message)}


def read_head(git: Git) -> str:
    """The full name of the branch that HEAD is on; if it is on none, its commit."""
    return git.run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text or git.run("rev-parse", "HEAD").text


def contains(git: Git, tip: str, commit: str) -> bool:
    """Whether a commit is the tip of a history or in it."""
    return tip == commit or git.run("merge-base", "--is-ancestor", commit, tip, ok=(0, 1, 128)).code == 0


def find_losses(repository: Repository, before: Mapping[str, str]) -> list[Finding]:
    """What has changed since a record was made."""
    if repository.private or not before:
        return []
    return _compare(Refs.read(repository, namespaces=_list_namespaces(before)), before)


def _compare(now: "Refs", before: Mapping[str, str]) -> list[Finding]:
    if not before:
        return []
    return [
        *_compare_head(now, before),
        *_compare_branches(now, before),
        *_compare_tags(now, before),
        *_compare_other_refs(now, before),
        *_compare_symbolic_refs(now, before),
        *_compare_stash(now, before),
        *_find_pushes(now, before),
    ]


def _list_namespaces(before: Mapping[str, str]) -> tuple[str, ...]:
    """The parts of `refs/` to list: the usual ones, and those in which the record has something.

    Not all of `refs/`: a mirror of a code review server has hundreds of thousands of refs.
    """
    recorded = ("/".join(name.split("/")[:2]) for name in before if name.startswith("refs/"))
    return tuple(dict.fromkeys([*(kind.rstrip("/") for kind in _USUAL), *recorded]))


def count_new_commits(now: "Refs", before: Mapping[str, str], head_before: str) -> tuple[str, ...]:
    """How many commits were made on which branches since these tips and this HEAD, without those of Ralph.

    A commit counts once: on a branch that was there before, else on the branch that is checked out, else on a new one.
    A branch that is checked out in another worktree is left out: the user may work there.
    """
    places = {
        name: (_shorten_ref(name), tip)
        for name, tip in now.tips.items()
        if name.startswith(HEADS) and not name.startswith(OURS) and name not in now.elsewhere
    }
    if not now.head.startswith("refs/"):
        places[now.head] = ("a detached HEAD", now.head)
    known = {tip for name, tip in before.items() if name.startswith(HEADS)} | {head_before} - {""}
    found = []
    for name in sorted(places, key=lambda name: (name not in before, name != now.head, name)):
        place, tip = places[name]
        if tip in known:
            continue
        # An agent can have removed the objects of a branch that it deleted.
        others = ("--ignore-missing", "--invert-grep", "--grep=^Ralph-Run: ")
        revisions = "".join(f"{revision}\n" for revision in [tip, *(f"^{one}" for one in known)])
        number = int(now.git.run("rev-list", "--count", *others, "--stdin", stdin=revisions.encode()).text)
        known.add(tip)
        if number:
            found.append(f"the agent made {count(number, 'commit')} on {place}")
    return tuple(found)


class UserRefs:
    """The user's refs and stash during a run: recorded and pinned when it begins, compared after every turn.

    It needs no snapshots. The record itself is in the journal, where no git command reaches it.
    """

    def __init__(
        self,
        repository: Repository,
        run: str,
        before: Mapping[str, str] | None = None,
        *,
        submodules: tuple[str, ...] = (),
    ) -> None:
        self._repository, self._run, self._submodules = repository, run, submodules
        self.before = before
        """The record; None if it was not made yet."""
        self._tips: Mapping[str, str] | None = None
        """Where the branches stood at the last look."""
        self.head = ""
        """The commit that HEAD was at, at the last look; empty if there was none."""
        self._positions: Mapping[str, str] = {}
        """Where the submodules stood at the last look."""
        self._pins: Collection[str] | None = None

    def record(self) -> Mapping[str, str]:
        """Record where the refs stand, and pin what they name."""
        self.before = record_refs(self._repository)
        self._pins = pin_objects(self._repository, self._run, self.before)
        return self.before

    def record_branch_tips(self) -> None:
        """Note where the branches stand before a turn: commits that were made until now are not the agent's."""
        self._note_tips(Refs.read(self._repository, namespaces=(HEADS.rstrip("/"),)))
        self._positions = read_positions(self._repository.top, self._submodules)

    def _note_tips(self, now: "Refs") -> None:
        self._tips, self.head = now.tips, now.tips.get(now.head, "")
        if not self.head and not now.head.startswith("refs/"):
            self.head = now.head

    def find_ref_changes(self) -> HistoryChange:
        """What is not as it was before the run, and the commits that others made since the last look."""
        namespaces = (*_list_namespaces(self.before or {}), f"{PINS}{self._run}")
        now = Refs.read(self._repository, namespaces=namespaces)
        self._pin_again(now)
        findings = _compare(now, self.before or {})
        commits = count_new_commits(now, self._tips, self.head) if self._tips is not None else ()
        self._note_tips(now)
        commits += self._look_into_submodules()
        sentences = tuple(finding.sentence for finding in findings)
        return HistoryChange(sentences, commits, places=tuple(finding.path for finding in findings))

    def _look_into_submodules(self) -> tuple[str, ...]:
        """How many commits were made in which submodules since the last look."""
        before, top = self._positions, self._repository.top
        self._positions = read_positions(top, self._submodules)
        found = []
        for path, now in self._positions.items():
            was = before.get(path, "")
            if not was or not now or was == now:
                continue
            number = int(Git(top / path).run("rev-list", "--count", now, "--not", was).text)
            if number:
                found.append(f"the agent made {count(number, 'commit')} in the submodule {printable(path)}")
        return tuple(found)

    def findings(self) -> list[Finding]:
        """What is not as it was before the run."""
        return find_losses(self._repository, self.before or {})

    def _pin_again(self, now: "Refs") -> None:
        """Make the pins again that an agent deleted. Until garbage collection, git still has the objects."""
        if self._pins is None or not now.pins.issuperset(self._pins):
            self._pins = pin_objects(self._repository, self._run, self.before or {})


def pin_objects(repository: Repository, run: str, refs: Mapping[str, str]) -> Collection[str]:
    """Keep what a record names from garbage collection, so that the advice to restore it stays true; return the refs.

    A few commits get a ref each, which shows nothing new in `git log --all`. For thousands of branches, one commit has all
    commits as its parents. Tag objects cannot be parents.
    """
    shas = dict.fromkeys(sha for name, sha in refs.items() if name != "HEAD" and not sha.startswith("refs/"))
    if not shas or not os.access(repository.common / "objects", os.W_OK):
        # A repository that cannot be written loses nothing, and a run without snapshots needs nothing else of it.
        return ()
    git = repository.git.with_options("core.logAllRefUpdates=false", **RALPH_IDENTITY)
    kinds = _find_kinds(git, shas)
    commits = [sha for sha, kind in kinds.items() if kind == "commit"]
    wanted = {f"{PINS}{run}/{kind}-{sha}": sha for sha, kind in kinds.items() if kind != "missing"}
    if len(commits) > _MAX_PINNED_ALONE:
        parents: list[str] = []
        for sha in commits:
            parents += ["-p", sha]
            del wanted[f"{PINS}{run}/commit-{sha}"]
        tree = git.run("mktree").text
        wanted[f"{PINS}{run}/commits"] = git.run("commit-tree", tree, *parents, stdin=b"Pinned by Ralph\n").text
    git.run("update-ref", "--stdin", stdin="".join(f"update {ref} {sha}\n" for ref, sha in wanted.items()).encode())
    return wanted.keys()


def unpin_objects(git: Git, run: str) -> None:
    pins = git.run("for-each-ref", "--format=delete %(refname)", f"{PINS}{run}").out if run else b""
    if pins:
        git.run("update-ref", "--stdin", stdin=pins)


def _find_kinds(git: Git, shas: Iterable[str]) -> dict[str, str]:
    """The types of objects by their ids; `missing` if there is no such object."""
    listed = git.run("cat-file", "--batch-check", stdin="".join(f"{sha}\n" for sha in shas).encode()).text
    words = [line.split() for line in listed.split("\n") if line]
    return {line[0]: line[1] for line in words}


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
    """The entries of the stash, the newest first; only the newest if their list is lost."""
    has_stash_list: bool = True
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """The other worktrees, in which the user may work, by the branch that is checked out there."""
    symbolic: Mapping[str, str] = field(default_factory=dict)
    """The symbolic refs, with their targets."""
    pins: frozenset[str] = frozenset()
    """The refs that keep what a run's record names."""

    @classmethod
    def read(cls, repository: Repository, *, namespaces: Collection[str]) -> "Refs":
        # With `git replace`, an agent could make another commit look like the one that was recorded.
        git = repository.git.with_options("log.showSignature=false", GIT_NO_REPLACE_OBJECTS="1")
        form = "--format=%(objectname) %(refname)%00%(symref)%00%(worktreepath)%00%(HEAD)%00"
        fields = git.run("for-each-ref", form, *namespaces, _STASH).text.split("\0")
        rows = zip(fields[::4], fields[1::4], fields[2::4], fields[3::4], strict=False)
        tips: dict[str, str] = {}
        symbolic: dict[str, str] = {}
        elsewhere: dict[str, str] = {}
        pins: set[str] = set()
        head = stash_tip = ""
        for row, target, path, mark in rows:
            sha, name = row.lstrip("\n").split(" ", 1)
            if mark == "*":
                head = name
            if path and not target and Path(path) != repository.top:
                elsewhere[name] = path
            if name.startswith(PINS):
                pins.add(name)
            elif name == _STASH:
                stash_tip = sha
            elif name.startswith(_OF_TOOLS) or (target and name.startswith(REMOTES)):
                continue
            elif target:
                symbolic[name] = target
            else:
                tips[name] = sha
        stash = _read_stash_list(git) if stash_tip else ()
        return cls(
            git=git,
            head=head or read_head(git),
            tips=tips,
            stash=stash or _read_stash_tip(git, stash_tip),
            has_stash_list=bool(stash) or not stash_tip,
            elsewhere=elsewhere,
            symbolic=symbolic,
            pins=frozenset(pins),
        )

    def can_restore(self, sha: str) -> bool:
        """Whether git still has an object, or has collected it as garbage."""
        return self.git.run("cat-file", "-e", sha, ok=(0, 1, 128)).code == 0


def _read_stash_list(git: Git) -> tuple[_Stashed, ...]:
    """The entries of the stash. Git keeps them in the reflog of `refs/stash`: if that is expired, the list is empty."""
    listed = git.run("log", "-g", "--format=%H %gs", _STASH, "--").text
    entries = (line.partition(" ") for line in listed.split("\n") if line)
    return tuple(_Stashed(sha, subject) for sha, _, subject in entries)


def _read_stash_tip(git: Git, sha: str) -> tuple[_Stashed, ...]:
    """The newest entry of the stash, by the ref alone."""
    return (_Stashed(sha, git.run("log", "-1", "--format=%s", sha, "--").text),) if sha else ()


def _compare_head(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    was, on_branch = before.get("HEAD", now.head), now.head.startswith("refs/")
    if was == now.head:
        return
    if was.startswith("refs/"):
        back = f"`git switch {_quote(was)}` switches back"
        yield _make_finding(
            "HEAD",
            f"HEAD is {_describe_head(now.head)} and was {_describe_head(was)} before the run; {back}",
            warn=True,
        )
    elif on_branch:
        back = f"`git switch --detach {was}` switches back"
        yield _make_finding(
            "HEAD",
            f"HEAD is {_describe_head(now.head)} and was {_describe_head(was)} before the run; {back}",
            warn=True,
        )
    elif not contains(now.git, now.head, was):
        back = _describe_way_back(now, was, f"git reset --soft {was}", ", and changes no file")
        yield _make_finding("HEAD", f"HEAD was reset or rewritten: {was[:12]} is no longer in it; {back}")


def _compare_branches(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    for name, was in _list_recorded_objects(before, HEADS):
        short, tip, elsewhere = _shorten_ref(name), now.tips.get(name), now.elsewhere.get(name)
        if name in now.symbolic:
            yield _symbolic_ref_finding(now, "branch", name, was)
        elif tip is None:
            move = " && ".join([*_make_room(now, name), f"git branch {_quote(name)} {was}"])
            yield _make_finding(short, f"the branch {short} was deleted; {_describe_way_back(now, was, move)}")
        elif not contains(now.git, tip, was):
            what = f"the branch {short} was reset or rewritten: {was[:12]} is no longer in it"
            move = f"git reset --soft {was}" if name == now.head else f"git update-ref {shlex.quote(name)} {was}"
            if elsewhere:
                what += f" (perhaps by you: it is checked out in {elsewhere})"
                move = f"git -C {shlex.quote(elsewhere)} reset --soft {was}"
            back = _describe_way_back(now, was, move, ", and changes no file")
            yield _make_finding(short, f"{what}; {back}", warn=elsewhere is not None)


def _compare_tags(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    for name, was in _list_recorded_objects(before, TAGS):
        if name in now.symbolic:
            yield _symbolic_ref_finding(now, "tag", name, was)
        elif now.tips.get(name) != was:
            what = "moved" if name in now.tips else "deleted"
            move = " && ".join([*_make_room(now, name), f"git update-ref {shlex.quote(name)} {was}"])
            yield _make_finding(
                _shorten_ref(name), f"the tag {_shorten_ref(name)} was {what}; {_describe_way_back(now, was, move)}"
            )


def _compare_other_refs(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    """Notes, and refs that other tools or the user made. What a tool made it may also rewrite: that is a warning only."""
    for name, was in _list_recorded_objects(before, "refs/"):
        if name.startswith(_USUAL) or name.startswith(_OF_TOOLS):
            continue
        warn = not name.startswith(NOTES)
        tip = now.tips.get(name)
        if name in now.symbolic:
            yield _symbolic_ref_finding(now, "ref", name, was)
        elif tip is None:
            move = " && ".join([*_make_room(now, name), f"git update-ref {shlex.quote(name)} {was}"])
            yield _make_finding(name, f"the ref {name} was deleted; {_describe_way_back(now, was, move)}", warn=warn)
        elif not contains(now.git, tip, was):
            what = f"the ref {name} was reset or rewritten: {was[:12]} is no longer in it"
            back = _describe_way_back(now, was, f"git update-ref {shlex.quote(name)} {was}")
            yield _make_finding(name, f"{what}; {back}", warn=warn)


def _symbolic_ref_finding(now: Refs, kind: str, name: str, was: str) -> Finding:
    # A plain `update-ref` would move the ref that the symbolic one stands for.
    what = f"the {kind} {_shorten_ref(name)} was replaced by a symbolic ref to {now.symbolic[name]}"
    return _make_finding(
        _shorten_ref(name),
        f"{what}; {_describe_way_back(now, was, f'git update-ref --no-deref {shlex.quote(name)} {was}')}",
    )


def _compare_symbolic_refs(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    for name, target in before.items():
        if name == "HEAD" or not target.startswith("refs/") or now.symbolic.get(name) == target:
            continue
        what = "is gone"
        if name in now.symbolic:
            what = "points to another ref now"
        elif name in now.tips:
            what = "was replaced by a ref of its own"
        move = " && ".join([*_make_room(now, name), f"git symbolic-ref {shlex.quote(name)} {shlex.quote(target)}"])
        yield _make_finding(
            _shorten_ref(name), f"{_shorten_ref(name)} pointed to {target} and {what}; `{move}` restores it"
        )


def _make_room(now: Refs, name: str) -> list[str]:
    """The commands that rename refs which stand in the way of a name: git cannot have both `feat` and `feat/x`."""
    commands = []
    kind = "/".join(name.split("/")[:2]) + "/"
    for other, tip in now.tips.items():
        if not (other.startswith(f"{name}/") or name.startswith(f"{other}/")):
            continue
        free = f"agent-{other.removeprefix(kind).replace('/', '-')}"
        while f"{kind}{free}" in now.tips:
            free += "-1"
        if kind == HEADS:
            commands.append(f"git branch -m {_quote(other)} {shlex.quote(free)}")
        else:
            commands.append(f"git update-ref {shlex.quote(kind + free)} {tip}")
            commands.append(f"git update-ref -d {shlex.quote(other)}")
    return commands


def _describe_way_back(now: Refs, sha: str, command: str, and_what: str = "") -> str:
    """The command that restores an object, or that nothing can."""
    if now.can_restore(sha):
        return f"`{command}` restores it{and_what}"
    return f"it cannot be restored: git has removed {sha[:12]} from the repository"


def _compare_stash(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    known = {name: sha for name, sha in before.items() if name.startswith("stash@{")}
    for number, entry in enumerate(now.stash):
        if entry.sha in known.values():
            continue
        name = f"stash@{{{number}}}"
        if tree := now.elsewhere.get(entry.branch):
            what = f"work was stashed, perhaps by you in {tree}"
            yield _make_finding(name, f"{what} ({entry.subject}); `git stash pop {name}` there restores it", warn=True)
        else:
            back = f"`git stash pop {name}` restores it" if number else "`git stash pop` restores it"
            yield _make_finding(name, f"the agent stashed work ({entry.subject}); {back}")
    if known and not now.has_stash_list:
        yield _stash_list_finding(now, known)
        return
    left = {entry.sha for entry in now.stash}
    # The oldest entry comes first: if the user pastes the commands in order, the stack is as it was.
    for name, sha in reversed(known.items()):
        if sha not in left:
            back = _describe_way_back(now, sha, _store_command(sha))
            yield _make_finding(name, f"the stash entry {sha[:12]} from before the run was dropped; {back}")


def _stash_list_finding(now: Refs, known: Mapping[str, str]) -> Finding:
    """The finding about a stash whose entries still exist but are no longer listed."""
    entries = dict.fromkeys([*reversed(list(known.values())), *(entry.sha for entry in reversed(now.stash))])
    lost = [sha for sha in entries if not now.can_restore(sha)]
    # `git stash store` adds nothing to the list if the ref already names the entry.
    commands = [f"git update-ref -d {_STASH}", *(_store_command(sha) for sha in entries if sha not in lost)]
    what = "the list of stash entries is empty, because its reflog was expired"
    sentence = f"{what}; `{' && '.join(commands)}` lists the entries again"
    if lost:
        sentence += f"; git has removed {', '.join(sha[:12] for sha in lost)} from the repository"
    return _make_finding("stash@{0}", sentence, warn=not lost)


def _store_command(sha: str) -> str:
    return f'git stash store -m "$(git log -1 --format=%s {sha})" {sha}'


def _find_pushes(now: Refs, before: Mapping[str, str]) -> Iterator[Finding]:
    complete = len(before) < MAX_RECORDED_REFS
    moved = [name for name, tip in now.tips.items() if name.startswith(REMOTES) and tip != before.get(name)]
    moved = [name for name in moved if complete or name in before][:_MAX_PUSHED]
    for name in _find_pushed(now.git, moved, before):
        yield _make_finding(
            _shorten_ref(name), f"{_shorten_ref(name)} was pushed to during the run; that cannot be undone", warn=True
        )


def _find_pushed(git: Git, names: list[str], before: Mapping[str, str]) -> list[str]:
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


def _list_recorded_objects(before: Mapping[str, str], kind: str) -> Iterable[tuple[str, str]]:
    """What a record has of one kind, without symbolic refs."""
    return [(name, sha) for name, sha in before.items() if name.startswith(kind) and not sha.startswith("refs/")]


def _shorten_ref(name: str) -> str:
    """A branch or a tag as the user calls it; the full name of any other ref."""
    return name.split("/", 2)[2] if name.startswith(_USUAL) else name


def _quote(name: str) -> str:
    return shlex.quote(_shorten_ref(name))


def _describe_head(head: str) -> str:
    return f"on {_shorten_ref(head)}" if head.startswith("refs/") else f"detached at {head[:12]}"


def _make_finding(path: str, sentence: str, *, warn: bool = False) -> Finding:
    return Finding(
        rule=Rule.HISTORY_REWRITTEN,
        path=path,
        line=0,
        sentence=sentence,
        severity=Severity.WARNING if warn else Severity.ERROR,
    )

"""`ralph worktrees`: the worktrees of this project's runs, and what is in them."""

from typing import Any

import click

from ralph.cli.console import here, json_option, tell
from ralph.core.errors import RalphError
from ralph.git import worktree
from ralph.git.worktree import Worktree
from ralph.store.runs import Project, RunDir
from ralph.workspace.worktree_setup import WorktreeSetup


@click.command("worktrees")
@click.option("--prune", is_flag=True, help="Remove the worktrees of ended runs whose work is merged.")
@json_option
def command(prune: bool, as_json: bool) -> int:
    """List the worktrees of runs: whose they are, what in them is not merged, and what would remove them.

    Nothing is removed that would lose work: commits that are in no branch of yours nor of their run, or files that
    are in no commit.
    """
    project = here()
    rows = [_row(project, tree, prune=prune) for tree in worktree.find_worktrees(project.root)]
    lines = [] if rows else [f"No worktrees of runs in {project.root}."]
    for row in rows:
        lines.append(f"{row['run']}  {row['what']:<14} {row['state']:<9} {row['path']}")
        lines += [f"{'':20}{row['why']}"] if row["why"] else []
    return tell(as_json, lines, command="worktrees", root=str(project.root), worktrees=rows)


def _row(project: Project, tree: Worktree, *, prune: bool) -> dict[str, Any]:
    run = RunDir(project.runs_dir / tree.run)
    what = {"": "the run", "merge": "merges"}.get(tree.name, tree.name)
    row = {"run": tree.run, "what": what, "branch": tree.branch, "path": str(tree.path.relative_to(project.root))}
    if run.alive:
        return {**row, "state": "in use", "why": ""}
    removal = _removed(run, tree, really=prune)
    state = "kept" if not removal else "removed" if prune else "merged"
    return {**row, "state": state, "why": removal.why_not}


def _removed(run: RunDir, tree: Worktree, *, really: bool) -> worktree.Removal:
    try:
        record = run.record()
        out = WorktreeSetup(tree.root, record.trees).paths(tree)
        into = (record.branch,) if record.branch and tree.branch != record.branch else ()
    except (RalphError, OSError):
        out, into = (), ()
    return worktree.remove(tree, *into, leaving_out=out) if really else worktree.removable(tree, *into, leaving_out=out)

"""Snapshots and worktrees, by the git command."""

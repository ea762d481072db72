"""Guards: rules that find work which gamed the checks."""

from ralph.verify.guards.changes import FileChange
from ralph.verify.guards.scan import scan

__all__ = ["FileChange", "scan"]

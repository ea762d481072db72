"""`feedbacks/<stamp>/feedbacks.md`: what a person says of an iteration; the roles read it, the engine only whether it changed."""

import hashlib
from collections.abc import Iterable

from ralph.documents.plain_yaml import lines_of
from ralph.documents.session.markdown import BOM, row


def content_hash(text: str) -> str:
    """What tells whether a batch was changed; how its lines end and what follows the last says nothing."""
    plain = text.removeprefix(BOM).replace("\r\n", "\n").rstrip()
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def template(iteration: int, stamp: str, timestamp: str, artifacts: Iterable[str] = ()) -> str:
    """A form to fill in."""
    front = {"iteration": iteration, "timestamp": timestamp, "previous_iteration": iteration - 1}
    files = "\n".join((row("File", "Description"), "|------|-------------|", *(row(name, "") for name in artifacts)))
    return f"---\n{lines_of(front)}---\n\n# Feedback Batch: {stamp}\n{_FORM}\n## Artifacts Index\n{files}\n"


_FORM = """
## Critical Issues
<!-- What must be put right, one entry each:
- [ ] **ISS-001**: What is wrong
  - Evidence: app.log, lines 45-60
  - Suggested Fix: what could be done
-->

## Quality Issues
<!--
- [ ] **Q-001**: What could be better
-->

## New Requirements
<!--
- What is wanted beside
-->
"""

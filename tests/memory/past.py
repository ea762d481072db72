"""Twenty-odd loops that a project may have behind it, and how to put reflections on disk."""

from dataclasses import replace
from pathlib import Path

from ralph.documents.reflection import HOME, ReflectedCheck, Reflection, render

NOW = 1_763_200_000.0
DAY = 86400.0


def loop_id(number: int) -> str:
    return f"2511{number // 60 % 24 + 1:02d}-10{number % 60:02d}00-{number:04x}"


def reflection(
    loop: str, iteration: int = 1, *, task: str = "Fix the tests", outcome: str = "failure", **rest: object
) -> Reflection:
    checks = (ReflectedCheck("`pytest -q` passes", "passed" if outcome == "success" else "failed", "exit 1"),)
    made = Reflection(loop, iteration, NOW - DAY, task, "test-fix", outcome, "changed something", checks=checks)
    return replace(made, **rest)  # type: ignore[arg-type]


def keep(root: Path, *reflections: Reflection) -> None:
    for one in reflections:
        path = root / HOME / "loops" / one.loop / f"iteration-{one.iteration}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(one))


PAST: tuple[tuple[str, str, str, str, str, str], ...] = (
    # task type, task, what failed, why, what was tried first, what worked ("" where nothing did)
    (
        "test-fix",
        "Fix failing tests of the date parser",
        "tests/test_dates.py::test_offset: TypeError: can't compare offset-naive and offset-aware datetimes",
        "parse_date returns naive datetimes when the input has no timezone",
        "Parsed with strptime",
        "Convert every parsed date to UTC before it is compared",
    ),
    (
        "test-fix",
        "Repair the CSS layout tests of the landing page",
        "tests/layout.spec.ts: expected width 320px, got 338px",
        "the grid gap is added to the padding in Safari",
        "Set box-sizing on the header",
        "Use minmax(0, 1fr) for the grid columns",
    ),
    (
        "type-errors",
        "Fix all mypy errors in the billing module",
        "billing/invoice.py:40: error: Argument 1 has incompatible type Optional[Decimal]",
        "Invoice.total may be None before it is finalised",
        "Cast everything to Decimal",
        "Narrow with an early return where total is None",
    ),
    (
        "lint",
        "Clean up eslint warnings in the web client",
        "no-unused-vars in 14 files",
        "imports are only used as types",
        "Deleted the imports",
        "Use `import type` for imports that are only types",
    ),
    (
        "migration",
        "Convert the server to ESM",
        "ReferenceError: require is not defined in ES module scope",
        "config loader still uses require for JSON",
        "Renamed files to .mjs",
        "Load JSON with createRequire",
    ),
    (
        "test-fix",
        "Fix flaky websocket reconnect tests",
        "test_reconnect timed out after 5 s",
        "the mock server closes the socket before the handshake is done",
        "Raised the timeout",
        "Wait for the open event before the server is closed",
    ),
    (
        "coverage",
        "Raise coverage of the payments package to 80%",
        "coverage 71% < 80%",
        "refund paths are never exercised",
        "Tested the getters",
        "Parametrised refund tests over all currencies",
    ),
    (
        "bug-fix",
        "Users are logged out after a password reset",
        "test_session_survives_reset: 401 Unauthorized",
        "the reset rotates the JWT secret for everyone",
        "Extended the cookie lifetime",
        "Keep a per-user token version instead of rotating the JWT secret",
    ),
    (
        "refactor",
        "Rename Customer to Account across the codebase",
        "ImportError: cannot import name Customer from models",
        "alembic migrations import the old name",
        "sed over src",
        "Left an alias for the migrations",
    ),
    (
        "performance",
        "Make the search endpoint answer within 100 ms",
        "p95 430 ms",
        "N+1 queries for tags",
        "Added an index on title",
        "Prefetch tags with one join",
    ),
    (
        "bug-fix",
        "CSV export breaks on umlauts",
        "UnicodeEncodeError: 'ascii' codec can't encode character",
        "the response is written with the locale's encoding",
        "Replaced umlauts",
        "Write the export as UTF-8 with a BOM",
    ),
    (
        "test-fix",
        "Make the docker compose integration tests pass",
        "connection refused: postgres:5432",
        "tests start before the database accepts connections",
        "sleep 10",
        "Wait with pg_isready in the healthcheck",
    ),
    (
        "documentation",
        "Fix broken links of the handbook",
        "linkcheck: 12 broken links",
        "anchors changed case",
        "Removed the links",
        "Generate anchors from the headings",
    ),
    (
        "bug-fix",
        "Rounding of VAT in invoices is off by a cent",
        "test_vat: 19.01 != 19.00",
        "floats are rounded per line and then summed",
        "Rounded the sum",
        "Use Decimal with ROUND_HALF_UP per invoice",
    ),
    (
        "test-fix",
        "Fix memory leak test of the image cache",
        "cache grew to 512 MB",
        "thumbnails are referenced by the event listeners",
        "Called gc.collect",
        "",
    ),
    (
        "feature",
        "Add OAuth login with GitHub",
        "test_callback: state mismatch",
        "the state cookie is SameSite=Strict and is lost on redirect",
        "Skipped the state",
        "Set SameSite=Lax for the state cookie",
    ),
    (
        "bug-fix",
        "Kafka consumer processes messages twice",
        "test_exactly_once: 2 != 1",
        "offsets are committed before the transaction",
        "Deduplicated in memory",
        "",
    ),
    (
        "type-errors",
        "Fix TypeScript strict null errors in forms",
        "TS2531: Object is possibly null",
        "refs are null on first render",
        "Added non-null assertions",
        "Guard refs in an effect",
    ),
    (
        "migration",
        "Upgrade Django from 3.2 to 5.0",
        "ImportError: cannot import name ugettext_lazy",
        "removed aliases",
        "Pinned Django",
        "Replace ugettext with gettext",
    ),
    (
        "test-fix",
        "Snapshot tests of the calendar widget fail in CI",
        "expected Mon 3 Nov, got Sun 2 Nov",
        "the CI machine renders dates in another timezone",
        "Updated the snapshots",
        "Pin TZ=UTC for the snapshot run",
    ),
    (
        "bug-fix",
        "Uploads over 10 MB fail",
        "413 Request Entity Too Large",
        "nginx client_max_body_size is at its default",
        "Raised the limit in the app",
        "Set client_max_body_size in the ingress",
    ),
)


def keep_past(root: Path) -> list[str]:
    """Every loop of the past: two iterations that failed, and one that passed where something worked."""
    loops = []
    for number, (kind, task, failed, why, tried, worked) in enumerate(PAST):
        loop, at = loop_id(number), NOW - (len(PAST) - number) * DAY
        keep(
            root,
            reflection(loop, 1, task=task, task_type=kind, at=at, action=tried, what_failed=failed, why=why),
            reflection(loop, 2, task=task, task_type=kind, at=at + 60, action="Looked closer", what_failed=failed),
        )
        if worked:
            keep(root, reflection(loop, 3, task=task, task_type=kind, at=at + 120, outcome="success", action=worked))
        loops.append(loop)
    return loops

"""OpenTelemetry spans of real runs: off by default, and a whole tree if they are asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralph.app.traces import open_traces
from ralph.core.errors import UsageError
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord

pytest.importorskip("opentelemetry.sdk", reason="traces need the extra `otel`")
SCENARIO = """turns:
  - when: {turn: 1}
    steps:
      - write: {path: value.txt, content: "wrong\\n"}
      - usage: {input_tokens: 1000, output_tokens: 20, cost: 0.25}
  - steps:
      - write: {path: value.txt, content: "right\\n"}
"""
RECORD = RunRecord(
    "261117-093000-k3x9", "loop", "task", "`true` passes", (), AgentSelection((AgentSpec("scripted"),)), 1.0
)


def run_loop(root: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    (root / "scenario.yaml").write_text(SCENARIO)
    command = [sys.executable, "-P", "-m", "ralph", "loop", "Make it right", "--until", "`grep right value.txt` passes"]
    command += ["--scenario", "scenario.yaml", "--yes", *options]
    state = {"HOME": str(root / "home"), "XDG_STATE_HOME": str(root / "state")}
    return subprocess.run(command, cwd=root, env={**os.environ, **state, **environment}, capture_output=True, text=True)


def read_spans(path: Path) -> dict[str, Any]:
    return {span["name"]: span for span in map(json.loads, path.read_text().splitlines())}


def test_a_loop_has_spans_for_the_run_its_iterations_turns_and_checks(tmp_path: Path) -> None:
    done = run_loop(tmp_path, RALPH_TRACES="file:spans.jsonl")
    assert done.returncode == 0, done.stderr
    spans = read_spans(tmp_path / "spans.jsonl")
    check = "check `grep right value.txt` passes"
    assert spans.keys() == {"run loop", "iteration 1", "iteration 2", "turn 1 implementer", "turn 2 implementer", check}
    run, iteration, turn = spans["run loop"], spans["iteration 2"], spans["turn 2 implementer"]
    assert {span["context"]["trace_id"] for span in spans.values()} == {run["context"]["trace_id"]}
    assert (run["parent_id"], iteration["parent_id"]) == (None, run["context"]["span_id"])
    assert turn["parent_id"] == spans[check]["parent_id"] == iteration["context"]["span_id"]
    assert (run["attributes"]["ralph.outcome"], run["status"]["status_code"]) == ("success", "OK")
    assert spans["iteration 1"]["status"]["status_code"] == "ERROR"
    assert spans["turn 1 implementer"]["attributes"]["gen_ai.usage.input_tokens"] == 1000
    assert run["start_time"] <= turn["start_time"] <= turn["end_time"] <= run["end_time"]


def test_a_resumed_run_continues_its_trace(tmp_path: Path) -> None:
    run_loop(tmp_path, "--max-iterations", "1", RALPH_TRACES="file:first.jsonl")
    command = [sys.executable, "-P", "-m", "ralph", "resume", "--max-iterations", "3"]
    state = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
    environment = {**os.environ, **state, "RALPH_TRACES": "file:second.jsonl"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    first, second = (read_spans(tmp_path / name)["run loop"] for name in ("first.jsonl", "second.jsonl"))
    assert first["context"]["trace_id"] == second["context"]["trace_id"]
    assert first["context"]["span_id"] != second["context"]["span_id"]


def test_without_the_setting_nothing_is_exported_nor_imported() -> None:
    assert open_traces(RECORD, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) is None
    code = "import sys, ralph.app.run_engine; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("wanted", ["on", "file:", "otlp:here", "file:/nowhere/spans"])
def test_a_wrong_setting_is_refused(wanted: str) -> None:
    with pytest.raises(UsageError, match=r"RALPH_TRACES has the unknown value|cannot write traces"):
        open_traces(RECORD, {"RALPH_TRACES": wanted})

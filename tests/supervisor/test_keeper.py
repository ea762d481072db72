"""The keeper with real processes: what it records, what it ends, and what it outlives."""

import asyncio
import contextlib
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ralph.core.errors import StateError
from ralph.supervisor import client, processes
from ralph.supervisor.client import JobExit, JobRequest, KeeperClient, KeeperLost, read_exit
from ralph.supervisor.processes import end_marked, find_marked

# Written out: a test that imports what it checks cannot fail.
TAIL = 262144

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

MARK = "KEEPER_TEST"
PYTHON = (sys.executable, "-I", "-S", "-c")
ENGINE = """import asyncio, json, sys
from pathlib import Path
from ralph.supervisor.client import JobRequest, KeeperClient
spec = json.loads(sys.argv[2])
for name in ("dir", "cwd", "stdin"):
    spec[name] = spec[name] and Path(spec[name])
job = JobRequest(**{**spec, "argv": tuple(spec["argv"]), "secrets": tuple(spec["secrets"])})
lock = int(sys.argv[3])
print(asyncio.run(KeeperClient(Path(sys.argv[1]), lambda: lock).run(job)).reason)
"""
CHAIN = """import os, sys, time
end = time.time() + float(sys.argv[2])
while time.time() < end:
    if os.fork():
        os._exit(0)
"""
"""Every one of these processes is gone before anybody could look at it twice; the next is there already."""
BUSH = """import os, sys, time
end = time.time() + float(sys.argv[2])
while time.time() < end:
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(max(0.0, end - time.time()))
        os._exit(0)
    os.wait()
    time.sleep(0.005)
"""
"""Starts one detached process after the other."""
SLEEPER = f"{sys.executable} -I -S -c 'import time; time.sleep(300)'"
FORKS = "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)"
DAEMON = f"{sys.executable} -I -S -c 'import os, time; {FORKS}; time.sleep(300)'"
BROOD = f"""
token=$1
sleep 300 &
setsid sleep 300 &
(setsid sleep 300 &)
env -i setsid {SLEEPER} $token >/dev/null 2>&1 </dev/null &
(env -i {DAEMON} $token &)
setsid sh -c 'kill -STOP $$' &
setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' &
"""
"""Processes as agents leave them behind: detached, with a clean environment, stopped, deaf; most hold stdout open."""


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def is_at_rest(pid: int) -> bool:
    """Whether a process waits for something, with no signal that it has yet to take in."""
    facts = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return facts["State"].startswith("S") and int(facts["SigPnd"], 16) == 0 and int(facts["ShdPnd"], 16) == 0


@dataclass
class Stage:
    """A run directory with a keeper for it, and a way to see every process that was started in a test."""

    root: Path
    token: str = field(default_factory=lambda: f"keeper-test-{uuid.uuid4().hex}")

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    def job(self, name: str, *argv: str, **options: object) -> JobRequest:
        workspace = self.root / "workspace"
        workspace.mkdir(exist_ok=True)
        job = JobRequest(self.run_dir / name, argv, {**os.environ, MARK: f"{self.token}/{name}"}, workspace, grace=0.5)
        return replace(job, **options)  # type: ignore[arg-type]

    def shell(self, name: str, script: str, **options: object) -> JobRequest:
        return self.job(name, "/bin/sh", "-c", script, "sh", self.token, **options)

    def python(self, name: str, script: str, *argv: str, **options: object) -> JobRequest:
        return self.job(name, *PYTHON, script, self.token, *argv, **options)

    def keep(self, *jobs: JobRequest) -> list[JobExit]:
        """Be an engine for a while: run these jobs, all at once."""

        async def engine() -> list[JobExit]:
            keeper = KeeperClient(self.run_dir)
            try:
                return await asyncio.gather(*(keeper.run(job) for job in jobs))
            finally:
                await keeper.close()

        return asyncio.run(asyncio.wait_for(engine(), 120))

    def engine(self, job: JobRequest, lock: int = -1) -> "subprocess.Popen[bytes]":
        """An engine in a process of its own, that can be killed."""
        spec = {**vars(job), **{name: str(getattr(job, name) or "") or None for name in ("dir", "cwd", "stdin")}}
        return subprocess.Popen(
            [sys.executable, "-c", ENGINE, str(self.run_dir), json.dumps(spec), str(lock)],
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: f"{self.token}/engine"},
            pass_fds=[lock] if lock >= 0 else (),
        )

    def living(self) -> list[int]:
        """All processes of this test, by their environment or their command line."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                says = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if self.token.encode() in says and int(entry.name) != os.getpid() and is_alive(int(entry.name)):
                    found.append(int(entry.name))
        return found

    def keepers(self) -> list[int]:
        """The keeper of the run and those of its jobs; the first is the one whose parent is no keeper."""
        wanted = ["ralph.supervisor.keeper", str(self.run_dir)]
        pids = []
        for pid in self.living():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if all(word in words for word in wanted):
                    pids.append(pid)
        return sorted(pids, key=lambda pid: parent_of(pid) in pids)

    def programs(self) -> list[int]:
        """What the jobs started."""
        own = set(self.keepers())
        return [pid for pid in self.living() if pid not in own]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.run_dir.mkdir()
    monkeypatch.setenv(MARK, f"{stage.token}/keeper")
    yield stage
    for _ in range(200):
        if not (left := stage.living()):
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    pytest.fail("processes of the test could not be ended")


def started(stage: Stage, name: str = "started") -> int:
    """Wait until a job wrote its pid into the workspace."""
    path = stage.root / "workspace" / name
    eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def kill_engine(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


class TestWhatIsRecorded:
    @pytest.mark.parametrize(
        ("script", "code", "number"),
        [("exit 0", 0, None), ("exit 3", 3, None), ("kill -SEGV $$", None, 11), ("kill -KILL $$", None, 9)],
    )
    def test_exit_code_and_signal_are_distinguished(
        self, stage: Stage, script: str, code: int | None, number: int | None
    ) -> None:
        [ended] = stage.keep(stage.shell("job", f"ulimit -c 0; {script}"))
        assert (ended.reason, ended.code, ended.signal) == ("exit", code, number)
        assert ended.started_at <= ended.ended_at
        assert read_exit(stage.run_dir / "job") == ended

    def test_a_program_that_cannot_be_started_is_named(self, stage: Stage) -> None:
        text = stage.root / "text"
        text.write_text("no program")
        missing, plain, nowhere = stage.keep(
            stage.job("missing", "no-such-program-here"),
            stage.job("plain", str(text)),
            stage.job("nowhere", "/bin/true", cwd=stage.root / "gone"),
        )
        assert [one.reason for one in (missing, plain, nowhere)] == ["exec"] * 3
        assert "no-such-program-here" in missing.error
        assert str(text) in plain.error
        assert "gone" in nowhere.error

    def test_the_two_outputs_are_kept_apart(self, stage: Stage) -> None:
        stage.keep(stage.shell("job", "echo out; echo err >&2"))
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"out\n"
        assert (stage.run_dir / "job" / "stderr").read_bytes() == b"err\n"
        assert stat.S_IMODE((stage.run_dir / "job" / "stdout").stat().st_mode) == 0o600

    def test_merged_outputs_are_in_the_order_of_printing(self, stage: Stage) -> None:
        stage.keep(stage.shell("job", "echo 1; echo 2 >&2; echo 3; echo 4 >&2", merge=True))
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"1\n2\n3\n4\n"
        assert not (stage.run_dir / "job" / "stderr").exists()

    def test_a_program_gets_its_input_environment_directory_and_umask_and_nothing_else(self, stage: Stage) -> None:
        prompt = stage.root / "prompt"
        prompt.write_bytes(b"x" * 300_000 + b"end")
        script = "wc -c; pwd; umask; ls -l /proc/self/fd | grep -c -- '->'"
        before = os.umask(0o027)
        try:
            stage.keep(stage.shell("job", script, stdin=prompt), stage.shell("none", "wc -c"))
        finally:
            os.umask(before)
        told = (stage.run_dir / "job" / "stdout").read_text().split()
        assert told[:3] == ["300003", str(stage.root / "workspace"), "0027"]
        assert int(told[3]) <= 5, "the program has descriptors of the keeper"
        assert (stage.run_dir / "none" / "stdout").read_text().split() == ["0"]

    def test_broken_utf8_is_kept_byte_by_byte(self, stage: Stage) -> None:
        stage.keep(stage.shell("job", r"printf '\377\376\303(\0\r\n'"))
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"\xff\xfe\xc3(\0\r\n"

    def test_output_is_reported_while_the_job_runs(self, stage: Stage) -> None:
        job = stage.shell("job", "echo first; while [ ! -e seen ]; do sleep 0.02; done")
        seen: list[bytes] = []

        def look() -> None:
            seen.append((job.dir / "stdout").read_bytes())
            (job.cwd / "seen").touch()

        async def engine() -> JobExit:
            keeper = KeeperClient(stage.run_dir)
            try:
                return await asyncio.wait_for(keeper.run(job, look), 120)
            finally:
                await keeper.close()

        assert asyncio.run(engine()).code == 0
        assert seen[0] == b"first\n"


class TestStreams:
    def test_a_flood_is_kept_with_its_beginning_and_its_end_in_bounded_memory(self, stage: Stage) -> None:
        size = 100 * 1024 * 1024
        flood = f"import sys\nprint('begin')\nfor _ in range({size} // 1024): sys.stdout.write('x' * 1023 + '\\n')\nprint('end')"
        job = stage.shell("job", f'{sys.executable} -c "$0"; grep VmHWM /proc/$PPID/status > peak', cap=1024 * 1024)
        job = replace(job, argv=(*job.argv[:3], flood))
        [ended] = stage.keep(job)
        kept = (stage.run_dir / "job" / "stdout").read_bytes()
        assert ended.streams["stdout"]["bytes"] == size + len("begin\nend\n")
        assert kept.startswith(b"begin\nxxx")
        assert kept.endswith(b"x\nend\n")
        assert len(kept) < 1024 * 1024 + TAIL + 1000
        assert b"bytes left out]\n" in kept
        assert int(job.cwd.joinpath("peak").read_text().split()[1]) < 64 * 1024, "kB of the job's keeper"

    def test_a_stream_that_just_fits_has_no_marker(self, stage: Stage) -> None:
        [ended] = stage.keep(stage.shell("job", "printf 1234567890", cap=10))
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"1234567890"
        assert ended.streams["stdout"] == {"bytes": 10, "kept": 10, "error": ""}

    def test_a_secret_split_over_writes_is_not_on_the_disk(self, stage: Stage) -> None:
        secret = "sk-123456789abcdef"
        script = "import os, time\nfor c in os.environ['S']: os.write(1, c.encode()); os.write(2, c.encode()); time.sleep(0.002)"
        job = stage.python("job", script, secrets=(secret,))
        stage.keep(replace(job, env={**job.env, "S": f"<{secret}{secret}> sk-1234"}))
        for name in ("stdout", "stderr"):
            kept = (stage.run_dir / "job" / name).read_bytes()
            assert kept.startswith(b"<[redacted][redacted]> sk-1234")

    def test_redaction_leaves_nothing_else_in_the_stream(self, stage: Stage) -> None:
        secret = "a-secret-that-is-longer-than-its-mask"
        stage.keep(stage.shell("job", f"echo before {secret} after", secrets=(secret,)))
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"before [redacted] after\n"

    def test_a_secret_that_begins_like_another_is_hidden_to_its_end(self, stage: Stage) -> None:
        short, long = "token-12345", "token-12345-and-more"
        script = "import os, sys, time\nos.write(1, b'token-12345'); time.sleep(0.3); os.write(1, b'-and-more')"
        stage.keep(stage.python("job", script, secrets=(long, short)))
        assert b"and-more" not in (stage.run_dir / "job" / "stdout").read_bytes()

    def test_a_secret_that_is_not_utf8_hinders_nothing(self, stage: Stage) -> None:
        secret = os.fsdecode(b"\xff\xfe\xfdsecret")
        stage.keep(stage.shell("job", r"printf 'a\377\376\375secretb'", secrets=(secret,)))
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"a[redacted]b"


class TestLimits:
    @pytest.mark.parametrize(
        ("limit", "reason"), [("wall", "wall"), ("idle", "idle"), ("abandoned_after", "interrupted")]
    )
    def test_the_keeper_holds_a_limit_though_the_engine_is_gone(self, stage: Stage, limit: str, reason: str) -> None:
        engine = stage.engine(stage.shell("job", "echo $$ > started; sleep 300", **{limit: 1.0}))
        started(stage)
        kill_engine(engine)
        eventually(lambda: read_exit(stage.run_dir / "job"))
        ended = read_exit(stage.run_dir / "job")
        assert ended and (ended.reason, ended.signal) == (reason, signal.SIGTERM)
        eventually(lambda: not stage.living())

    def test_a_job_with_an_engine_is_not_abandoned(self, stage: Stage) -> None:
        [ended] = stage.keep(stage.shell("job", "sleep 1", abandoned_after=0.1))
        assert ended.reason == "exit"

    def test_a_job_that_prints_is_not_idle(self, stage: Stage) -> None:
        [ended] = stage.keep(stage.shell("job", "for i in $(seq 11); do echo $i >&2; sleep 0.3; done", idle=3.0))
        assert (ended.reason, ended.code) == ("exit", 0)

    def test_a_job_that_ignores_the_request_to_end_is_killed(self, stage: Stage) -> None:
        ended = self.asked_to_end(stage, "trap '' TERM INT HUP; echo $$ > started; while :; do sleep 1; done")
        assert (ended.reason, ended.signal) == ("cut", signal.SIGKILL)

    def test_a_job_may_end_in_its_own_way_when_asked_to(self, stage: Stage) -> None:
        script = "trap 'echo bye; exit 5' TERM; sleep 300 & echo $$ > started; wait"
        ended = self.asked_to_end(stage, script, grace=60.0)
        assert (ended.reason, ended.code) == ("cut", 5)
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"bye\n"

    @pytest.mark.parametrize("seconds", [40 * 86400.0, float("inf")])
    def test_a_limit_may_be_as_long_as_one_likes(self, stage: Stage, seconds: float) -> None:
        [ended] = stage.keep(stage.shell("job", "sleep 0.1; exit 4", wall=seconds, idle=seconds))
        assert (ended.reason, ended.code) == ("exit", 4)

    def test_a_job_is_stopped_for_the_reason_given(self, stage: Stage) -> None:
        assert self.asked_to_end(stage, "echo $$ > started; sleep 300").reason == "cut"

    @staticmethod
    def asked_to_end(stage: Stage, script: str, **options: object) -> JobExit:
        """How a job ends that was asked to as soon as it says that it has started."""

        async def engine() -> JobExit:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(stage.shell("job", script, **options)))
            await asyncio.to_thread(started, stage)
            await client.stop(stage.run_dir / "job", "cut")
            try:
                return await asyncio.wait_for(running, 120)
            finally:
                await keeper.close()

        return asyncio.run(engine())

    def test_a_job_that_is_just_being_started_can_be_stopped(self, stage: Stage) -> None:
        """Whoever asks a turn to end must not be missed because the turn began this very moment."""

        async def engine() -> JobExit:
            keeper = KeeperClient(stage.run_dir)
            await keeper.run(stage.shell("first", "true"))
            running = asyncio.create_task(keeper.run(stage.shell("job", "sleep 300")))
            await asyncio.sleep(0)
            await client.stop(stage.run_dir / "job", "stopped")
            try:
                return await asyncio.wait_for(running, 120)
            finally:
                await keeper.close()

        assert asyncio.run(engine()).reason == "stopped"


class TestNothingIsLeft:
    @pytest.mark.parametrize(
        ("end", "reason"),
        [
            ("sleep 0.3; exit 0", "exit"),
            ("sleep 0.3; kill -KILL $$", "exit"),
            ("exec sleep 300", "wall"),
            ("trap '' TERM; while :; do sleep 1; done", "wall"),
        ],
        ids=["exit", "crash", "timeout", "timeout-deaf"],
    )
    def test_after_a_job_none_of_its_processes_is_alive(self, stage: Stage, end: str, reason: str) -> None:
        wall = 3.0 if reason == "wall" else None
        [ended] = stage.keep(stage.shell("job", f"{BROOD}\necho ready\n{end}", wall=wall))
        assert ended.reason == reason
        assert ended.unkillable == 0
        assert ended.survivors >= (7 if reason == "exit" else 0)
        assert stage.programs() == []
        assert (stage.run_dir / "job" / "stdout").read_bytes() == b"ready\n"

    def test_after_a_stop_none_of_its_processes_is_alive(self, stage: Stage) -> None:
        async def engine() -> JobExit:
            keeper = KeeperClient(stage.run_dir)
            job = stage.shell("job", f"{BROOD}\necho $$ > started; sleep 300")
            running = asyncio.create_task(keeper.run(job))
            await asyncio.to_thread(started, stage)
            await client.stop(job.dir, "stopped")
            try:
                return await asyncio.wait_for(running, 120)
            finally:
                await keeper.close()

        assert asyncio.run(engine()).reason == "stopped"
        assert stage.programs() == []

    @pytest.mark.parametrize("script", [BUSH, CHAIN], ids=["bush", "chain"])
    def test_a_process_that_never_stops_forking_is_ended(self, stage: Stage, script: str) -> None:
        """`chain` is the harder one: no single process of it lives long enough to be found and then signalled."""
        lasts = 120.0
        begun = time.monotonic()
        job = stage.shell("job", f'{" ".join(PYTHON)} "$0" {stage.token} {lasts} & sleep 0.3; echo done', grace=0.2)
        [ended] = stage.keep(replace(job, argv=(*job.argv[:3], script)))
        left = stage.programs()
        assert ended.unkillable == 0
        assert left == []
        assert time.monotonic() - begun < lasts, "it only went because its time was over"

    def test_the_end_of_one_job_does_not_touch_the_detached_children_of_another(self, stage: Stage) -> None:
        child = f"(env -i setsid {SLEEPER} $1 xNAME &)"

        def alive(name: str) -> list[int]:
            found = []
            for pid in stage.living():
                with contextlib.suppress(OSError):
                    if f"\0x{name}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(pid)
            return found

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            script = child.replace("NAME", "long")
            long = asyncio.create_task(
                keeper.run(stage.shell("long", f"{script}; while [ ! -e go ]; do sleep 0.05; done"))
            )
            await asyncio.to_thread(eventually, lambda: alive("long"))
            script = child.replace("NAME", "short")
            short = await keeper.run(stage.shell("short", f"{script}; sleep 0.3"))
            assert (short.reason, short.survivors, alive("short")) == ("exit", 1, [])
            assert len(alive("long")) == 1
            stage.shell("x", "").cwd.joinpath("go").touch()
            assert (await long).survivors == 1
            assert alive("long") == []
            await keeper.close()

        asyncio.run(asyncio.wait_for(engine(), 120))

    def test_the_keeper_goes_with_its_engine_and_its_last_job(self, stage: Stage) -> None:
        stage.keep(*(stage.shell(f"job{number}", "true") for number in range(5)))
        eventually(lambda: not stage.living())
        assert not [path for path in stage.run_dir.rglob("*") if path.is_socket()]
        assert (stage.run_dir / "keeper.log").read_text() == ""

    def test_a_keeper_that_is_slow_to_go_is_waited_for(self, stage: Stage) -> None:
        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            await keeper.run(stage.shell("job", "true"))
            pid = stage.keepers()[0]
            os.kill(pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(4.0, os.kill, pid, signal.SIGCONT)
            await keeper.close()
            assert stage.living() == []

        asyncio.run(engine())


class TestWithoutTheEngine:
    def test_a_new_engine_takes_over_a_job_and_its_result(self, stage: Stage) -> None:
        job = stage.shell("job", "echo $$ > started; echo x >> starts; while [ ! -e go ]; do sleep 0.02; done; exit 6")
        engine = stage.engine(job)
        pid = started(stage)
        kill_engine(engine)
        assert is_alive(pid)
        job.cwd.joinpath("go").touch()
        [ended] = stage.keep(job)
        assert (ended.reason, ended.code) == ("exit", 6)
        assert job.cwd.joinpath("starts").read_text() == "x\n"
        eventually(lambda: not stage.living())

    def test_a_new_engine_can_stop_a_job_that_it_did_not_start(self, stage: Stage) -> None:
        job = stage.shell("job", "echo $$ > started; sleep 300")
        engine = stage.engine(job)
        started(stage)
        kill_engine(engine)

        async def second() -> JobExit:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(job))
            await asyncio.sleep(0)
            await client.stop(job.dir, "stopped")
            return await asyncio.wait_for(running, 120)

        assert asyncio.run(second()).reason == "stopped"
        eventually(lambda: not stage.living())

    def test_the_result_of_a_job_that_ended_alone_is_found(self, stage: Stage) -> None:
        job = stage.shell("job", "echo $$ > started; sleep 0.5; echo late; exit 7")
        engine = stage.engine(job)
        started(stage)
        kill_engine(engine)
        eventually(lambda: not stage.living())
        [ended] = stage.keep(job)
        assert ended.code == 7
        assert (job.dir / "stdout").read_bytes() == b"late\n"

    def test_the_tree_lock_is_held_as_long_as_a_job_lives(self, stage: Stage) -> None:
        path = stage.root / "tree.lock"

        def is_free() -> bool:
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                return True

        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            job = stage.shell("job", "echo $$ > started; while [ ! -e go ]; do sleep 0.02; done")
            engine = stage.engine(job, lock.fileno())
            started(stage)
        kill_engine(engine)
        assert not is_free()
        os.kill(stage.keepers()[0], signal.SIGKILL)
        eventually(lambda: len(stage.keepers()) == 1)
        assert not is_free(), "the job's keeper lives on, and with it the agent"
        job.cwd.joinpath("go").touch()
        eventually(is_free)

    def test_a_detached_process_of_a_job_does_not_hold_the_tree_lock(self, stage: Stage) -> None:
        path = stage.root / "tree.lock"
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            engine = stage.engine(stage.shell("job", "ls -l /proc/self/fd"), lock.fileno())
            engine.communicate(timeout=120)
        assert b"tree.lock" not in (stage.run_dir / "job" / "stdout").read_bytes()

    def test_a_keeper_far_down_in_the_tree_is_reached(self, stage: Stage) -> None:
        deep = stage.root / "run" / ("d" * 60) / ("e" * 60) / "ü b'c"
        deep.mkdir(parents=True)
        stage.root = deep
        stage.run_dir.mkdir()
        job = stage.shell("job", "echo $$ > started; while [ ! -e go ]; do sleep 0.02; done; exit 8")
        engine = stage.engine(job)
        started(stage)
        kill_engine(engine)
        job.cwd.joinpath("go").touch()
        assert stage.keep(job)[0].code == 8


class TestKilledKeepers:
    def test_a_job_outlives_the_keeper_of_the_run_and_the_next_job_gets_a_new_one(self, stage: Stage) -> None:
        job = stage.shell("job", "echo $$ > started; while [ ! -e go ]; do sleep 0.02; done; exit 9")

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(job))
            pid = await asyncio.to_thread(started, stage)
            os.kill(stage.keepers()[0], signal.SIGKILL)
            await asyncio.to_thread(eventually, lambda: len(stage.keepers()) == 1)
            assert is_alive(pid)
            job.cwd.joinpath("go").touch()
            assert (await asyncio.wait_for(running, 120)).code == 9
            assert (await asyncio.wait_for(keeper.run(stage.shell("next", "exit 2")), 120)).code == 2
            await keeper.close()

        asyncio.run(engine())
        eventually(lambda: not stage.living())

    def test_a_job_can_be_started_beside_one_whose_keeper_of_the_run_was_killed(self, stage: Stage) -> None:
        job = stage.shell("job", "echo $$ > started; sleep 300")

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(job))
            await asyncio.to_thread(started, stage)
            os.kill(stage.keepers()[0], signal.SIGKILL)
            await asyncio.to_thread(eventually, lambda: len(stage.keepers()) == 1)
            beside = await asyncio.wait_for(keeper.run(stage.shell("beside", "exit 2")), 120)
            assert beside.code == 2
            assert not running.done()
            await client.stop(job.dir, "stopped")
            assert (await asyncio.wait_for(running, 120)).reason == "stopped"
            await keeper.close()

        asyncio.run(engine())

    def test_a_new_engine_adopts_a_job_whose_keeper_of_the_run_was_killed_with_the_engine(self, stage: Stage) -> None:
        job = stage.shell("job", "echo $$ > started; while [ ! -e go ]; do sleep 0.02; done; exit 9")
        engine = stage.engine(job)
        pid = started(stage)
        kill_engine(engine)
        os.kill(stage.keepers()[0], signal.SIGKILL)
        eventually(lambda: len(stage.keepers()) == 1)
        assert is_alive(pid)
        job.cwd.joinpath("go").touch()
        assert stage.keep(job)[0].code == 9
        assert stage.keep(stage.shell("next", "exit 2"))[0].code == 2
        eventually(lambda: not stage.living())

    def test_keeper_ends_the_orphans_of_a_killed_job_keeper(self, stage: Stage) -> None:
        job = stage.shell("job", f"{BROOD}\necho $$ > started; sleep 300")

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(job))
            pid = await asyncio.to_thread(started, stage)
            os.kill(parent_of(pid), signal.SIGKILL)
            with pytest.raises(KeeperLost):
                await asyncio.wait_for(running, 120)
            await asyncio.to_thread(eventually, lambda: not stage.programs())
            assert (await asyncio.wait_for(keeper.run(stage.shell("next", "exit 2")), 120)).code == 2
            await keeper.close()

        asyncio.run(engine())

    def test_a_forking_process_that_a_killed_job_keeper_leaves_is_ended_too(self, stage: Stage) -> None:
        lasts = 120.0
        job = stage.shell("job", f'{" ".join(PYTHON)} "$0" {stage.token} {lasts} & echo $$ > started; sleep 300')
        job = replace(job, argv=(*job.argv[:3], BUSH))

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(job))
            pid = await asyncio.to_thread(started, stage)
            await asyncio.to_thread(eventually, lambda: len(stage.programs()) > 5)
            begun = time.monotonic()
            os.kill(parent_of(pid), signal.SIGKILL)
            with pytest.raises(KeeperLost):
                await asyncio.wait_for(running, 120)
            await asyncio.to_thread(eventually, lambda: not stage.programs())
            assert time.monotonic() - begun < lasts - 5, "it only went because its time was over"
            await keeper.close()

        asyncio.run(engine())

    def test_orphans_of_two_killed_keepers_are_found_by_their_mark(self, stage: Stage) -> None:
        script = "setsid sleep 300 & (trap '' TERM; exec setsid sleep 300) & echo $$ > started; sleep 300"
        job = stage.shell("job", script)
        engine = stage.engine(job)
        pid = started(stage)
        kill_engine(engine)
        job_keeper = parent_of(pid)
        os.kill(stage.keepers()[0], signal.SIGKILL)
        os.kill(job_keeper, signal.SIGKILL)
        eventually(lambda: not stage.keepers())
        with pytest.raises(KeeperLost):
            stage.keep(job)
        assert find_marked(MARK, f"{stage.token}/job") != []
        assert find_marked(MARK, f"{stage.token}/other") == []
        assert end_marked(MARK, f"{stage.token}/job", grace=0.5) >= 3
        assert stage.programs() == []

    def test_a_process_that_is_just_becoming_another_program_is_found_by_its_mark(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Measured: of a process that does nothing but exec, one look in thirty shows no environment."""
        token, looks, real = uuid.uuid4().hex, [], processes._read_environment
        with subprocess.Popen(["sleep", "300"], env={**os.environ, MARK: token}) as sleeper:

            def look(pid: int) -> bytes | None:
                looks.append(pid)
                return b"" if pid == sleeper.pid and looks.count(pid) < 4 else real(pid)

            try:
                monkeypatch.setattr(processes, "_read_environment", look)
                assert find_marked(MARK, token) == [sleeper.pid]
            finally:
                sleeper.kill()

    def test_keeper_that_stays_with_its_job_is_not_a_leftover(self, stage: Stage) -> None:
        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            running = asyncio.create_task(keeper.run(stage.shell("job", "echo $$ > started; sleep 300")))
            await asyncio.to_thread(started, stage)
            running.cancel()
            await asyncio.wait({running})
            await keeper.close()

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            asyncio.run(engine())
            gc.collect()
        assert [str(one.message) for one in said if one.category is ResourceWarning] == []
        assert stage.keepers() and stage.programs()

    def test_a_request_to_go_does_not_reach_a_job_that_starts_later(self, stage: Stage) -> None:
        async def engine() -> JobExit:
            keeper = KeeperClient(stage.run_dir)
            await keeper.run(stage.shell("first", "true"))
            keeper_pid = stage.keepers()[0]
            os.kill(keeper_pid, signal.SIGTERM)
            await asyncio.to_thread(eventually, lambda: is_at_rest(keeper_pid))
            try:
                return await asyncio.wait_for(keeper.run(stage.shell("job", "sleep 0.3; exit 3")), 120)
            finally:
                await keeper.close()

        ended = asyncio.run(engine())
        assert (ended.reason, ended.code) == ("exit", 3)


class TestStartingOnce:
    def test_a_job_asked_for_several_times_at_once_is_started_once(self, stage: Stage) -> None:
        job = stage.shell("job", "echo x >> starts; sleep 0.3; exit 3")
        assert [ended.code for ended in stage.keep(job, job, job)] == [3, 3, 3]
        assert job.cwd.joinpath("starts").read_text() == "x\n"

    def test_a_quick_job_asked_for_several_times_at_once_is_started_once(self, stage: Stage) -> None:
        jobs = [stage.shell(f"job{number}", f"echo x >> starts{number}") for number in range(10)]
        ended = stage.keep(*(job for job in jobs for _ in range(3)))
        assert [one.code for one in ended] == [0] * 30
        assert [job.cwd.joinpath(f"starts{n}").read_text() for n, job in enumerate(jobs)] == ["x\n"] * 10

    def test_a_job_that_has_ended_is_not_started_again(self, stage: Stage) -> None:
        job = stage.shell("job", "echo x >> starts; exit 3")
        assert stage.keep(job) == stage.keep(job)
        assert job.cwd.joinpath("starts").read_text() == "x\n"

    def test_many_jobs_run_at_once(self, stage: Stage) -> None:
        jobs = [
            stage.shell(f"job{n}", "touch here$0; while [ $(ls | wc -l) -lt 12 ]; do sleep 0.02; done")
            for n in range(12)
        ]
        jobs = [replace(job, argv=(*job.argv[:3], str(n))) for n, job in enumerate(jobs)]
        assert [ended.code for ended in stage.keep(*jobs)] == [0] * 12


class TestHostileVisitors:
    """An agent runs as the same user and can reach the sockets; what it says there must not end anybody's work."""

    @staticmethod
    def send(path: Path, *messages: bytes) -> None:
        before = os.getcwd()
        os.chdir(path.parent)
        try:
            for message in messages:
                with socket.socket(socket.AF_UNIX) as visitor, contextlib.suppress(OSError):
                    visitor.connect(path.name)
                    visitor.sendall(message)
        finally:
            os.chdir(before)

    def test_garbage_on_the_sockets_breaks_neither_a_job_nor_the_keeper(self, stage: Stage) -> None:
        garbage = (b"", b"\n", b'"stop"\n', b'["stop"]\n', b"{\n", b'{"op": "stop', b"\xff\0\n", b"[" * 5000 + b"\n")

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            job = stage.shell("job", "echo $$ > started; while [ ! -e go ]; do sleep 0.02; done; exit 5")
            running = asyncio.create_task(keeper.run(job))
            await asyncio.to_thread(started, stage)
            for path in (job.dir / "sock", stage.run_dir / "keeper.sock", stage.run_dir / "jobs.sock"):
                await asyncio.to_thread(self.send, path, *garbage, b'{"dir": 5}\n', b'{"argv": []}\n')
            assert (await asyncio.wait_for(keeper.run(stage.shell("next", "exit 2")), 120)).code == 2
            job.cwd.joinpath("go").touch()
            assert (await asyncio.wait_for(running, 120)).code == 5
            await keeper.close()

        asyncio.run(engine())

    def test_a_visitor_that_says_nothing_does_not_keep_a_job_from_starting(self, stage: Stage) -> None:
        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            await keeper.run(stage.shell("first", "true"))
            visitors = [await asyncio.open_unix_connection(str(stage.run_dir / "jobs.sock")) for _ in range(3)]
            assert (await asyncio.wait_for(keeper.run(stage.shell("job", "exit 2")), 4)).code == 2
            for _, writer in visitors:
                writer.close()
            await keeper.close()

        asyncio.run(engine())

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"reason": 5}', b"[" * 50_000, b"\xff"])
    def test_an_exit_record_that_is_none_is_named(self, stage: Stage, content: bytes) -> None:
        job = stage.shell("job", "true")
        job.dir.mkdir()
        (job.dir / "exit").write_bytes(content)
        with pytest.raises(StateError) as caught:
            stage.keep(job)
        assert str(job.dir / "exit") in caught.value.where

    def test_a_directory_in_place_of_the_exit_record_is_named(self, stage: Stage) -> None:
        job = stage.shell("job", "true")
        (job.dir / "exit").mkdir(parents=True)
        with pytest.raises(StateError) as caught:
            stage.keep(job)
        assert str(job.dir / "exit") in caught.value.where


def test_a_run_of_many_jobs_needs_no_more_descriptors_than_one_of_few(stage: Stage) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:

        async def engine() -> None:
            keeper = KeeperClient(stage.run_dir)
            for number in range(80):
                assert (await keeper.run(stage.shell(f"job{number}", "true"))).code == 0
            await keeper.close()

        asyncio.run(asyncio.wait_for(engine(), 120))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

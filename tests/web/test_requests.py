"""Requests that must not be served: a clear answer, and no effect."""

import http.client
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_actions import WAITS
from web_server import PASSPHRASE, Server, make_project, serving

from ralph.cli.schema import COMMANDS
from ralph.web.actions import GUARDED_ACTIONS, OPEN_ACTIONS

ROUTES = ("/api/me", "/api/runs", "/api/runs/x@y", "/api/runs/x@y/diff", "/api/stream?runs=1", "/api/nothing")
ROUTES += ("/api/runs/x@y/turns/1/raw", "/api/runs/x@y/journal", "/api/export/x@y.html", "/api/schema")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request that would be served otherwise, and the answers that refuse it."""

    statuses: tuple[int, ...]
    headers: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    method: str = ""
    body: bytes | None = None
    only: str = ""
    """The method of the routes that it concerns; all by default."""


FAULTS = {
    "host": Fault((400, 421), {"Host": "evil.example"}),
    "no host": Fault((400, 421), {"Host": ""}),
    "origin": Fault((403,), {"Origin": "http://evil.example"}, only="POST"),
    "no origin": Fault((403,), {"Origin": ""}, only="POST"),
    "other site": Fault((403,), {"Sec-Fetch-Site": "cross-site"}),
    "no token": Fault((401,), {"Authorization": ""}),
    "cookie instead of a token": Fault((401,), {"Authorization": "", "Cookie": "token={token}"}),
    "role": Fault((403,), token="{viewer}", only="POST"),
    "method": Fault((405,), method="PUT"),
    "form": Fault((415,), {"Content-Type": "application/x-www-form-urlencoded"}, only="POST"),
    "10 MB": Fault((413,), {"Content-Length": str(10 << 20)}, body=b"x" * 1000, only="POST"),
    "no object": Fault((400, 403), body=b"[]", only="POST"),
    "no JSON": Fault((400, 403), body=b"{", only="POST"),
}
ACTIONS = (*OPEN_ACTIONS, *GUARDED_ACTIONS, "snooze")


@pytest.mark.parametrize("fault", FAULTS)
def test_every_route_refuses_a_request_with_one_fault(server: Server, viewer: str, fault: str) -> None:
    """Each answer is a clear error, and the run is as before."""
    server.stopped = server.stopped or server.start_loop(WAITS, "--max-iterations", "1")
    key, wrong = server.stopped, FAULTS[fault]
    server.wait_for(key, lambda view: not view["alive"])
    before = server.journal(key)
    routes = [("GET", path.replace("x@y", key)) for path in ROUTES if path != "/api/nothing"]
    routes += [("POST", "/api/runs"), ("POST", "/api/unlock"), *(("POST", f"/api/runs/{key}/{one}") for one in ACTIONS)]
    headers = {name: value.format(token=server.token) for name, value in wrong.headers.items()}
    token = wrong.token.format(viewer=viewer) if wrong.token else None
    for method, path in routes:
        if wrong.only in ("", method):
            body = (wrong.body or b"{}") if method == "POST" else None
            answer = server.request(wrong.method or method, path, body, headers=headers, token=token)
            assert answer.status in wrong.statuses, (method, path, answer.text)
            assert answer.status == 400 or answer.error["what"], path
    assert server.journal(key) == before


@pytest.fixture(scope="module")
def viewer(server: Server) -> str:
    """A token that may only view."""
    token: str = json.loads(server.ralph("web", "token", "add", "viewer", "--json"))["token"]
    return token


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost:{port}.evil"]
)
def test_other_host_names_are_refused(server: Server, host: str) -> None:
    answer = server.get("/api/me", headers={"Host": host.format(port=server.port)})
    assert answer.status in (400, 421)
    assert "shop" not in answer.text


def test_the_machine_can_be_called_localhost(server: Server) -> None:
    assert server.get("/api/me", headers={"Host": f"localhost:{server.port}"}).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_other_pages_cannot_send_anything(server: Server, origin: str) -> None:
    headers = {"Origin": origin.format(port=server.port)}
    assert server.post("/api/unlock", {}, headers=headers).status == 403
    assert server.get("/api/stream?runs=1", headers=headers).status == 403


def test_a_request_of_another_site_without_origin_is_refused(server: Server) -> None:
    assert server.get("/api/runs", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert server.post("/api/unlock", {}, headers={"Origin": ""}).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_do_not_work(server: Server, method: str) -> None:
    assert server.request(method, "/api/runs").status == 405


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_only_json_is_accepted(server: Server, kind: str) -> None:
    assert server.post("/api/unlock", {}, headers={"Content-Type": kind}).status == 415


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b"[" * 100_000])
def test_body_that_is_not_an_object_is_an_error_of_the_caller(server: Server, body: bytes) -> None:
    answer = server.post("/api/unlock", body)
    assert (answer.status, answer.error["todo"] != "") == (400, True)


def test_large_bodies_are_refused_before_they_are_read(server: Server) -> None:
    assert server.post("/api/unlock", b"x" * 1000, headers={"Content-Length": str(10 << 20)}).status == 413
    assert server.post("/api/unlock", b'{"passphrase": "' + b"x" * (300 << 10) + b'"}').status == 413


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/..%2f..%2fetc@0123456789",
        "/api/runs/..@{project}",
        "/api/runs/%2e%2e@{project}/diff",
        "/api/runs/..%2f..@{project}/journal",
        "/api/export/..@{project}.html",
        "/api/export/../../../etc/passwd.html",
        "/static/../access.py",
        "/static/..%2faccess.py",
        "/static/%2e%2e/access.py",
        "/static//etc/passwd",
        "/r/../../etc/passwd/x",
        "/api/runs/{run}/output?log=checks/../../../../value.txt",
        "/api/runs/{run}/output?log=checks/../stdout",
        "/api/runs/{run}/documents/../../value.txt",
        "/api/runs/{run}/documents/..%2f..%2fvalue.txt",
        "/api/runs/{run}/documents//etc/passwd",
        "/api/runs/{run}/turns/..%2f1/prompt",
        "/api/runs/{run}%2f../journal",
    ],
)
def test_paths_cannot_leave_their_directory(server: Server, path: str) -> None:
    from web_server import project_name

    server.stopped = server.stopped or server.start_loop(WAITS, "--max-iterations", "1")
    answer = server.get(path.format(project=project_name(server.root), run=server.stopped))
    assert answer.status == 404
    assert "root:" not in answer.text and "def " not in answer.text


def test_an_unknown_address_shows_the_page_and_an_unknown_route_says_so(server: Server) -> None:
    page, route = server.get("/nope"), server.get("/api/nope")
    assert (page.status, "/static/app.js" in page.text) == (404, True)
    assert (route.status, route.error["what"]) == (404, "there is nothing at this address")


def test_a_long_address_is_refused(server: Server) -> None:
    assert server.get("/api/runs?q=" + "x" * 5000).status == 414


@pytest.mark.parametrize(("query", "word"), [("stat:stuck", "stat"), ("cost>much", "much"), ("x:y", "x")])
def test_a_wrong_filter_names_the_word(server: Server, query: str, word: str) -> None:
    answer = server.get(f"/api/runs?q={query}")
    assert answer.status == 400
    assert word in answer.error["what"]


def test_runs_are_listed_by_state_and_project(server: Server) -> None:
    server.stopped = server.stopped or server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(server.stopped, lambda view: not view["alive"])
    keys = [row["key"] for row in server.get("/api/runs?state=limit&project=shop").data["rows"]]
    assert server.stopped in keys
    assert server.get("/api/runs?state=success").data["rows"] == []
    assert server.get("/api/runs?project=elsewhere").data["rows"] == []


def test_the_page_forbids_inline_code_frames_and_other_hosts(server: Server) -> None:
    answer = server.get("/", headers={"Authorization": ""})
    policy = answer.headers["content-security-policy"]
    assert answer.status == 200
    assert "unsafe" not in policy and "http" not in policy and "default-src 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert "set-cookie" not in answer.headers
    assert "<script>" not in answer.text and " style=" not in answer.text


def test_tokens_have_roles_and_can_be_removed(server: Server) -> None:
    token = json.loads(server.ralph("web", "token", "add", "phone", "--json"))["token"]
    assert server.get("/api/me", token=token).data["role"] == "view"
    refused = server.post("/api/runs/x@y/signals", {"type": "PAUSE"}, token=token)
    assert (refused.status, "phone" in refused.error["what"]) == (403, True)
    assert server.post("/api/unlock", {"passphrase": PASSPHRASE}, token=token).status == 403
    listed = server.ralph("web", "token", "list")
    assert "phone" in listed and token not in listed
    server.ralph("web", "token", "remove", "phone")
    assert server.get("/api/me", token=token).status == 401


def test_wrong_tokens_lock_out_but_not_the_open_page(tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state", passphrase=False) as server:
        assert server.get("/api/me").status == 200
        other = json.loads(server.ralph("web", "token", "add", "other", "--json"))["token"]
        statuses = [server.get(path, token="wrong").status for path in ROUTES[:6]]
        assert statuses == [401] * 5 + [429]
        assert server.get("/api/me", token=other).status == 429
        assert server.get("/api/me").status == 200


def test_a_read_only_server_changes_nothing(tmp_path: Path) -> None:
    with serving(make_project(tmp_path), tmp_path / "state", "--read-only", "--port", "0") as server:
        assert server.get("/api/me").data["role"] == "view"
        answer = server.post("/api/runs/x@y/signals", {"type": "PAUSE"})
        assert (answer.status, "read-only" in answer.error["what"]) == (403, True)


def test_starting_it_twice_finds_the_first(server: Server, tmp_path: Path) -> None:
    second = json.loads(server.ralph("web", "--json"))
    assert (second["new"], second["link"].endswith(server.token)) == (False, True)
    assert f":{server.port}/" in second["link"]
    assert second.keys() == {"schema", "command", *COMMANDS["web"]}
    same = json.loads(server.ralph("web", "--port", str(server.port), "--json"))
    assert (same["link"], same["pid"], same["ignored"]) == (second["link"], server.process.pid, [])
    other = json.loads(server.ralph("web", "--port", "1", "--read-only", "--json"))
    assert (other["link"], other["ignored"]) == (second["link"], ["--port", "--read-only"])
    socket = json.loads(server.ralph("web", "--unix", str(tmp_path / "s"), "--json"))
    assert (socket["ignored"], (tmp_path / "s").exists()) == (["--unix"], False)


def test_once_opens_the_run_at_the_server_that_runs(server: Server) -> None:
    key = server.start_loop(WAITS, "--max-iterations", "1")
    server.wait_for(key, lambda view: not view["alive"])
    opened = json.loads(server.ralph("web", "--once", key.partition("@")[0], "--json"))
    assert opened["link"] == f"http://127.0.0.1:{server.port}/r/{key}?token={server.token}"
    assert not opened["new"]


def test_a_unix_socket_is_only_for_its_user(tmp_path: Path) -> None:
    import os
    import socket

    root, path = make_project(tmp_path), tmp_path / "s"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-P", "-m", "ralph", "web", "--unix", str(path)]
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and "Listening" in process.stdout.readline()
        assert path.stat().st_mode & 0o077 == 0
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost:9999\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in client.recv(4096)
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bind", "0.0.0.0"), "without encryption"),
        (("--bind", "0.0.0.0", "--behind-proxy"), "need a name"),
        (("--cert", "missing.pem"), "belong together"),
        (("--unix", "s", "--port", "1"), "--unix does not work"),
        (("--once", "261231-000000-abcd"), "261231-000000-abcd"),
    ],
)
def test_unsafe_and_contradictory_options_are_refused(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    import os

    command = [sys.executable, "-P", "-m", "ralph", "web", *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr


def test_link_of_another_loopback_address_works(tmp_path: Path) -> None:
    """The server must accept the name under which it says that it can be reached."""
    with serving(make_project(tmp_path), tmp_path / "state", "--bind", "127.0.0.2", "--port", "0") as server:
        connection = http.client.HTTPConnection("127.0.0.2", server.port, timeout=60)
        connection.request("GET", "/api/runs", headers={"Authorization": f"Bearer {server.token}"})
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize("arguments", [(), ("token", "add", "x"), ("token", "remove", "owner"), ("passphrase",)])
def test_an_agent_cannot_use_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    import os

    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "RALPH_TURN": "run/00001"}
    command = [sys.executable, "-P", "-m", "ralph", "web", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "an agent cannot" in done.stderr) == (2, True)


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('starlette', 'uvicorn') else real(name, *a)\n"
        "sys.argv = ['ralph', 'web']\nfrom ralph.cli.main import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'ralph-engine[web]'" in done.stderr

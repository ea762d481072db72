"""The level `strict`: a job reaches the hosts on its list through a proxy, and nothing else."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_place import DONE, Place

from ralph.agents.state_paths import STATE_PATHS, find_hosts
from ralph.supervisor import network_proxy
from ralph.supervisor.network_proxy import Refused, connect_directly, matches, split_host

PROGRAM = """
import json, os, socket, sys

def ask(host, method="CONNECT", scheme=""):
    with socket.create_connection(("127.0.0.1", 3128), 20) as proxy:
        proxy.sendall(f"{method} {scheme}{host} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        answer = proxy.recv(4096)
        if method == "CONNECT" and b" 200 " in answer:
            answer += proxy.recv(100)
        return answer.decode()

def tries(action):
    try:
        return action()
    except OSError as error:
        return f"refused: {error}"

def direct(port):
    with socket.create_connection(("127.0.0.1", port), 5) as server:
        return server.recv(100).decode()

def datagram(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.connect(("127.0.0.1", port))
        client.send(b"x")
        return client.recv(10).decode()

def abstract(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(chr(0) + name)
        return "connected"

given = json.loads(sys.argv[1])
"""


class Server:
    """A server on a loopback port of this machine that greets each client."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with client:
                client.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.socket.close()


def write_settings(place: Place, *connect: str) -> None:
    settings = place.home / ".config" / "ralph" / "config.yml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"sandbox": {"level": "strict", "connect": list(connect)}}))


def write_agent(place: Place, code: str, **given: object) -> str:
    given["result"] = str(place.root / "result.json")
    command = place.python(f"{PROGRAM}\n{code}\nopen('done.txt', 'w').close()\n")
    return f"{command} '{json.dumps(given)}'"


def play(place: Place, code: str, *options: str, **given: object) -> tuple[dict[str, str], str]:
    """Run a loop whose agent is a Python program. Returns what the program found, and the screen."""
    agent = write_agent(place, f"{code}\njson.dump(found, open(given['result'], 'w'))", **given)
    options = ("--max-iterations", "1", "--yes", *options)
    said = place.ralph("loop", "work", "--until", DONE, "--agent-command", agent, *options, code=None)
    path = place.root / "result.json"
    assert path.exists(), said
    return json.loads(path.read_text()), said


def test_nothing_but_the_list_can_be_reached(place: Place, server: Server) -> None:
    write_settings(place, "example.com")
    abstract = f"ralph-test-{time.time_ns()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{abstract}")
    listener.listen(5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, listener:
        datagrams.bind(("127.0.0.1", 0))
        found, said = play(
            place,
            "found = {'loopback': tries(lambda: direct(given['port'])), 'udp': tries(lambda: datagram(given['udp'])),"
            " 'abstract': tries(lambda: abstract(given['name'])),"
            " 'dns': tries(lambda: socket.gethostbyname('example.com')),"
            " 'proxy': ask(f'127.0.0.1:{given[\"port\"]}'), 'other': ask('example.org:443'),"
            " 'mail': ask('example.com:25'), 'plain': ask('example.org/', 'GET', 'http://'), 'odd': ask('x y')}",
            port=server.port,
            udp=datagrams.getsockname()[1],
            name=abstract,
        )
    for name in ("loopback", "udp", "abstract", "dns"):
        assert found[name].startswith("refused: "), (name, found[name])
    for name in ("proxy", "other", "mail", "plain"):
        assert found[name].startswith("HTTP/1.1 403 "), (name, found[name])
    assert found["odd"].startswith("HTTP/1.1 400 ")
    assert "denied: example.org, turn 1 (network). To allow it for this run: ralph allow example.org" in said
    [ended] = place.journal("turn.ended")
    assert any(one.startswith("example.com:25, turn 1") for one in ended["result"]["denied"])


def test_the_list_opens_hosts_and_ports_of_this_machine(place: Place, server: Server) -> None:
    write_settings(place, f"localhost:{server.port}")
    found, said = play(
        place,
        "found = {'direct': tries(lambda: direct(given['port'])), 'proxy': ask(f'127.0.0.1:{given[\"port\"]}'),"
        " 'plain': ask(f'localhost:{given[\"port\"]}/', 'GET', 'http://'), 'variable': os.environ['HTTPS_PROXY']}",
        port=server.port,
    )
    assert "hello" in found["direct"]
    assert "200 Connection established" in found["proxy"]
    assert "hello" in found["proxy"]
    assert "hello" in found["plain"]
    assert found["variable"] == "http://127.0.0.1:3128"
    assert f"your settings open the sandbox for localhost:{server.port}" in said


def test_the_user_allows_a_host_while_the_agent_works(place: Place, server: Server) -> None:
    write_settings(place)
    code = (
        "import time\nname = f'127.0.0.1:{given[\"port\"]}'\nprint(ask(name).splitlines()[-1], flush=True)\n"
        "for _ in range(600):\n    answer = ask(name)\n    if ' 200 ' in answer: break\n    time.sleep(0.1)\n"
        "found = {'answer': answer}\njson.dump(found, open(given['result'], 'w'))"
    )
    agent = write_agent(place, code, port=server.port)
    process = place.start("loop", "work", "--until", DONE, "--agent-command", agent, "--max-iterations", "1", "--yes")
    name = f"127.0.0.1:{server.port}"
    deadline = time.monotonic() + 60
    while not list(place.root.glob(".ralph/runs/*/turns/*/denied.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert f"can reach {name} now" in place.ralph("allow", name)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    assert f"You can reach {name} now." in place.ralph("signals")


def test_a_check_says_which_host_it_was_denied(place: Place) -> None:
    write_settings(place)
    check = place.python(f"{PROGRAM}\nprint(ask('example.org:443'))\nsys.exit(1)", "check.py")
    said = place.loop("touch done.txt", until=f"`{check} null` passes", code=None)
    assert "the sandbox denied it example.org. To allow it: ralph allow example.org" in said


def test_a_job_and_its_proxy_end_together(place: Place, server: Server) -> None:
    write_settings(place)
    place.loop("touch done.txt; (setsid sleep 300 &)")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        assert str(place.root).encode() not in words, words


def test_agents_cannot_allow_hosts(place: Place) -> None:
    write_settings(place)
    place.loop('"$RALPH_BIN" allow example.org; touch done.txt')
    assert not (place.run / "allowed-hosts").exists()
    assert "an agent cannot allow hosts" in place.turn_output()


@pytest.mark.parametrize("rule", ["no host", "localhost", "localhost:80", "a:b", "http://example.com", "host:99999"])
def test_a_wrong_rule_is_refused_at_the_start(place: Place, rule: str) -> None:
    write_settings(place, rule)
    said = place.loop("touch done.txt", code=2)
    assert "sandbox.connect in your settings" in said


class TestRules:
    @pytest.mark.parametrize(
        ("rule", "host", "port", "is_allowed"),
        [
            ("example.com", "example.com", 443, True),
            ("example.com", "example.com", 80, True),
            ("example.com", "example.com", 22, False),
            ("example.com", "www.example.com", 443, False),
            ("example.com", "badexample.com", 443, False),
            ("EXAMPLE.com.", "example.com", 443, True),
            ("example.com:8443", "example.com", 8443, True),
            ("example.com:8443", "example.com", 443, False),
            ("*.example.com", "www.example.com", 443, True),
            ("*.example.com", "a.b.example.com", 443, True),
            ("*.example.com", "example.com", 443, False),
            ("*.example.com", "badexample.com", 443, False),
            ("localhost:5432", "127.0.0.1", 5432, True),
            ("localhost:5432", "::1", 5432, True),
            ("[2001:db8::1]:443", "2001:db8::1", 443, True),
            ("not a host", "not a host", 443, False),
        ],
    )
    def test_a_rule_names_a_host(self, rule: str, host: str, port: int, is_allowed: bool) -> None:
        assert matches(rule, host, port) is is_allowed

    @pytest.mark.parametrize("text", ["", "a b", "a/b", "a:x", "a@b", "-a", "[::1", "a\r\nb"])
    def test_invalid_host_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError):
            split_host(text)

    def test_a_name_on_the_internet_must_not_lead_to_this_machine(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))
        monkeypatch.setattr(network_proxy.socket, "getaddrinfo", lambda *_, **__: [address])
        with pytest.raises(OSError, match="is local"):
            connect_directly("example.com", server.port)
        connect_directly("localhost", server.port).close()

    def test_the_users_own_proxy_is_used(self, tmp_path: Path) -> None:
        upstream = socket.create_server(("127.0.0.1", 0))
        asked: list[bytes] = []

        def serve() -> None:
            client, _ = upstream.accept()
            asked.append(client.recv(4096))
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            client.close()

        threading.Thread(target=serve, daemon=True).start()
        (tmp_path / "upstream").write_text(f"http://me:pass%21@127.0.0.1:{upstream.getsockname()[1]}\n")
        spec = {
            "allowed": ["example.com"],
            "allow_file": str(tmp_path / "none"),
            "denied_file": str(tmp_path / "denied"),
            "upstream_file": str(tmp_path / "upstream"),
        }
        with upstream, pytest.raises(Refused, match="407 Proxy Authentication Required"):
            network_proxy.Proxy(spec)._connect("example.com", 443)
        assert asked[0].startswith(b"CONNECT example.com:443 HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic bWU6cGFzcyE=" in asked[0]

    def test_an_agent_reaches_its_own_model(self) -> None:
        environment = {
            "OPENAI_API_KEY": "x",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:4000",
            "SLACK_WEBHOOK_URL": "https://hooks.example.com",
        }
        hosts = find_hosts([STATE_PATHS["claude"]], environment)
        assert set(hosts) >= {"api.anthropic.com", "api.openai.com", "127.0.0.1:4000"}
        assert "hooks.example.com:443" not in hosts

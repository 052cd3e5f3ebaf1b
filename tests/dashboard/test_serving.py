"""The server as a process: bytes that are no HTTP, its end, a port that is taken."""

import json
import random
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from full_runs import write_full_run

from redline.cli.main import BAD_INPUT, main

PATIENCE_S = 30.0
StartProgram = Callable[..., "subprocess.Popen[str]"]
NONSENSE = (
    b"",
    b"\x00" * 300,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /static/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"POST /api/links HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n\x00\x00\x00",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


class Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.told = json.loads(process.stdout.readline())
        self.port = int(self.told["address"].rsplit(":", 1)[1])

    def get(self, path: str = "/api/runs") -> bytes:
        with urllib.request.urlopen(f"{self.told['address']}{path}", timeout=PATIENCE_S) as answer:  # noqa: S310
            body: bytes = answer.read()
        return body

    def send(self, raw: bytes, *, timeout_s: float = 5.0) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(65_536), b""))
            except ConnectionError:
                return b""


@pytest.fixture
def server(start_program: StartProgram, tmp_path: Path) -> Iterator[Server]:
    write_full_run(tmp_path / "runs" / "a", num_samples=30)
    process = start_program("dashboard", tmp_path / "runs", "--port", "0", "--json")
    yield Server(process)
    process.kill()
    process.communicate()


def test_ctrl_c_ends_it_whatever_connections_there_are(server: Server) -> None:
    assert len(json.loads(server.get())["runs"]) == 1
    with (
        socket.create_connection(("127.0.0.1", server.port)) as silent,
        socket.create_connection(("127.0.0.1", server.port)) as kept,
    ):
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_S) == 0
        assert silent.recv(10) == b""
    assert server.process.communicate()[1] == ""


def test_nonsense_on_the_wire_gets_an_answer_or_the_end_and_no_traceback(server: Server) -> None:
    rng = random.Random(1)  # noqa: S311
    for raw in (*NONSENSE, *(rng.randbytes(rng.randrange(1, 400)) for _ in range(100))):
        answer = server.send(raw)
        assert b"root:" not in answer
        assert b"Traceback" not in answer
        assert not answer or answer.startswith(b"HTTP/1.1 "), (raw[:80], answer[:80])
    whole = b"GET /api/runs?mark=x HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        server.send(bytes(changed))
    assert len(json.loads(server.get())["runs"]) == 1
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE_S) == 0
    assert server.process.communicate()[1] == ""


def test_a_port_that_is_taken_is_one_line_with_a_free_one(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", str(tmp_path / "runs"), "--port", str(server.port)]) == BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"redline: port {server.port} is taken: use --port ")
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", int(line.rsplit(" ", 1)[1])))

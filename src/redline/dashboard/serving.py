"""Serves the dashboard: one process, one thread, a socket of our own, and an end within a second."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from redline.dashboard.access import Guard
from redline.errors import UserError
from redline.jsonl import plain_text

MAX_TARGET_BYTES = 4_096  # of path and query
MAX_HEAD_BYTES = 32_768
MAX_CONNECTIONS = 400
KEEP_ALIVE_S = 20
SILENCE_S = 10.0  # of a connection that has asked for nothing
GRACE_S = 0.3  # for answers that are under way when the server ends
PORTS_TRIED = 100
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# the page runs our own scripts and loads nothing from elsewhere, whatever a run's files say
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Note = Callable[[str], None]


def guarded(app: App, guard: Guard, note: Note) -> App:
    """Return an app that checks every request first, adds our headers, and survives its own mistakes."""

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        refusal = guard.check(scope["method"], scope["path"], scope["headers"])
        if refusal is not None:
            await _say(send_with_headers, refusal.status, refusal.why)
        elif target > MAX_TARGET_BYTES:
            await _say(send_with_headers, 414, "this address is too long")
        else:
            try:
                await app(scope, receive, send_with_headers)
            except h11.LocalProtocolError:
                return  # the other side broke the rules of HTTP meanwhile, and was told so
            except Exception as error:  # one request must not end the others
                note(f"error in {plain_text(scope['path'])}: {type(error).__name__}: {plain_text(error)}")
                if not is_begun:
                    await _say(send_with_headers, 500, "the dashboard made a mistake: its terminal says which")

    return answer


async def _say(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def open_socket(host: str, port: int) -> socket.socket:
    """Listen; UserError names a free port if this one is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken: use --port {_free_port(host, port)}") from error
        if number == errno.EACCES:
            raise UserError(f"port {port} is not for every user: use --port 8090") from error
        raise UserError(f"cannot listen on {host}, port {port}: {plain_text(error)}: use another --host") from error
    listener.setblocking(False)
    return listener


def _free_port(host: str, taken: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in [*range(taken + 1, min(taken + PORTS_TRIED, 65_536)), 0]:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            try:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind((host, port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    return 0


def serve(app: App, listener: socket.socket) -> None:
    """Answer until a signal comes."""
    logging.getLogger("uvicorn.error").disabled = True  # what a stranger sends is no news
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    asyncio.run(_Server(config).serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """Ends at the first signal, without waiting for connections that are only kept."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # connections that break are no news
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True
        asyncio.get_running_loop().call_later(GRACE_S, self._hurry)

    def _hurry(self) -> None:
        self.force_exit = True


class PatientProtocol(H11Protocol):
    """HTTP that closes connections on which nobody asks for anything, or asks too slowly."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asked = 0
        self._seen = -1
        self._watch()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense while an answer is under way
            self.transport.abort()

    def _watch(self) -> None:
        if self.transport.is_closing():
            return
        is_working = self.cycle is not None and not self.cycle.response_complete
        is_waiting = self.timeout_keep_alive_task is not None  # closes it by itself
        if not is_working and not is_waiting and self._seen == self._asked:
            self.transport.abort()
            return
        self._seen = self._asked
        self.loop.call_later(SILENCE_S, self._watch)

    def on_response_complete(self) -> None:
        self._asked += 1
        super().on_response_complete()

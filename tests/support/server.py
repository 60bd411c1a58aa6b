"""Servers on a free port of this machine, which stand in for services."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalServer(ThreadingHTTPServer):
    """Listens while in a `with` block."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.lock = threading.Lock()

    def __enter__(self) -> Any:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *request: Any) -> None:
        """Clients that are killed do not say goodbye."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*request)


class LocalHandler(BaseHTTPRequestHandler):
    """Answers, and prints nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *message: object) -> None:
        pass

    def reply(self, answer: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer with JSON."""
        self.send(json.dumps(answer).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def send(
        self, data: bytes, status: int = 200, headers: dict[str, str] | None = None, size: int | None = None
    ) -> None:
        """Answer with bytes; size: how many there would be, if some are missing."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if size is None else size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

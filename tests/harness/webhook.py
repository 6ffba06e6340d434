"""A conversion webhook on loopback that tests can break: the `behaviour` is a function of the review.

It runs in a thread of the test process, so a test can read what was asked (`reviews`) and change its mind at
any moment.
"""

from __future__ import annotations

import base64
import copy
import json
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.harness.certificates import Authority

Review = dict[str, Any]
Behaviour = Callable[[Review], Review | bytes | None]


class ConversionWebhook:
    """`None` hangs up without an answer, bytes are sent as they are, anything else is sent as JSON."""

    def __init__(self, folder: Path, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.reviews: list[Review] = []
        self._authority = Authority.create(folder)
        pair = self._authority.issue("webhook")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> ConversionWebhook:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def crd_conversion(self) -> dict[str, Any]:
        """What a CRD's `spec.conversion` says to be converted here."""
        bundle = base64.b64encode(self._authority.file.read_bytes()).decode()
        url = f"https://127.0.0.1:{self._server.server_address[1]}/convert"
        client = {"url": url, "caBundle": bundle}
        return {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the tests."""


def _handler(webhook: ConversionWebhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # HTTP/1.0: no connection outlives the webhook, so "down" means down.
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            webhook.reviews.append(review)
            answer = webhook.behaviour(copy.deepcopy(review))
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object, **named: object) -> None:
            """Quiet: tests look at `reviews`."""

    return Handler


def converting(convert: Callable[[dict[str, Any], str], dict[str, Any]]) -> Behaviour:
    """The behaviour of a healthy webhook: each object through `convert(object, apiVersion)`."""

    def behaviour(review: Review) -> Review:
        request = review["request"]
        converted = [convert(each, request["desiredAPIVersion"]) for each in request["objects"]]
        return answer(review, convertedObjects=converted)

    return behaviour


def refusing(message: str) -> Behaviour:
    return lambda review: answer(review, result={"status": "Failure", "message": message})


def answer(review: Review, **response: Any) -> Review:
    full = {"uid": review["request"]["uid"], "result": {"status": "Success"}} | response
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": full}

# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from aikido_torch.elastic._clouds import (
    Aws,
    Azure,
    GoogleCloud,
    Metadata,
    cloud_here,
    source_of,
)
from aikido_torch.elastic._notices import Found, SourceError
from aikido_torch.errors import ConfigError

NOW_S = 1505721600.0  # 2017-09-18 08:00:00 UTC
TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
COMPUTE = "/metadata/instance/compute?api-version=2021-02-01"


class Service:
    """Local HTTP server whose answers stand in a table: path to (status, body)."""

    def __init__(self):
        self.answers, self.requests, self.headers = {}, [], {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                service.requests.append((self.command, self.path, dict(self.headers)))
                found = service.answers.get(self.path, (404, ""))
                status, body = found(self) if callable(found) else found
                self.send_response(status)
                for name, value in service.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_PUT = answer  # noqa: N815 - names of http.server

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def service():
    made = Service()
    yield made
    made.close()


@pytest.fixture
def silent():
    """Address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def aws(service):
    return Aws(service.url, wall_clock=lambda: NOW_S)


def azure(service):
    service.answers[COMPUTE] = 200, json.dumps({"name": "vm_0"})
    return Azure(service.url, wall_clock=lambda: NOW_S)


def event_of(kind, when="Mon, 18 Sep 2017 08:00:30 GMT", resources=("vm_0",)):
    return {"EventType": kind, "NotBefore": when, "Resources": list(resources)}


def test_aws_asks_with_a_token_and_reads_the_action(service):
    service.answers[TOKEN] = 200, "secret"
    source = aws(service)
    assert source.poll() is None  # 404
    text = json.dumps({"action": "terminate", "time": "2017-09-18T08:02:00Z"})
    service.answers[ACTION] = 200, text
    assert source.poll() == Found(
        "it will terminate this machine at 2017-09-18T08:02:00Z", 120.0
    )
    put, *gets = service.requests
    assert put[:2] == ("PUT", TOKEN)
    assert put[2]["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
    assert [get[:2] for get in gets] == [("GET", ACTION)] * 2
    assert all(get[2]["X-aws-ec2-metadata-token"] == "secret" for get in gets)


def test_aws_renews_a_token_that_has_expired(service):
    tokens = ["old", "new"]
    service.answers[TOKEN] = lambda _: (200, tokens.pop(0))
    service.answers[ACTION] = lambda request: (
        404 if request.headers["X-aws-ec2-metadata-token"] == "new" else 401,
        "",
    )
    assert aws(service).poll() is None
    assert tokens == []


def test_aws_that_accepts_no_token_gets_a_sentence(service):
    service.answers[TOKEN] = 200, "secret"
    service.answers[ACTION] = 401, ""
    with pytest.raises(SourceError, match="instance-action with status 401; expected"):
        aws(service).poll()
    assert len(service.requests) == 4


def test_a_time_in_the_past_leaves_no_warning(service):
    service.answers[TOKEN] = 200, "secret"
    text = json.dumps({"action": "stop", "time": "2017-09-18T07:59:00"})
    service.answers[ACTION] = 200, text
    assert aws(service).poll().warning_s == 0


def test_google_cloud_asks_with_its_header(service):
    service.headers["Metadata-Flavor"] = "Google"
    source = GoogleCloud(service.url)
    service.answers[PREEMPTED] = 200, "FALSE"
    assert source.poll() is None
    service.answers[PREEMPTED] = 200, "TRUE\n"
    assert source.poll() == Found("it preempts this machine", 30.0)
    assert service.requests[0][2]["Metadata-Flavor"] == "Google"


def test_another_server_in_place_of_google_cloud_gets_a_sentence(service):
    service.answers[PREEMPTED] = 200, "TRUE"
    with pytest.raises(SourceError, match="so that another server answers there"):
        GoogleCloud(service.url).poll()


def test_azure_reads_the_events_of_this_machine(service):
    source = azure(service)
    events = [
        event_of("Freeze"),
        event_of("Preempt", resources=["vm_1"]),
    ]
    service.answers[EVENTS] = 200, json.dumps({"Events": events})
    assert source.poll() is None
    events += [
        event_of("Reboot", when="Mon, 18 Sep 2017 08:05:00 GMT"),
        event_of("Preempt"),
    ]
    service.answers[EVENTS] = 200, json.dumps({"Events": events})
    assert source.poll() == Found(
        "it announces Preempt for this machine at Mon, 18 Sep 2017 08:00:30 GMT", 30.0
    )
    assert all(request[2]["Metadata"] == "true" for request in service.requests)
    assert [request[1] for request in service.requests] == [COMPUTE, EVENTS, EVENTS]


def test_an_event_of_azure_that_has_begun_leaves_no_warning(service):
    source = azure(service)
    service.answers[EVENTS] = 200, json.dumps({"Events": [event_of("Preempt", "")]})
    assert source.poll() == Found("it announces Preempt for this machine", 0.0)


@pytest.mark.parametrize(
    ("make", "answers", "text"),
    [
        (aws, {TOKEN: (200, "")}, "gives no valid token"),
        (aws, {TOKEN: (403, "")}, "with status 403"),
        (aws, {TOKEN: (302, "")}, "with status 302"),
        (aws, {TOKEN: (200, "t"), ACTION: (200, "<html>")}, "is not a JSON object"),
        (aws, {TOKEN: (200, "t"), ACTION: (200, "[1]")}, "is not a JSON object"),
        (aws, {TOKEN: (200, "t"), ACTION: (200, "{}")}, "has the action None"),
        (
            aws,
            {TOKEN: (200, "t"), ACTION: (200, '{"action": "stop", "time": "now"}')},
            "names the time 'now', which is no time",
        ),
        (
            aws,
            {
                TOKEN: (200, "t"),
                ACTION: (200, '{"action": "stop", "time": "2037-01-01T00:00:00Z"}'),
            },
            "s ahead of the clock of this machine",
        ),
        (aws, {TOKEN: (200, "x" * 70000)}, "has more than 65536 bytes"),
        (azure, {EVENTS: (200, "{}")}, "has no list of Events"),
        (azure, {EVENTS: (500, "")}, "with status 500"),
        (
            azure,
            {EVENTS: (200, json.dumps({"Events": [event_of("Preempt", "soon")]}))},
            "names the time 'soon'",
        ),
    ],
)
def test_a_server_that_lies_gets_a_sentence(service, make, answers, text):
    source = make(service)
    service.answers |= answers
    with pytest.raises(SourceError, match=text):
        source.poll()


def test_a_machine_of_azure_without_a_name_gets_a_sentence(service):
    source = azure(service)
    service.answers[COMPUTE] = 200, "{}"
    with pytest.raises(SourceError, match="has no name of this machine"):
        source.poll()


def test_google_cloud_with_another_text_gets_a_sentence(service):
    service.headers["Metadata-Flavor"] = "Google"
    service.answers[PREEMPTED] = 200, "maybe"
    with pytest.raises(SourceError, match="is 'MAYBE'; expected TRUE or FALSE"):
        GoogleCloud(service.url).poll()


@pytest.mark.parametrize("kind", [Aws, GoogleCloud, Azure])
def test_a_server_that_hangs_gets_a_sentence(silent, kind):
    with pytest.raises(SourceError, match=r"has not answered within 0\.05 s"):
        kind(silent, limit_s=0.05).poll()


def test_a_server_that_sends_without_end_gets_a_sentence():
    def drip(server, is_over):
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            try:
                while not is_over.wait(0.01):
                    peer.sendall(b"X-More: 1\r\n"[:1])
            except OSError:
                return

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server, is_over))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SourceError, match=r"has not answered within 0\.2 s"):
            GoogleCloud(url, limit_s=0.2).poll()
        is_over.set()
        thread.join()


def test_a_server_that_is_gone_gets_a_sentence(silent):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(SourceError, match=r"gives no valid answer: .*refused"):
        GoogleCloud(url).poll()


def test_a_server_of_another_protocol_gets_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SourceError, match="gives no valid answer"):
            GoogleCloud(url).poll()
        thread.join()


def test_a_proxy_is_not_asked(service, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    service.headers["Metadata-Flavor"] = "Google"
    service.answers[PREEMPTED] = 200, "FALSE"
    assert GoogleCloud(service.url).poll() is None


@pytest.mark.parametrize("url", ["https://host", "169.254.169.254", "http://"])
def test_a_wrong_address_is_refused(url):
    with pytest.raises(ConfigError, match="give http://host"):
        Metadata(url, 1.0)


def test_a_cloud_is_found_by_the_vendor_of_the_machine(tmp_path):
    file = tmp_path / "sys_vendor"
    assert cloud_here(str(file)) is None
    for vendor, cloud in (
        ("Amazon EC2\n", "aws"),
        ("Google\n", "google"),
        ("Microsoft Corporation\n", "azure"),
        ("QEMU\n", None),
    ):
        file.write_text(vendor)
        assert cloud_here(str(file)) == cloud


def test_clouds_have_names():
    assert [source_of(c).name for c in ("aws", "google", "azure")] == [
        "AWS",
        "Google Cloud",
        "Azure",
    ]
    with pytest.raises(ConfigError, match="the cloud is 'ibm'; it takes one of 'aws'"):
        source_of("ibm")

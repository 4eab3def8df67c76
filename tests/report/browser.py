"""A headless Chromium, driven over a pipe by the DevTools protocol: one page at a time, and all that it does."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A machine may stand still for a while.
PATIENCE = 60


def installed():
    """The browser's path; None where there is none."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """Starts it with a profile of its own, which goes with it. Messages end with a zero octet; it reads descriptor 3
    and writes 4."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="weft-browser-")
        to_read, self.send_to = os.pipe()
        self.read_from, to_write = os.pipe()
        words = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
                 "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--disable-background-networking", "--disable-component-update"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium refuses to run as root with one.
        # The shell puts the two ends where they are looked for, whatever numbers they have here.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *words], pass_fds=(to_read, to_write),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.rest = b""
        self.number = 0
        self.session = None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """The answer to a command; what happens meanwhile is kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def next(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_from], [], [], max(0, deadline - time.monotonic()))
            octets = os.read(self.read_from, 1 << 16) if ready else b""
            if not octets:
                raise RuntimeError("the browser says no more")
            self.rest += octets
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, file, width, height, scheme):
        """Shows a file at a width in CSS pixels, light or dark; what happened until it had loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=Path(file).resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())
        # Whatever the page still asks for after it has loaded.
        self.ask("new Promise(done => setTimeout(done, 200))")
        return self.events

    def ask(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def press(self, key):
        """Presses and releases a key, such as Tab."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "Enter": 13}[key], text="\r" if key == "Enter" else "")

    def picture(self, file):
        """What is seen now, as a PNG."""
        Path(file).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.send_to)
        os.close(self.read_from)
        shutil.rmtree(self.profile, ignore_errors=True)

"""Pages and pictures as a reader sees them: drawn by a real browser, and not blank."""
import base64
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time

from PIL import Image

MAX_SECONDS = 60
SVG = "http://www.w3.org/2000/svg"  # a name, not an address


def self_contained(page):
    """The page's text. Ends the script when it names an address, or loads anything from outside or by a script."""
    html = page.read_text()
    addresses = set(re.findall(r"[a-z]+://[^\s\"'<]*", html)) - {SVG}
    loads = re.findall(r"<(?:script|link|img|iframe|object|embed|source)\b|\b(?:src|href)\s*=|url\(|@import", html)
    if addresses or loads:
        sys.exit(f"{page}: wanted a page that needs nothing else, found {sorted(addresses)} {loads}")
    return html


def program():
    return shutil.which("chromium") or sys.exit("wanted chromium, found none; apt-get install chromium")


FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]


def draw(file, picture, height=None):
    """A browser's picture of an HTML or SVG file. Ends the script when it is blank; returns the number of colours."""
    height = height or (1800 if file.suffix == ".html" else 700)
    subprocess.run([program(), *FLAGS, f"--user-data-dir={picture.parent / 'browser'}", f"--window-size=1000,{height}",
                    f"--screenshot={picture}", file.resolve().as_uri()], check=True, capture_output=True, timeout=MAX_SECONDS)
    image = Image.open(picture).convert("RGB")
    colours = image.getcolors(maxcolors=1 << 24)
    drawn = 1 - max(count for count, _ in colours) / (image.width * image.height)
    if len(colours) < 30 or drawn < 0.01:
        sys.exit(f"{file} is nearly blank in a browser: {len(colours)} colours, {100 * drawn:.2f}% drawn")
    return len(colours)


class Tab:
    """One tab of a browser that answers to us over a pair of pipes (DevTools protocol), as a reader's would behave.

    `requests` has every address that the page asked for, `errors` what its console said in anger.
    """

    def __init__(self, folder, width=1200, height=900):
        down, self._write = os.pipe()  # to the browser, which reads 3 and writes 4
        self._read, up = os.pipe()
        command = [program(), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"]
        shell = f'exec 3<&{down} 4>&{up}; exec "$@"'
        self._process = subprocess.Popen(["bash", "-c", shell, "tab", *command], pass_fds=(down, up), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        os.close(down)
        os.close(up)
        self._number, self._buffer, self._session = 0, b"", None
        self.requests, self.errors = [], []
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)  # the browser ends with its pipe
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def _next(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
                sys.exit(f"wanted an answer of the browser, found none in {seconds:.0f} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                sys.exit("wanted an answer of the browser, found that it had ended")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        parameters = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif message.get("method") == "Page.javascriptDialogOpening":
            self.errors.append(f"a dialog: {parameters['message']}")
            self._send("Page.handleJavaScriptDialog", accept=False)
        return message

    def _send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._number

    def _call(self, method, **parameters):
        number = self._send(method, **parameters)
        while (message := self._next(MAX_SECONDS)).get("id") != number:
            pass
        if "error" in message:
            sys.exit(f"{method}: {message['error']}")
        return message["result"]

    def open(self, file):
        """Returns the seconds until the page had loaded."""
        self.requests.clear()
        self.errors.clear()
        begin = time.monotonic()
        self._send("Page.navigate", url=file.resolve().as_uri())
        while self._next(MAX_SECONDS).get("method") != "Page.loadEventFired":
            pass
        return time.monotonic() - begin

    def ask(self, script):
        """The value of an expression in the page."""
        result = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            sys.exit(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def look(self, scheme="light", media="", width=1200, height=900):
        """As a reader with these wishes sees it."""
        self._call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def hover(self, x, y):
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file, whole=True):
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

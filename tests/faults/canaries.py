"""Secrets to be looked for, every form they may be written in, and servers that remember what they were told."""
import base64
import gzip
import http.server
import json
import os
import pathlib
import re
import threading
import urllib.parse

from hub_server import Replying

BLOCK = 1 << 24


class Canaries:
    """Each has a name, and letters that nothing else has."""

    def __init__(self):
        self.values = {}

    def new(self, name, form="{}", letters=24):
        self.values[name] = form.format(os.urandom(letters // 2).hex())
        return self.values[name]

    def of(self, *names):
        return {name: value for name, value in self.values.items() if name in names}

    def but(self, *names):
        return {name: value for name, value in self.values.items() if name not in names}


def core_of(value):
    """What is random in it: the rest may well be said."""
    return max(re.findall(r"[0-9a-f]+", value), key=len)


def base64_forms(raw):
    """As part of a longer text, at each of the three places that a byte may have in four letters."""
    for shift in range(3):
        begin, whole = (4 * shift + 2) // 3, (len(raw) + shift) // 3 * 3 - shift
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * shift + raw[:whole])[begin:]


def forms(value):
    core = core_of(value)
    raw = core.encode()
    found = {"plain": [raw, raw.upper()], "reversed": [raw[::-1]], "hex": [raw.hex().encode(), raw.hex().upper().encode()],
             "percent": ["".join(f"%{b:02{c}}" for b in raw).encode() for c in "xX"],
             "json": ["".join(f"\\u{b:04{c}}" for b in raw).encode() for c in "xX"],
             "wide": [core.encode("utf-16-le")], "base64": list(base64_forms(raw)),
             "base64 of hex": list(base64_forms(raw.hex().encode()))}
    for other in (urllib.parse.quote(value, safe=""), json.dumps(value)[1:-1]):
        if core not in other:
            found["plain"].append(other.encode())
    return found


class Search:
    """For all forms of all canaries in one pass."""

    def __init__(self, values):
        self.names = {}
        for name, value in values.items():
            for form, spellings in forms(value).items():
                self.names |= {spelling: f"{name} ({form})" for spelling in spellings}
        self.longest = max(map(len, self.names))
        self.pattern = re.compile(b"|".join(map(re.escape, sorted(self.names, key=len, reverse=True))))

    def in_bytes(self, content):
        return {self.names[found.group()] for found in self.pattern.finditer(content)}

    def in_file(self, path):
        found, before = set(), b""
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            while block := file.read(BLOCK):
                found |= self.in_bytes(before + block)
                before = (before + block)[-self.longest:]
        return found | self.in_bytes(os.fsencode(path.name))

    def in_folder(self, folder):
        """{path: what was found}, and how many files and bytes there were."""
        traces, files, size = {}, 0, 0
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_symlink():
                found = self.in_bytes(os.fsencode(os.readlink(path)))
            elif path.is_file():
                files, size, found = files + 1, size + path.stat().st_size, self.in_file(path)
            else:
                found = self.in_bytes(os.fsencode(path.name))
            if found:
                traces[path] = found
        return traces, files, size


def can_find(search, values, folder):
    """Plants every form of every canary in a file of its own; how many were found and how many there are."""
    planted = found = 0
    for name, value in values.items():
        for form, spellings in forms(value).items():
            for spelling in spellings:
                path = folder / "planted"
                path.write_bytes(os.urandom(100) + spelling + os.urandom(100))
                planted, found = planted + 1, found + any(n.startswith(f"{name} (") for n in search.in_file(path))
                path.unlink()
    return found, planted


class Ear:
    """An HTTP server on loopback that keeps all it hears and answers as told: answer(handler)."""

    def __init__(self, answer):
        self.heard, ear = [], self

        class Handler(Replying):
            def handle_request(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                ear.heard.append(self.requestline.encode() + b"\n" + bytes(self.headers) + b"\n" + body)
                answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_CONNECT = handle_request

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # clients hang up
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def echo(status):
    """Refuses, and says the secret that it was given, in the body, in a header and in the reason."""
    def answer(handler):
        told = handler.headers.get("Authorization") or handler.headers.get("Proxy-Authorization") or "none"
        body = f"<Error><Code>Refused</Code><Message>you said {told}</Message></Error>".encode()
        handler.reply(status, body, X_Error_Code=told[-40:], X_Error_Message=told, Content_Type="application/xml")
    return answer

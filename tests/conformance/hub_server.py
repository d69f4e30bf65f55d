"""A small Hugging Face hub on loopback: the paths that clients use, a second port as the "CDN" that large files are
redirected to, and faults on request. Every request is recorded."""
import hashlib
import http.server
import json
import threading
import urllib.parse


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Replying(http.server.BaseHTTPRequestHandler):
    """Says nothing on the terminal, and answers whole."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Repo:
    """One repository at one commit. `lfs` names are served through the CDN."""

    def __init__(self, files, lfs=(), gated=False, commit=None):
        self.files, self.lfs, self.gated = files, set(lfs), gated
        self.commit = commit or hashlib.sha1(repr(sorted(files)).encode()).hexdigest()
        self.lies = {}  # name -> a field of the listing to change

    def siblings(self):
        for name, data in self.files.items():
            entry = {"rfilename": name, "size": len(data), "blobId": git_blob(data)}
            if name in self.lfs:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            entry.update(self.lies.get(name, {}))
            yield entry

    def tree(self):
        for entry in self.siblings():
            lfs = entry.get("lfs")
            yield {"type": "file", "path": entry["rfilename"], "size": entry["size"], "oid": entry["blobId"],
                   **({"lfs": {"oid": lfs["sha256"], "size": lfs["size"], "pointerSize": 130}} if lfs else {})}


class Hub:
    """`repos`: {"models/org/name": Repo}. `faults`: callables (request) -> True when they answered it."""

    def __init__(self):
        self.repos, self.faults, self.requests = {}, [], []
        self.token = "hf_secretTokenOfTheTest"
        self.servers = [self._serve(self._hub_request), self._serve(self._cdn_request)]
        self.endpoint = f"http://127.0.0.1:{self.servers[0].server_port}"
        # Another name for the same machine: another host to whoever compares names.
        self.cdn = f"http://localhost:{self.servers[1].server_port}"

    def _serve(self, answer):
        hub = self

        class Handler(Replying):
            def do_GET(self):
                self.at = "hub" if self.server is hub.servers[0] else "cdn"
                hub.requests.append((self.at, self.command, self.path, dict(self.headers)))
                if not any(fault(self) for fault in hub.faults):
                    answer(self)

            do_HEAD = do_GET

            def cut(self, data, keep, begin=0, status=200):
                """Promises the whole, sends a part, closes."""
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if status == 206:
                    self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{begin + len(data)}")
                self.end_headers()
                self.wfile.write(data[:keep])
                self.wfile.flush()
                self.close_connection = True

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # clients that are killed or hang up are what is tested
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def data_of(self, path):
        """The content that a request is about, or None."""
        name = urllib.parse.unquote(urllib.parse.urlsplit(path).path)
        for key, repo in self.repos.items():
            kind, identity = key.split("/", 1)
            prefix = ("/datasets/" if kind == "datasets" else "/") + identity + "/resolve/"
            if name.startswith(prefix):
                return repo, name.removeprefix(prefix).split("/", 1)[1]
        return None, None

    def _hub_request(self, request):
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        for key, repo in self.repos.items():
            for middle in ("revision", "tree"):
                if path.startswith(f"/api/{key}/{middle}/"):
                    return self._api(request, repo, middle, path.rsplit(f"/{middle}/", 1)[1])
        repo, name = self.data_of(request.path)
        if repo is None:
            return request.reply(401, X_Error_Code="RepoNotFound")
        if repo.gated and request.headers.get("Authorization") != f"Bearer {self.token}":
            return request.reply(401, b"gated", X_Error_Code="GatedRepo")
        if name not in repo.files:
            return request.reply(404, X_Error_Code="EntryNotFound")
        data = repo.files[name]
        common = {"X_Repo_Commit": repo.commit}
        if name not in repo.lfs:
            return self.send(request, data, ETag=f'"{git_blob(data)}"', **common)
        digest = hashlib.sha256(data).hexdigest()
        return request.reply(302, Location=f"{self.cdn}/blob/{digest}?signature=secret", X_Linked_Etag=f'"{digest}"',
                             X_Linked_Size=str(len(data)), **common)

    def _api(self, request, repo, kind, revision):
        if revision not in ("main", repo.commit):
            return request.reply(404, X_Error_Code="RevisionNotFound")
        if kind == "tree":
            return request.reply(200, json.dumps(list(repo.tree())).encode(), Content_Type="application/json")
        body = {"id": "x", "sha": repo.commit, "siblings": list(repo.siblings()), "private": False, "tags": []}
        return request.reply(200, json.dumps(body).encode(), Content_Type="application/json")

    def _cdn_request(self, request):
        wanted = request.path.split("/blob/")[1].split("?")[0]
        for repo in self.repos.values():
            for name in repo.lfs:
                if hashlib.sha256(repo.files[name]).hexdigest() == wanted:
                    return self.send(request, repo.files[name], ETag=f'"{wanted}"')
        return request.reply(404)

    def send(self, request, data, **headers):
        begin = range_begin(request)
        if begin:
            headers["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        request.reply(206 if begin else 200, data[begin:], **headers)


def range_begin(request):
    value = request.headers.get("Range", "")
    return int(value.removeprefix("bytes=").split("-")[0]) if value.startswith("bytes=") else 0

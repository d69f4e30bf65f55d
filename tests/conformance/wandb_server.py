"""As much of W&B's server as an upload needs, on loopback: it keeps the rows, the configuration and the summary of each run."""
import gzip
import http.server
import json
import threading


class Server:
    def __init__(self):
        self.rows, self.configs, self.keys, self.exits = {}, {}, set(), {}
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def body(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

            def reply(self, answer):
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.reply({})

            def do_PUT(self):
                self.body()
                self.reply({})

            def do_POST(self):
                message = json.loads(self.body() or b"{}")
                with outer.lock:
                    outer.keys.add(self.headers.get("Authorization", ""))
                    if self.path == "/graphql":
                        answer = {"data": outer.answer(message)}
                    else:
                        answer = outer.take(self.path.split("/"), message)
                self.reply(answer)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, message):
        values = message.get("variables", {})
        if message.get("operationName") == "UpsertBucket":
            if values.get("config"):
                self.configs.setdefault(values["name"], {}).update(json.loads(values["config"]))
            project = {"id": "p", "name": values.get("project") or "none", "entity": {"id": "e", "name": "me"}}
            bucket = {"id": "b", "name": values.get("name"), "displayName": values.get("displayName"),
                      "description": None, "config": "{}", "sweepName": None, "project": project, "historyLineCount": 0}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if message.get("operationName") == "CreateRunFiles":
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []}}
        return {}

    def take(self, path, message):
        """/files/ENTITY/PROJECT/RUN/file_stream"""
        if path[-1] != "file_stream":
            return {}
        for name, part in (message.get("files") or {}).items():
            if name == "wandb-history.jsonl":
                rows = self.rows.setdefault(path[4], {})
                rows.update((part["offset"] + i, json.loads(line)) for i, line in enumerate(part["content"]))
        if message.get("complete"):
            self.exits[path[4]] = message.get("exitcode")
        return {}

    def close(self):
        self.http.shutdown()
        self.http.server_close()

#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/hub"
"""Names to files against a hub of our own on loopback (hub_server.py): what is fetched, resumed, verified and refused,
where the token goes, and that huggingface_hub and octavo read each other's cache. The real hub is not asked."""
import hashlib
import json
import os
import pathlib
import random
import signal
import ssl
import subprocess
import sys
import tempfile
import time

from hub_server import Hub, Repo, git_blob, range_begin

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "hub_tool"
USAGE, ENVIRONMENT, DAMAGED, STOPPED = 2, 3, 5, 75
MODEL = "models/tiny/Llama-Test"
NAME = "tiny/Llama-Test"
random.seed(5)
WEIGHTS = {f"model-0000{i}-of-00002.safetensors": random.randbytes(3_000_000 + i) for i in (1, 2)}
BIG = "model-00001-of-00002.safetensors"
INDEX = json.dumps({"metadata": {}, "weight_map": {f"t{i}": name for i, name in enumerate(WEIGHTS)}}).encode()
SMALL = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b'{"model": 1}\n' * 1000,
         "tokenizer_config.json": b"{}", "generation_config.json": b"{}", "chat_template.jinja": b"{{ x }}",
         "model.safetensors.index.json": INDEX}
OTHERS = {"pytorch_model.bin": b"pickle", "original/consolidated.00.pth": b"pickle", "model.gguf": b"gguf",
          "original/params.json": b"{}", "tokenizer.model": b"sp", "README.md": b"# tiny", ".gitattributes": b"x",
          "consolidated.safetensors": b"twice"}


def model_repo(**more):
    return Repo(SMALL | WEIGHTS | OTHERS, lfs=[*WEIGHTS, "pytorch_model.bin", "tokenizer.json"], **more)


class Case:
    """A hub, an empty cache, and octavo's tool under their environment."""

    def __init__(self, work):
        self.hub = Hub()
        self.hub.repos[MODEL] = model_repo()
        self.home = pathlib.Path(tempfile.mkdtemp(dir=work))
        self.cache = self.home / "hub"

    def environment(self, **more):
        ours = ("HF_", "SSL_CERT", "CURL_CA")
        plain = {k: v for k, v in os.environ.items() if not k.startswith(ours) and "proxy" not in k.lower()}
        return plain | {"HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.endpoint} | more

    def start(self, *arguments, **more):
        return subprocess.Popen([TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**more))

    def run(self, *arguments, wanted=0, **more):
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=120)
        assert process.returncode == wanted, f"{arguments}: wanted exit {wanted}, found {process.returncode}: {err}"
        assert self.hub.token not in out + err, "the token was printed"
        return out.split("\n")[:-1], err

    def storage(self, key=MODEL):
        kind, name = key.split("/", 1)
        return self.cache / f"{kind}--{name.replace('/', '--')}"

    def asked(self, *words):
        return [r for r in self.hub.requests if all(word in r[2] for word in words)]

    def python(self, code, **more):
        """huggingface_hub in a process of its own: it reads the environment when it is imported."""
        done = subprocess.run([sys.executable, "-c", "from huggingface_hub import *\n" + code], text=True,
                              capture_output=True, env=self.environment(HF_HUB_DISABLE_PROGRESS_BARS="1", **more))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def close(self):
        self.hub.close()


def snapshot_files(folder):
    folder = pathlib.Path(folder)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def nothing_left(case, what):
    assert not (case.storage() / "refs").exists(), f"{what}: a ref was written"
    blobs = [p.name for p in (case.storage() / "blobs").glob("*")] if case.storage().exists() else []
    assert what not in blobs and what + ".incomplete" not in blobs, f"{what} was kept"


def check_model(case):
    """The right files, in the right layout, which huggingface_hub finds; the token stays with the hub."""
    (folder,), _ = case.run("model", NAME, HF_TOKEN=case.hub.token)
    repo = case.hub.repos[MODEL]
    assert snapshot_files(folder) == SMALL | WEIGHTS, f"found {sorted(snapshot_files(folder))}"
    assert (case.storage() / "refs/main").read_text() == repo.commit
    for name, data in (SMALL | WEIGHTS).items():
        link = pathlib.Path(folder) / name
        digest = hashlib.sha256(data).hexdigest() if name in repo.lfs else git_blob(data)
        assert os.readlink(link) == f"../../blobs/{digest}", f"{name} -> {os.readlink(link)}"
    assert not list(case.storage().rglob("*.incomplete"))
    for at, _, path, headers in case.hub.requests:
        assert ("Authorization" in headers) == (at == "hub"), f"{at} {path}: token where it must not be, or missing"
    assert case.asked("/blob/"), "nothing was redirected"
    found = case.python(f"print(snapshot_download('{NAME}', local_files_only=True))", HF_HUB_OFFLINE="1")
    assert found == folder, f"huggingface_hub finds {found}"
    one = case.python(f"print(hf_hub_download('{NAME}', '{BIG}'))", HF_HUB_OFFLINE="1")
    assert pathlib.Path(one).read_bytes() == WEIGHTS[BIG]
    case.hub.requests.clear()
    assert case.run("model", NAME)[0] == [folder] and case.run("model", NAME, repo.commit)[0] == [folder]
    assert not case.hub.requests, "a cached model was asked for"
    # With the network, huggingface_hub adds the rest and takes ours as they are.
    case.python(f"snapshot_download('{NAME}')")
    fetched = [r[2] for r in case.hub.requests if r[1] == "GET" and ("/resolve/" in r[2] or "/blob/" in r[2])]
    assert not [p for p in fetched if p.endswith((".json", ".jinja"))], f"fetched again: {fetched}"


def check_theirs(case):
    """What huggingface_hub downloaded is found without a request, and a part of it is completed."""
    folder = case.python(f"print(snapshot_download('{NAME}'))")
    case.hub.requests.clear()
    assert case.run("model", NAME)[0] == [folder]
    assert not case.hub.requests
    (pathlib.Path(folder) / BIG).unlink()
    assert case.run("model", NAME)[0] == [folder]
    assert not case.asked("/blob/"), "the blob was there, only its link was missing"
    case.hub.requests.clear()
    os.remove(os.path.realpath(pathlib.Path(folder) / BIG))
    assert case.run("model", NAME)[0] == [folder]
    assert len(case.asked("/blob/")) == 1 and snapshot_files(folder)[BIG] == WEIGHTS[BIG]


def check_tokenizer_only(case):
    (folder,), _ = case.run("model", NAME, "main", "tokenizer")
    assert snapshot_files(folder) == SMALL
    _, err = case.run("model", NAME, wanted=USAGE, HF_HUB_OFFLINE="1")
    assert "safetensors files" in err
    case.run("model", NAME)
    assert snapshot_files(folder) == SMALL | WEIGHTS


def check_resume(case):
    """A connection cut in the middle resumes where it was, also in a later process."""
    served = []

    def cut_twice(request):
        if request.at != "cdn" or len(served) >= 2 or hashlib.sha256(WEIGHTS[BIG]).hexdigest() not in request.path:
            return False
        begin = range_begin(request)
        served.append(begin)
        request.cut(WEIGHTS[BIG][begin:], 700_000, begin, 206 if begin else 200)
        return True

    case.hub.faults.append(cut_twice)
    _, err = case.run("model", NAME)
    begins = [r[3].get("Range") for r in case.asked(hashlib.sha256(WEIGHTS[BIG]).hexdigest())]
    assert begins == [None, "bytes=700000-", "bytes=1400000-"], begins
    assert err.count("try 2 of 4") == 1 and err.count("try 3 of 4") == 1, err


def check_killed(case):
    """A process that is stopped while it downloads, politely and not."""
    hold = [True]

    def stall(request):
        if request.at != "cdn" or not hold[0]:
            return False
        begin, sent = range_begin(request), 500_000
        data = WEIGHTS[BIG][begin:]
        request.send_response(206 if begin else 200)
        request.send_header("Content-Length", str(len(data)))
        if begin:
            request.send_header("Content-Range", f"bytes {begin}-{len(WEIGHTS[BIG]) - 1}/{len(WEIGHTS[BIG])}")
        request.end_headers()
        request.wfile.write(data[:sent])
        request.wfile.flush()
        while hold[0]:
            time.sleep(0.05)
        request.close_connection = True
        return True

    digest = hashlib.sha256(WEIGHTS[BIG]).hexdigest()
    partial = case.storage() / "blobs" / (digest + ".incomplete")
    case.hub.repos[MODEL].lfs.discard("tokenizer.json")  # the weights alone come from the CDN
    case.hub.faults.append(stall)
    for stop, code, size in ((signal.SIGTERM, STOPPED, 500_000), (signal.SIGKILL, -9, 1_000_000)):
        process = case.start("model", NAME)
        deadline = time.time() + 20
        while (not partial.exists() or partial.stat().st_size < size) and time.time() < deadline:
            time.sleep(0.05)
        process.send_signal(stop)
        _, err = process.communicate(timeout=20)
        assert process.returncode == code, f"{stop}: exit {process.returncode}: {err}"
        assert partial.stat().st_size == size, f"{partial.stat().st_size} bytes after {stop}"
    hold[0] = False
    case.hub.faults.clear()
    case.hub.requests.clear()
    case.run("model", NAME)
    assert case.asked(digest)[0][3]["Range"] == "bytes=1000000-"


def check_no_ranges(case):
    """A server that ignores Range sends the whole: it must not be put behind the part."""
    digest = hashlib.sha256(WEIGHTS[BIG]).hexdigest()
    blobs = case.storage() / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (digest + ".incomplete")).write_bytes(WEIGHTS[BIG][:1000])

    def whole(request):
        if request.at == "cdn" and digest in request.path:
            request.reply(200, WEIGHTS[BIG])
            return True

    case.hub.faults.append(whole)
    (folder,), err = case.run("model", NAME)
    assert "does not resume" in err and snapshot_files(folder)[BIG] == WEIGHTS[BIG]


def check_server_errors(case):
    count = [0]

    def busy(request):
        count[0] += 1
        if "/revision/" in request.path and count[0] <= 2:
            request.reply(503)
            return True

    case.hub.faults.append(busy)
    _, err = case.run("model", NAME)
    assert err.count("HTTP 503") == 2, err
    case.hub.faults[:] = [lambda request: request.reply(500) or True]
    _, err = case.run("model", "tiny/Other", wanted=ENVIRONMENT)
    assert err.count("HTTP 500") == 4 and "Without a network" in err, err


def check_gated(case):
    case.hub.repos[MODEL].gated = True
    _, err = case.run("model", NAME, wanted=USAGE)
    assert "HF_TOKEN" in err and "licence" in err and f"{case.hub.endpoint}/{NAME}" in err, err
    _, err = case.run("model", NAME, wanted=USAGE, HF_TOKEN="hf_wrong")
    assert "hf_wrong" not in err
    _, err = case.run("model", NAME, wanted=USAGE, HF_TOKEN="hf\nX-Evil: 1")
    assert "X-Evil" not in err
    (case.home / "token").write_text(case.hub.token + "\n")
    case.run("model", NAME)


def check_absent(case):
    _, err = case.run("model", "tiny/Lama-Test", wanted=USAGE)
    assert "no such name" in err, err
    _, err = case.run("model", "meta-llama/Llama-3.2-1", wanted=USAGE)
    assert "Perhaps meta-llama/Llama-3.2-1B is meant" in err, err
    _, err = case.run("model", "lama-3.1-8b", wanted=USAGE)
    assert "Perhaps llama-3.1-8b is meant" in err, err
    _, err = case.run("model", NAME, "no-such-branch", wanted=USAGE)
    assert "no revision 'no-such-branch'" in err, err
    assert not case.storage().exists()
    for bad in ("../secret", "/no/such/folder", "a/b/c", "tiny/..", "a--b/c", "", "tiny/x@../../y"):
        asked = len(case.hub.requests)
        case.run("model", bad, wanted=USAGE)
        assert len(case.hub.requests) == asked, f"{bad!r} was asked for"
    case.hub.repos["models/tiny/pickles"] = Repo({"config.json": b"{}", "tokenizer.json": b"{}", "pytorch_model.bin": b"x"})
    _, err = case.run("model", "tiny/pickles", wanted=USAGE)
    assert "pickles only" in err, err


def check_wrong_hash(case):
    """LFS and plain: the bytes are of the right size and wrong."""
    for name, bad in ((BIG, hashlib.sha256(b"other").hexdigest()), ("config.json", git_blob(b"other"))):
        repo = model_repo(commit=bad[:40])
        lfs = name in repo.lfs
        repo.lies[name] = ({"lfs": {"sha256": bad, "size": len(WEIGHTS[BIG]), "pointerSize": 1}} if lfs else {"blobId": bad})
        case.hub.repos[MODEL] = repo
        _, err = case.run("model", NAME, wanted=DAMAGED)
        assert bad in err and "removed" in err, err
        nothing_left(case, bad)
    case.hub.repos[MODEL] = model_repo()
    digest = hashlib.sha256(WEIGHTS[BIG]).hexdigest()
    (case.storage() / "blobs" / (digest + ".incomplete")).write_bytes(b"of another file")
    (folder,), err = case.run("model", NAME)
    assert "fetched anew" in err and snapshot_files(folder)[BIG] == WEIGHTS[BIG], err


def check_hostile(case):
    """Listings that try to leave the folder, to fill the disk, or to be something else."""
    outside = case.home.parent / "outside.json"
    names = ["../../../../outside.json", "/outside.json", "a/../../outside.json", "", "a//b.json", "x\n.json", "./c.json",
             "a" * 300 + ".json"]
    for name in names:
        case.hub.repos[MODEL] = Repo(SMALL | WEIGHTS | {name: b"evil"}, lfs=WEIGHTS)
        _, err = case.run("model", NAME, wanted=DAMAGED)
        assert "refused" in err, err
        assert not outside.exists() and not case.storage().exists(), f"{name!r} was written"
    lies = [({"size": -1}, DAMAGED), ({"size": 1 << 60}, DAMAGED), ({"blobId": "../../x"}, DAMAGED), ({"size": "1"}, DAMAGED),
            ({"size": len(SMALL["config.json"]) - 1}, ENVIRONMENT),
            ({"rfilename": "model.safetensors", "size": 1 << 49}, ENVIRONMENT)]
    for lie, code in lies:
        case.hub.repos[MODEL] = model_repo()
        case.hub.repos[MODEL].lies["config.json"] = lie
        _, err = case.run("model", NAME, wanted=code)
        assert "space" in err or "rfilename" not in lie, err
        assert not (case.storage() / "refs").exists()
    case.hub.repos[MODEL] = model_repo(commit="../../../../x")
    case.run("model", NAME, wanted=DAMAGED)
    bodies = [b"", b"[]", b"{", b"[" * 100_000, b'{"sha": "' + b"0" * 40 + b'", "siblings": 3}', b"x" * (65 << 20)]
    for body in bodies:
        case.hub.faults[:] = [lambda request, body=body: "/revision/" in request.path and (request.reply(200, body) or True)]
        process = case.start("model", NAME)
        _, err = process.communicate(timeout=60)
        assert process.returncode in (ENVIRONMENT, DAMAGED), f"exit {process.returncode}: {err[:300]}"
    # A cache that points out of itself, or at no commit, is no cache.
    case.hub.faults.clear()
    case.hub.repos[MODEL] = model_repo()
    (folder,), _ = case.run("model", NAME)
    (case.home / "config.json").write_text("{}")
    link = pathlib.Path(folder) / "config.json"
    link.unlink()
    link.symlink_to(case.home / "config.json")
    _, err = case.run("model", NAME, wanted=USAGE, HF_HUB_OFFLINE="1")
    assert "leads out of the cache" in err, err
    (case.storage() / "refs/main").write_text("../../../..")
    _, err = case.run("model", NAME, wanted=USAGE, HF_HUB_OFFLINE="1")
    assert "40 hex digits" in err, err


def check_redirects(case):
    """Round in circles; and with no address."""
    case.hub.faults[:] = [lambda request: request.reply(302, Location=request.path) or True]
    _, err = case.run("model", NAME, wanted=ENVIRONMENT)
    assert "redirects" in err and len(case.hub.requests) < 12, err
    case.hub.faults[:] = [lambda request: request.reply(302, Location="file:///etc/passwd") or True]
    case.run("model", NAME, wanted=USAGE)


def check_plain_http(case):
    """Over a proxy the endpoint is another machine: no token over plain http."""
    port = case.hub.servers[0].server_port
    settings = dict(HF_ENDPOINT="http://hub.invalid", http_proxy=f"http://127.0.0.1:{port}", HF_TOKEN=case.hub.token)
    case.hub.faults[:] = [lambda request: request.at == "cdn" and (request.reply(404) or True)]
    _, err = case.run("model", NAME, wanted=USAGE, **settings)
    assert "the token is not sent" in err, err
    assert case.hub.requests and not [r for r in case.hub.requests if "Authorization" in r[3]]
    process = case.start("model", NAME, HF_ENDPOINT="http://user:pw@127.0.0.1:1")
    _, err = process.communicate(timeout=20)
    assert process.returncode == USAGE and "pw" not in err, err


def check_tls(case):
    """https with a certificate that is known, with one that is not, and a redirect to plain http."""
    key, certificate = case.home / "key.pem", case.home / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days",
                    "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = case.hub.servers[0]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint = case.hub.endpoint.replace("http:", "https:")
    _, err = case.run("model", NAME, wanted=ENVIRONMENT, HF_ENDPOINT=endpoint)
    assert "SSL_CERT_FILE" in err and "try 2" not in err, err
    settings = dict(HF_ENDPOINT=endpoint, SSL_CERT_FILE=str(certificate), HF_TOKEN=case.hub.token)
    _, err = case.run("model", NAME, wanted=ENVIRONMENT, **settings)
    assert "plain http" in err and not [r for r in case.hub.requests if r[0] == "cdn"], err
    case.hub.repos[MODEL].lfs.clear()
    case.run("model", NAME, **settings)


def check_no_network(case):
    case.hub.close()
    _, err = case.run("model", NAME, wanted=ENVIRONMENT)
    assert "Without a network" in err and "models--tiny--Llama-Test" in err and err.count("try ") == 3, err
    before = time.time()
    _, err = case.run("model", NAME, wanted=USAGE, HF_HUB_OFFLINE="1")
    assert time.time() - before < 1 and "offline is set" in err, err


def check_two_processes(case):
    """At the same time: everything is fetched once, and both end well."""

    def slow(request):
        time.sleep(0.2)
        return False

    case.hub.faults.append(slow)
    both = [case.start("model", NAME) for _ in range(3)]
    folders = {p.communicate(timeout=60)[0].strip() for p in both}
    assert all(p.returncode == 0 for p in both) and len(folders) == 1
    assert snapshot_files(folders.pop()) == SMALL | WEIGHTS
    blobs = [r[2] for r in case.asked("/blob/")]
    assert len(blobs) == len(set(blobs)), f"fetched twice: {sorted(blobs)}"


DATA = {f"data/{split}-0000{i}-of-00002.parquet": f"{split}{i}".encode() * 100
        for split in ("train", "train_1M", "test") for i in range(2)}
CARD = b"""---
license: mit
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: socratic
  data_files:
  - split: train
    path: ["socratic/*.parquet"]
dataset_info:
  x: [
---
# GSM
"""


def check_datasets(case):
    """Splits by name and by card; both ways with huggingface_hub."""
    maths, gsm = "datasets/nv/Maths-2", "datasets/oa/gsm"
    case.hub.repos[maths] = Repo(DATA | {"README.md": b"# x", "data/notes.txt": b"n"}, lfs=DATA)
    files, _ = case.run("dataset", "nv/Maths-2", "train_1M")
    assert [f.split("/")[-1] for f in files] == ["train_1M-00000-of-00002.parquet", "train_1M-00001-of-00002.parquet"], files
    assert {p.name for p in (case.storage(maths) / "snapshots").rglob("*.parquet")} == {f.split("/")[-1] for f in files}
    found = case.python("print(snapshot_download('nv/Maths-2', repo_type='dataset', local_files_only=True, "
                        "allow_patterns='data/train_1M-*'))", HF_HUB_OFFLINE="1")
    assert files[0].startswith(found + "/")
    asked = len(case.hub.requests)
    assert case.run("dataset", "nv/Maths-2", "train_1M")[0] == files and len(case.hub.requests) == asked
    _, err = case.run("dataset", "nv/Maths-2", "test", wanted=USAGE, HF_HUB_OFFLINE="1")
    assert "not all files of split test" in err, err
    _, err = case.run("dataset", "nv/Maths-2", "trian", wanted=USAGE)
    assert "train, train_1M" in err and "perhaps 'train'" in err, err
    (case.storage(maths) / "trees").joinpath(case.hub.repos[maths].commit + ".json").unlink()
    _, err = case.run("dataset", "nv/Maths-2", "train_1M", HF_HUB_OFFLINE="1")
    assert "are taken as all" in err, err

    data = {f"{c}/{s}-00000-of-00001.parquet": (c + s).encode() for c in ("main", "socratic") for s in ("train", "test")}
    case.hub.repos[gsm] = Repo(data | {"README.md": CARD}, lfs=data)
    case.python("snapshot_download('oa/gsm', repo_type='dataset')")
    asked = len(case.hub.requests)
    files, _ = case.run("dataset", "oa/gsm", "test", "main")
    assert [pathlib.Path(f).read_bytes() for f in files] == [b"maintest"]
    assert len(case.hub.requests) == asked, "what huggingface_hub downloaded was asked for again"
    _, err = case.run("dataset", "oa/gsm", "test", wanted=USAGE)
    assert "main, socratic" in err and "dataset_config" in err, err


def check_unwritable(case):
    """A cache that is a file: said, not crashed over."""
    (case.home / "hub").write_text("a file")
    _, err = case.run("model", NAME, wanted=ENVIRONMENT)
    assert "HF_HUB_CACHE" in err, err


CHECKS = [check_model, check_theirs, check_tokenizer_only, check_resume, check_killed, check_no_ranges,
          check_server_errors, check_gated, check_absent, check_wrong_hash, check_hostile, check_redirects,
          check_plain_http, check_tls, check_no_network, check_two_processes, check_datasets,
          check_unwritable]


def main():
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; ninja -C {BUILD} hub_tool")
    begin, failed, requests = time.time(), 0, 0
    chosen = [check for check in CHECKS if not sys.argv[1:] or check.__name__ in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as work:
        for check in chosen:
            case, start = Case(work), time.time()
            try:
                check(case)
                print(f"{check.__name__}: good, {len(case.hub.requests)} requests, {time.time() - start:.1f} s", flush=True)
            except AssertionError as error:
                failed += 1
                line = error.__traceback__.tb_next.tb_lineno
                print(f"{check.__name__}: FAILED at line {line}: {error}", flush=True)
            requests += len(case.hub.requests)
            case.close()
    print(f"checks={len(chosen)} failed={failed} requests={requests} seconds={time.time() - begin:.0f}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

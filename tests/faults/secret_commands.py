"""The commands that secrets are given to: (name, words, changes of the environment, exit codes that may be)."""
import json

from canaries import Ear, echo
from wandb_server import Server as WandbServer

USAGE, ENVIRONMENT, GUARD, DAMAGED, NOT_ENOUGH = 2, 3, 4, 5, 6
TRAIN = """model_name: custom
n_layer: 1
n_head: 2
n_embd: 32
max_seq_length: 32
batch_size: 2
max_steps: 4
eval_freq: 2
eval_batches: 1
sample_freq: 2
sample_tokens: 4
num_threads: 1
tokenizer: bytes
use_tensorboard: true
use_wandb: true
"""
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: val_loss, goal: minimize}\n" \
        "parameters:\n  learning_rate: {values: [0.001, 0.002]}\n"
TINY = "tiny/Llama-Test"


def train(name, *flags):
    return ["train", "train.yaml", "--dataset", "data", "--run_name", name, "--checkpoint_dir", f"saved-{name}", *flags]


def given_files(given, canaries):
    """Files of the user's with secrets in them; they are not searched."""
    given.mkdir()
    token, secret = given / "hub_token", given / "rendezvous_secret"
    token.write_text(canaries.new("HF_TOKEN_PATH", "hf_{}", 32) + "\n")
    secret.write_text(canaries.new("OCTAVO_RENDEZVOUS_SECRET_FILE", "{}", 64) + "\n")
    for path in (token, secret):
        path.chmod(0o600)
    deepspeed = {"train_batch_size": 8, "wandb": {"enabled": True, "api_key": canaries.new("api_key")}}
    foreign = {"llama.yaml": "model_name_or_path: gpt2\nstage: sft\n"
                             f"hf_hub_token: {canaries.new('hf_hub_token', 'hf_{}')}\n"
                             f"dataset_dir: https://me:{canaries.new('dataset_dir')}@data.example.org/x\n",
               "deepspeed.json": json.dumps(deepspeed),
               "run.sh": f"export HF_TOKEN={canaries.new('exported', 'hf_{}')}\n"
                         f"export WANDB_API_KEY='{canaries.new('key in a script')}'\n"
                         f"https_proxy=http://me:{canaries.new('proxy in a script')}@proxy.example.org:1 "
                         "torchrun --nproc_per_node 2 train.py --batch_size 4\n"}
    for name, text in foreign.items():
        (given / name).write_text(text)
    for name, text in {
            "key.yaml": "hf_token: {}\n", "broken.yaml": 'hf_token: "{}\n', "twice.yaml": "seed: 1\nseed: hf_{}\n",
            "address.yaml": "dataset: https://me:{}@data.example.org/x.jsonl\n",
            "list.yaml": "dataset:\n  - a.txt\n  - https://data.example.org/x.jsonl?token={}\n",
            "s3.yaml": "dataset: s3://AKIAEXAMPLE:{}@bucket/x.jsonl\n",
            "model.yaml": "model_name: https://me:{}@hub.example.org/tiny/model\n",
            "endpoint.yaml": "metrics_address: http://me:{}@127.0.0.1:1\n"}.items():
        (given / name).write_text(text.format(canaries.new(name)))
    return token, secret


class Servers:
    """What secrets are sent to: each refuses and says them again."""

    def __init__(self):
        self.wandb = WandbServer()
        elsewhere = Ear(lambda h: h.reply(404))
        # wandb's own program logs what its server says, so that one does not say the key again.
        self.ears = {"refuses": Ear(echo(401)), "forbids": Ear(echo(403)), "breaks": Ear(echo(500)), "bucket": Ear(echo(403)),
                     "proxy": Ear(echo(407)), "elsewhere": elsewhere, "wandb_refuses": Ear(lambda h: h.reply(401, b"{}")),
                     "sends_on": Ear(lambda h: h.reply(302, Location=f"http://localhost:{elsewhere.port}{h.path}"))}

    def address(self, name, secret=""):
        return f"http://{secret}127.0.0.1:{self.ears[name].port}"

    def close(self):
        for ear in self.ears.values():
            ear.close()
        self.wandb.close()


def hub_commands(canaries, servers, hub, token_file):
    """Downloads that are refused, sent on and broken off; the last works."""
    download = train("hub", "--model_name", TINY)
    closed = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    yield "hub refused", download, closed, [ENVIRONMENT]
    for name in ("refuses", "forbids", "breaks"):
        yield f"hub {name}", download, {"HF_ENDPOINT": servers.address(name)}, [USAGE, ENVIRONMENT]
    yield "hub sends on", download, {"HF_ENDPOINT": servers.address("sends_on")}, [USAGE, ENVIRONMENT]
    yield "hub with a password", download, \
        {"HF_ENDPOINT": servers.address("refuses", f"me:{canaries.new('HF_ENDPOINT')}@")}, [USAGE]
    yield "hub with a parameter", download, \
        {"HF_ENDPOINT": servers.address("refuses") + f"/?token={canaries.new('HF_ENDPOINT parameter')}"}, [USAGE]
    proxy = canaries.new("http_proxy of a server", "{}", 32)
    yield "hub over a proxy", download, {"HF_ENDPOINT": "http://hub.invalid",
                                         "http_proxy": servers.address("proxy", f"me:{proxy}@")}, [USAGE, ENVIRONMENT]
    yield "hub over no proxy", download, {"HF_ENDPOINT": "https://hub.invalid"}, [ENVIRONMENT]
    wrong = {"HF_TOKEN": canaries.new("HF_TOKEN of two lines", "hf_{}") + "\nX-Other: 1"}
    yield "hub with a broken token", download, wrong | {"HF_ENDPOINT": hub.endpoint}, [USAGE]
    from_file = {"HF_TOKEN": "", "HF_TOKEN_PATH": str(token_file)}
    yield "hub refuses a file", download, from_file | {"HF_ENDPOINT": servers.address("refuses")}, [USAGE, ENVIRONMENT]
    # The weights are no weights.
    yield "hub download", download, from_file | {"HF_ENDPOINT": hub.endpoint}, [USAGE, DAMAGED]


def data_commands(canaries, servers):
    prepare = ["data", "prepare", "--output", "prepared"]
    s3 = ["s3://bucket/rows.jsonl"]
    yield "data prepare", ["data", "prepare", "--dataset", "text.txt", "--output", "data"], {}, [0]
    yield "s3 refused", prepare + s3, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, [ENVIRONMENT]
    yield "s3 forbids", prepare + s3, {"AWS_ENDPOINT_URL": servers.address("bucket")}, [USAGE, ENVIRONMENT]
    yield "s3 with a password", prepare + s3, \
        {"AWS_ENDPOINT_URL": servers.address("bucket", f"me:{canaries.new('AWS_ENDPOINT_URL')}@")}, [USAGE, ENVIRONMENT]
    for form in ("s3://AKIAEXAMPLE:{}@bucket/x.jsonl", "s3://bucket/x.jsonl?X-Amz-Signature={}",
                 "https://me:{}@data.example.org/x.jsonl", "https://data.example.org/x.jsonl?token={}",
                 "hf://me:{}@datasets/x", "https://data.example.org/x?a=1&api_key={}#x"):
        scheme = f"address {form.split('{}')[0]}"
        address = form.format(canaries.new(scheme))
        environment = {"AWS_ENDPOINT_URL": servers.address("bucket")}
        yield f"{scheme}…", prepare + [address], environment, [USAGE, ENVIRONMENT]
        yield f"--dataset {scheme}…", train("address", "--dataset", address)[:2] + ["--dataset", address], environment, \
            [USAGE, ENVIRONMENT]


def config_commands(canaries, given):
    yield "help", ["--help"], {}, [0]
    yield "help of train", ["train", "--help"], {}, [0]
    yield "completion", ["completion", "bash"], {}, [0]
    yield "config show", ["config", "show", "train.yaml"], {}, [0]
    yield "config check", ["config", "check", "train.yaml"], {}, [0]
    yield "config schema", ["config", "schema"], {}, [0]
    yield "sweep schema", ["sweep", "schema"], {}, [0]
    yield "examples", ["examples", "quickstart"], {}, [0]
    yield "help of a key", ["train", "--help", "model_name"], {}, [0]
    yield "help of an unknown flag", ["train", "--help", f"--hf_token={canaries.new('--help --hf_token')}"], {}, [USAGE]
    for name in ("llama.yaml", "deepspeed.json", "run.sh"):
        yield f"config import {name}", ["config", "import", str(given / name), "--output", f"imported-{name}.yaml"], {}, \
            [0, USAGE]
        yield f"config import {name} as JSON", ["config", "import", str(given / name), "--json"], {}, [0, USAGE]
    for name in ("key", "broken", "twice", "address", "list", "s3", "model", "endpoint"):
        yield f"config {name}.yaml", ["config", "show", str(given / f"{name}.yaml")], {}, [USAGE]
        yield f"train {name}.yaml", ["train", str(given / f"{name}.yaml")], {}, [USAGE]
    yield "unknown flag", ["train", "train.yaml", f"--hf_token={canaries.new('--hf_token')}"], {}, [USAGE]
    yield "plan", ["plan", "--model_name", "gpt2", "--gpu", "h100", "--output", "plan.svg"], {}, [0]
    yield "schedule", ["schedule", "--max_steps", "100", "--output", "schedule.svg"], {}, [0]


def run_commands(canaries, servers, secret_file, slow):
    yield "train", train("one"), {}, [0]
    yield "train again", train("two", "--seed", "5", "--metrics_address", "127.0.0.1:0"), {}, [0]
    yield "resume", train("one", "--resume", "latest", "--max_steps", "6"), {}, [0]
    ranks = ["launch", "--nproc", "2", "--log_dir", "logs", "--"]
    yield "launch", ranks + train("ranks"), {}, [0]
    yield "launch with a file", ranks + train("ranks-file"), \
        {"OCTAVO_RENDEZVOUS_SECRET": "", "OCTAVO_RENDEZVOUS_SECRET_FILE": str(secret_file)}, [0]
    for kind in ("slurm", "kubernetes"):
        yield kind, ["launch", "--nnodes", "2", "--nproc", "2", f"--{kind}", f"{kind}.txt", "--", *train("cluster")], {}, [0]
    yield "launch elsewhere", ["launch", "--nnodes", "2", "--node_rank", "0", "--nproc", "1", "--master_address", "192.0.2.1",
                               "--", *train("elsewhere")], {}, [ENVIRONMENT]
    yield "verify", ["verify", "--output", "verify.json"], {}, [0, 1, ENVIRONMENT, GUARD]
    yield "checkpoints", ["checkpoints", "list", "--checkpoint_dir", "saved-one"], {}, [0, USAGE]
    yield "generate", ["generate", "--checkpoint", "latest", "--checkpoint_dir", "saved-one", "--prompt", "To be",
                       "--max_new_tokens", "4"], {}, [0, USAGE]
    if not slow:
        return
    yield "doctor", ["doctor"], {}, [0, 1, ENVIRONMENT, GUARD]
    yield "sweep", ["sweep", "run", "sweep.yaml", "train.yaml", "--agents", "1", "--", "--dataset", "data"], {}, [0]
    yield "sweep report", ["sweep", "report", "sweep.db", "--output", "sweep.html"], {}, [0]
    yield "report", ["report", "runs/one", "--output", "run.html"], {}, [0]
    yield "compare", ["compare", "runs/one", "runs/two", "--output", "compare.html"], {}, [0, GUARD, NOT_ENOUGH]
    yield "wandb", train("wandb"), {"WANDB_BASE_URL": servers.wandb.address, "LIVE": "1"}, [0]
    yield "wandb refuses", train("wandb-refuses"), {"WANDB_BASE_URL": servers.address("wandb_refuses"), "LIVE": "1"}, [0]
    yield "wandb with a password", train("wandb-password"), \
        {"WANDB_BASE_URL": servers.address("wandb_refuses", f"me:{canaries.new('WANDB_BASE_URL')}@"), "LIVE": "1"}, [0]
    yield "wandb over a proxy", train("wandb-proxy"), {"WANDB_BASE_URL": "http://wandb.invalid", "LIVE": "proxy"}, [0]
    yield "wandb is gone", train("wandb-gone"), {"WANDB_BASE_URL": "http://127.0.0.1:1", "LIVE": "1"}, [0]

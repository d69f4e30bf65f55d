"""The libcurl of the wheel (packaging/backend/minimal_curl.py): what is bundled with it, what the SBOM says, that it is hardened, speaks
HTTPS and trusts only who it is told to, and what is said when Debian's source cannot be had."""
import json
import os
import re
import ssl
import subprocess
import sys
import zipfile

import common

sys.path += map(str, (common.ROOT / "tests" / "conformance", common.ROOT / "tests" / "faults", common.ROOT / "packaging" / "backend"))
import bundle  # noqa: E402
import supply_elf  # noqa: E402
from hub_server import Hub, Repo  # noqa: E402

# All that the wheel may carry. With the distribution's libcurl come LDAP, Kerberos, rtmp, ssh2, GnuTLS and 20 more.
BUNDLED = {"libcrypto", "libcurl", "libfmt", "libhwy", "libpcre2-8", "libspdlog", "libsqlite3", "libssl", "libutf8proc", "libxxhash",
           "libyaml-cpp", "libz"}
ENVIRONMENT_FAULT = 3  # exit code
ROWS = b'{"text": "to be or not to be"}\n' * 50


def fail(text):
    sys.exit(f"install: {text}")


def check_bundled(wheel):
    """Returns how many libraries there are. The SBOM lists each, and libcurl by the source that it was built from."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        sbom = json.loads(archive.read(next(name for name in files if name.endswith("/sboms/octavo.cdx.json"))))
    found = [re.fullmatch(r".*/lib/bundled/(.+)-[0-9a-f]{8}(\.so.*)", name) for name in files if "/lib/bundled/" in name]
    if not all(found) or {match[1] for match in found} != BUNDLED:
        fail(f"wanted the libraries {sorted(BUNDLED)} in the wheel, found {sorted(name for name in files if '/lib/bundled/' in name)}")
    listed = {part["name"]: one["purl"] for one in sbom["components"] for part in one.get("components", [])}
    if missing := {match[1] + match[2] for match in found} - listed.keys():
        fail(f"wanted every bundled library in the wheel's SBOM, found no {sorted(missing)}")
    if not re.fullmatch(r"pkg:deb/debian/curl@[^?]+\?arch=source&distro=debian-12", listed["libcurl.so.4"]):
        fail(f"wanted Debian's source package of curl in the wheel's SBOM, found {listed['libcurl.so.4']}")
    debian = {file for file, purl in listed.items() if purl.startswith("pkg:deb/")}
    carried = {match[1] + match[2] for match in found}
    if more := {file for file in debian - carried if not bundle.RUNTIME.fullmatch(file)}:
        fail(f"wanted no library of Debian in the wheel's SBOM that is not in the wheel, found {sorted(more)}")
    if not any(name.endswith("/licenses/bundled/curl.txt") for name in files):
        fail("wanted curl's licence in the wheel, found none")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    if complaint := JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(sbom)):
        fail(f"wanted a valid SBOM in the wheel, found {complaint}")
    return len(found)


def check_hardened(environment):
    """As our own libraries are; the distribution's compiler flags are its own business."""
    file = next((environment.packages / "octavo" / "lib" / "bundled").glob("libcurl-*"))
    if complaints := list(supply_elf.complaints(file)):
        fail(f"{file.name}: {'; '.join(complaints)}")


def check_https(environment):
    """The program of the wheel downloads from a hub on loopback whose certificate it was given, and not without it."""
    key, certificate = environment.place / "key.pem", environment.place / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hub = Hub()
    try:
        hub.repos["datasets/tiny/rows"] = Repo({"data/train-00000-of-00001.jsonl": ROWS})
        hub.servers[0].socket = context.wrap_socket(hub.servers[0].socket, server_side=True)
        variables = {"HF_ENDPOINT": hub.endpoint.replace("http:", "https:"), "HF_HOME": str(environment.place / "hub")}
        prepare = ["data", "prepare", "--dataset", "tiny/rows", "--output", "from_hub"]
        said = environment.run(*prepare, code=ENVIRONMENT_FAULT, **variables).stderr
        if "SSL certificate problem" not in said or hub.requests:
            fail(f"wanted an unknown certificate to be refused, found: {said}")
        environment.run(*prepare, SSL_CERT_FILE=str(certificate), **variables)
        if not hub.requests:
            fail("wanted a download over https, found no request")
    finally:
        hub.close()


def check_no_source(work):
    """apt has no source: one line says so."""
    tools = work / "tools"
    tools.mkdir()
    (tools / "apt-get").write_text("#!/bin/sh\necho 'E: Unable to find a source package for curl' >&2\nexit 100\n")
    (tools / "apt-get").chmod(0o755)
    code = f"import pathlib, minimal_curl; minimal_curl.KEPT = pathlib.Path({str(work / 'curl')!r}); print(minimal_curl.folder_or_none())"
    variables = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(common.ROOT / "packaging" / "backend"),
                              "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, text=True, capture_output=True)
    lines = done.stderr.splitlines()
    if done.returncode != 0 or done.stdout != "None\n" or len(lines) != 1 or "Unable to find a source package" not in lines[0]:
        fail(f"without curl's source: wanted None and one line that says why, found {done.stdout}{done.stderr}")


def check(work, wheel, environment):
    """Returns how many libraries are bundled."""
    bundled = check_bundled(wheel)
    check_hardened(environment)
    check_https(environment)
    check_no_source(work)
    return bundled

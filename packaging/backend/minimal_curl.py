"""libcurl for the wheel: Debian's source package, its patches among it, built for HTTP and HTTPS alone.

The distribution's libcurl.so.4 brings LDAP, Kerberos, rtmp, ssh2 and what these link: 25 libraries that octavo never calls. This one
links OpenSSL and zlib, and programs that are linked with the distribution's load it: same name, same symbols and versions.
As a script it prints the folder that holds libcurl.so.4, copyright and version; a line says why when it cannot be had.
"""
import hashlib
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import bundle

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "curl"
HEADERS = "libcurl4-openssl-dev"  # of the same source and version as the libcurl that octavo is linked with
LINKED = {"libssl.so.3", "libcrypto.so.3", "libz.so.1"}
TOOLS = ("apt-get", "clang", "cmake", "dpkg-source", "ld.lld", "ninja", "strip")
# As cmake/hardening.cmake has it for our own libraries.
COMPILE = ["-O2", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-clash-protection",
           *(["-fcf-protection=full"] if platform.machine() == "x86_64" else [])]
LINK = "-fuse-ld=lld -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code,--no-undefined"
OFF = ["BUILD_CURL_EXE", "BUILD_TESTING", "CURL_BROTLI", "CURL_USE_GSSAPI", "CURL_USE_LIBPSL", "CURL_USE_LIBSSH", "CURL_USE_LIBSSH2",
       "CURL_ZSTD", "ENABLE_MANUAL", "USE_LIBIDN2", "USE_LIBRTMP", "USE_NGHTTP2"]
OPTIONS = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_COMPILER=clang", "-DHTTP_ONLY=ON", "-DCURL_USE_OPENSSL=ON",
           # Where Debian's libcurl looks; elsewhere SSL_CERT_FILE names the file (src/hub/http.cpp).
           "-DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt", "-DCURL_CA_PATH=/etc/ssl/certs",
           *(f"-D{name}=OFF" for name in OFF)]


class Unavailable(Exception):
    """Why there is no such library: one line."""


def run(what, *command, folder=None):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env=os.environ | {"LC_ALL": "C.UTF-8"})
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if re.match(r"E:|.*\berror\b", line, re.I)] or done.stdout.splitlines()
        raise Unavailable(f"{what} ended with {done.returncode}: {lines[0][:300] if lines else 'it said nothing'}")
    return done.stdout


def version():
    """Of the source package that the installed libcurl was built from."""
    return run(f"dpkg-query about {HEADERS}", "dpkg-query", "-W", "-f", "${source:Version}", HEADERS)


def write_sources(folder):
    """The machine's apt sources, as sources of source packages: few machines have those."""
    places = run("apt-config", "apt-config", "shell", "FILE", "Dir::Etc::sourcelist/f", "FOLDER", "Dir::Etc::sourceparts/d")
    places = dict(word.split("=", 1) for word in shlex.split(places))
    for file in [pathlib.Path(places["FILE"]), *sorted(pathlib.Path(places["FOLDER"]).glob("*"))]:
        if not file.is_file():
            continue
        text = file.read_text()
        if file.suffix == ".sources":
            (folder / file.name).write_text(re.sub(r"^Types:.*", "Types: deb-src", text, flags=re.M | re.I))
        elif file.suffix == ".list":
            lines = dict.fromkeys(re.findall(r"^\s*deb(?:-src)?(\s.*)", text, re.M))
            (folder / file.name).write_text("".join(f"deb-src{line}\n" for line in lines))


def fetch(wanted, work):
    """The unpacked and patched source. apt checks signatures and hashes; its state here is its own."""
    sources, state = work / "sources", work / "apt"
    for folder in (sources, state / "lists" / "partial", state / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True)
    (state / "status").write_text("")
    write_sources(sources)
    options = {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": sources, "Dir::State": state,
               "Dir::State::lists": state / "lists", "Dir::State::status": state / "status", "Dir::Cache": state / "cache",
               "APT::Sandbox::User": "", "APT::Get::AllowUnauthenticated": "false", "Acquire::AllowInsecureRepositories": "false",
               "Acquire::Retries": "1", "Acquire::http::Timeout": "20", "Acquire::https::Timeout": "20"}
    apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], capture_output=True)  # what a source of other packages lacks is no matter: the next line tells
    run("apt-get source", *apt, "source", "--download-only", f"curl={wanted}", folder=work)
    run("dpkg-source", "dpkg-source", "-x", next(work.glob("*.dsc")), work / "source")
    return work / "source"


def symbols(file):
    listed = bundle.output("readelf", "--dyn-syms", "--wide", file)
    return set(re.findall(r" (?:FUNC|OBJECT) +GLOBAL +\w+ +\d+ (curl_\S+)", listed))


def compile_library(source, work):
    """Built and stripped, and a library that can stand in for the distribution's."""
    theirs = symbols(bundle.system_libraries()[bundle.CURL])
    nodes = {symbol.partition("@@")[2] for symbol in theirs}
    if len(nodes) != 1:
        raise Unavailable(f"wanted one version of all symbols of the distribution's {bundle.CURL}, found {sorted(nodes)}")
    versions, build = work / "versions", work / "build"
    versions.write_text(f"{nodes.pop()} {{ global: curl_*; local: *; }};\n")
    flags = " ".join([*COMPILE, f"-ffile-prefix-map={work}=."])
    run("curl's cmake", "cmake", "-S", source, "-B", build, "-G", "Ninja", *OPTIONS, f"-DCMAKE_C_FLAGS={flags}",
        f"-DCMAKE_SHARED_LINKER_FLAGS={LINK},--version-script={versions}")
    run("curl's build", "cmake", "--build", build, "--target", "libcurl")
    made = build / "lib" / bundle.CURL
    run("strip", "strip", "--strip-unneeded", made.resolve())
    if lost := theirs - symbols(made):
        raise Unavailable(f"wanted all symbols of the distribution's {bundle.CURL}, found no {' '.join(sorted(lost))}")
    if more := {name for name in bundle.needed(made) if name not in LINKED and not bundle.RUNTIME.fullmatch(name)}:
        raise Unavailable(f"wanted a libcurl that links {' '.join(sorted(LINKED))}, found {' '.join(sorted(more))} as well")
    return made


def folder():
    """Built, unless this source was built by this file before. Raises Unavailable."""
    wanted = version()
    kept = KEPT / f"{wanted}-{hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:8]}"
    if kept.exists():
        return kept
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise Unavailable(f"wanted {' '.join(missing)}, found none; run ./bootstrap")
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as name:
        work = pathlib.Path(name)
        source, done = fetch(wanted, work), work / "done"
        made = compile_library(source, work)
        done.mkdir()
        shutil.copyfile(made, done / bundle.CURL)
        shutil.copyfile(source / "debian" / "copyright", done / "copyright")
        (done / "version").write_text(wanted)
        try:
            done.rename(kept)
        except OSError:  # another build was quicker
            if not kept.exists():
                raise
    return kept


def folder_or_none():
    """Says so when there is none: the wheel then has the distribution's."""
    try:
        return folder()
    except (Unavailable, OSError, subprocess.CalledProcessError) as error:
        print(f"octavo: no libcurl with HTTP alone: {error}; the wheel takes the distribution's, with LDAP, Kerberos, rtmp and ssh2",
              file=sys.stderr)
        return None


if __name__ == "__main__":
    found = folder_or_none()
    print(found or "distribution")
    sys.exit(0 if found else 1)

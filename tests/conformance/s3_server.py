"""An S3 server on loopback for tests: moto's over TLS or plain, with what moto does not do put before it. Signatures are
recomputed from the secrets that the server knows and refused when they differ, checksums of uploaded parts are compared
with the bytes, every request is noted, and faults are injected on request."""
import base64
import datetime
import hashlib
import hmac
import io
import ipaddress
import logging
import re
import threading
import time
import urllib.parse
import zlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

CRC64_NVME = 0x9A6C9329AC4BC9B5  # reflected
COMPARED = 4 << 20  # bytes: larger parts must have a checksum, which would take Python too long to compute


def crc64_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (CRC64_NVME if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc64_table()


def crc64_nvme(data):
    crc = (1 << 64) - 1
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return (crc ^ (1 << 64) - 1).to_bytes(8, "big")


assert crc64_nvme(b"123456789").hex() == "ae8b14860a799888"  # the catalogue's check value


def make_certificates(folder, names=("127.0.0.1", "localhost")):
    """(CA file, server's certificate, its key): a test CA and what it signed for these names."""
    now = datetime.datetime.now(datetime.timezone.utc)

    def certificate(subject, issuer, key, signer, ca, sans=()):
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
                   .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
                   .not_valid_after(now + datetime.timedelta(days=2))
                   .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True))
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        return builder.sign(signer, hashes.SHA256())

    def name(text):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def general(text):
        try:
            return x509.IPAddress(ipaddress.ip_address(text))
        except ValueError:
            return x509.DNSName(text)

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = certificate(name("octavo test CA"), name("octavo test CA"), ca_key, ca_key, True)
    leaf = certificate(name("octavo test server"), name("octavo test CA"), key, ca_key, False, [general(n) for n in names])
    paths = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    paths[0].write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    paths[2].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    return paths


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


def signature(environ, headers, secret, fields):
    """SigV4 as its specification has it, written down here a second time."""
    signed = fields["SignedHeaders"].split(";")
    query = "&".join(sorted(f"{quote(k)}={quote(v)}" for k, v in
                            urllib.parse.parse_qsl(environ["QUERY_STRING"], keep_blank_values=True)))
    path = urllib.parse.unquote(environ["RAW_URI"].split("?")[0])
    canonical = "\n".join([environ["REQUEST_METHOD"], quote(path, "/"), query,
                           *(f"{n}:{' '.join(headers[n].split())}" for n in signed), "", fields["SignedHeaders"],
                           headers["x-amz-content-sha256"]])
    key_id, date, region, service, end = fields["Credential"].split("/")
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join([date, region, service, end]),
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, end):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def decode_chunks(body):
    """(data, {trailer: value}) of an aws-chunked body."""
    data, at = b"", 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        at = line_end + 2
        if size == 0:
            break
        data += body[at:at + size]
        at += size + 2
    trailers = dict(line.split(":", 1) for line in body[at:].decode().split("\r\n") if line)
    return data, {k.lower(): v.strip() for k, v in trailers.items()}


class Faults:
    """What goes wrong with puts: 'status' answers, 'hang' waits for the end of the test, 'slow' takes seconds for each."""

    def __init__(self):
        self.status, self.hang, self.slow = None, False, 0.0


class Server:
    """moto behind a check of every request. `secrets`: {access key id: (secret, session token or '')}."""

    def __init__(self, secrets, certificates=None, address="127.0.0.1"):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.secrets, self.faults, self.moto = secrets, Faults(), DomainDispatcherApplication(create_backend_app)
        self.lock, self.released = threading.Lock(), threading.Event()
        self.requests, self.refused, self.checksums, self.parts, self.putting = [], [], 0, 0, threading.Event()
        context = None if certificates is None else (str(certificates[1]), str(certificates[2]))
        self.http = make_server(address, 0, self.answer, threaded=True, ssl_context=context)
        self.url = f"{'http' if context is None else 'https'}://{address}:{self.http.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def release(self):
        """Lets go of the requests that hang."""
        self.released.set()

    def stop(self):
        self.release()
        self.http.shutdown()

    def problem(self, environ, headers):
        """Why a request is refused, or ''."""
        match = re.fullmatch(r"AWS4-HMAC-SHA256 (.*)", headers.get("authorization", ""))
        if match is None:
            return "AccessDenied"
        fields = dict(part.strip().split("=", 1) for part in match[1].split(","))
        key_id = fields["Credential"].split("/")[0]
        secret, token = self.secrets.get(key_id, ("", ""))
        if not secret:
            return "InvalidAccessKeyId"
        if headers.get("x-amz-security-token", "") != token:
            return "InvalidToken"
        if not hmac.compare_digest(signature(environ, headers, secret, fields), fields["Signature"]):
            return "SignatureDoesNotMatch"
        environ["octavo.key"] = key_id
        return ""

    def answer(self, environ, start_response):
        headers = {k[5:].lower().replace("_", "-"): v for k, v in environ.items() if k.startswith("HTTP_")}
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        headers["content-length"] = environ.get("CONTENT_LENGTH", "")
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])) if environ.get("CONTENT_LENGTH") else \
            environ["wsgi.input"].read() if environ.get("wsgi.input_terminated") else b""

        def refuse(status, code):
            with self.lock:
                self.refused.append(code)
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
            start_response(f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
            return [text]

        problem = self.problem(environ, headers)
        if problem:
            return refuse(403, problem)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        writes = method == "PUT" or method == "POST" and "uploadId" in environ["QUERY_STRING"]
        if writes:
            self.putting.set()
            faults = self.faults
            time.sleep(faults.slow)
            if faults.hang:
                self.released.wait(120)
                return refuse(503, "SlowDown")
            if faults.status:
                return refuse(faults.status, "AccessDenied" if faults.status == 403 else "InternalError")
        if headers.get("content-encoding", "") == "aws-chunked" or "x-amz-trailer" in headers:
            body, trailers = decode_chunks(body)
            if len(body) != int(headers["x-amz-decoded-content-length"]):
                return refuse(400, "IncompleteBody")
            given, given32 = (trailers.get("x-amz-checksum-" + kind) for kind in ("crc64nvme", "crc32"))  # Arrow's, boto3's
            if not given and not given32:
                return refuse(400, "MissingChecksum")
            if given and len(body) <= COMPARED and base64.b64decode(given) != crc64_nvme(body) or \
                    given32 and base64.b64decode(given32) != zlib.crc32(body).to_bytes(4, "big"):
                return refuse(400, "BadDigest")
            with self.lock:
                self.checksums += len(body) <= COMPARED
                self.parts += "partNumber" in environ["QUERY_STRING"]
            for name in ("HTTP_CONTENT_ENCODING", "HTTP_X_AMZ_TRAILER", "HTTP_X_AMZ_DECODED_CONTENT_LENGTH",
                         "HTTP_TRANSFER_ENCODING"):
                environ.pop(name, None)
            environ["HTTP_X_AMZ_CONTENT_SHA256"] = hashlib.sha256(body).hexdigest()
        elif method == "PUT" and body:
            return refuse(400, "MissingChecksum")
        with self.lock:
            self.requests.append((environ["octavo.key"], method, path, headers.get("host", "")))
        environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        environ.pop("wsgi.input_terminated", None)
        return self.moto(environ, start_response)

    def keys(self):
        """The access key ids that were seen since the last call."""
        with self.lock:
            seen, self.requests = {request[0] for request in self.requests}, []
        return seen

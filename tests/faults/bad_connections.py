"""Bad connections to the ports of a run, and a good one to its rendezvous. The bytes: src/rendezvous/protocol.h."""
import contextlib
import hashlib
import hmac
import os
import random
import socket
import struct
import threading
import time

HELLO, PROOF, ANSWER = 42, 32, 33
LET_IN, SIZE = 1, 8  # an answer; an operation
PATIENCE = 10  # seconds, for an answer to somebody good
MOST_HELD = 200  # connections of a flood that stay open


def connect(address, patience=PATIENCE):
    made = socket.create_connection(address, timeout=patience)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def receive(connection, size):
    """As many bytes, or those before its end."""
    got = b""
    with contextlib.suppress(OSError):
        while len(got) < size and (more := connection.recv(size - len(got))):
            got += more
    return got


def hello():
    return b"OCTAVORV" + struct.pack("<H", 1) + os.urandom(32)


def proof(secret, role, ours, theirs):
    return hmac.new(secret, role + b"\0" + ours + theirs, hashlib.sha256).digest()


def shake_hands(connection, secret):
    """What was said and what came back; the last is the answer."""
    ours = hello()
    connection.sendall(ours)
    theirs = receive(connection, HELLO)
    shown = proof(secret, b"client", ours, theirs)
    connection.sendall(shown)
    return ours, shown, theirs, receive(connection, ANSWER)


def is_let_in(answer):
    return answer[:1] == bytes([LET_IN])


def real_client(address, secret):
    """Somebody with the secret asks for the number of keys; the seconds it took, or None."""
    begin = time.monotonic()
    with contextlib.suppress(OSError, struct.error), connect(address) as connection:
        ours, _, theirs, answer = shake_hands(connection, secret)
        if not is_let_in(answer) or answer[1:] != proof(secret, b"server", ours, theirs):
            return None
        body = struct.pack("<BIqII", SIZE, 0, 0, 0, 0)
        connection.sendall(struct.pack("<I", len(body)) + body)
        length, = struct.unpack("<I", receive(connection, 4))
        status, keys = struct.unpack("<Bq", receive(connection, length)[:9])
        return time.monotonic() - begin if status == 0 and keys > 0 else None
    return None


def answered(connection):  # until the other side closes
    return receive(connection, 1 << 20)


class Rendezvous:
    """Who has not the secret; each returns whether it was authenticated. What is held stays open."""

    def __init__(self, address, secret):
        self.address, self.secret = address, secret
        with connect(address) as connection:
            self.heard_hello, self.heard_proof, _, answer = shake_hands(connection, secret)
            assert is_let_in(answer), "the right secret was refused"

    def wrong_secret(self, connection, hold):
        return is_let_in(shake_hands(connection, b"a secret that is another one")[3])

    def no_secret(self, connection, hold):
        return is_let_in(shake_hands(connection, b"")[3])

    def replayed(self, connection, hold):
        """What somebody good once said, as it was heard on the wire."""
        connection.sendall(self.heard_hello)
        receive(connection, HELLO)
        connection.sendall(self.heard_proof)
        return is_let_in(receive(connection, ANSWER))

    def mirrored(self, connection, hold):
        """The server's own words sent back."""
        connection.sendall(hello())
        theirs = receive(connection, HELLO)
        connection.sendall(theirs[:PROOF])
        return is_let_in(receive(connection, ANSWER))

    def garbage(self, connection, hold):
        connection.sendall(os.urandom(200))
        return answered(connection) != b""

    def web_request(self, connection, hold):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: here.example.org\r\n\r\n")
        return answered(connection) != b""

    def half_hello(self, connection, hold):
        connection.sendall(hello()[:random.randrange(1, HELLO)])
        return hold(connection)

    def half_proof(self, connection, hold):
        connection.sendall(hello())
        receive(connection, HELLO)
        connection.sendall(b"\1" * 31)
        return hold(connection)

    def request_unproven(self, connection, hold):
        """A frame of the largest length instead of the proof."""
        connection.sendall(hello())
        receive(connection, HELLO)
        connection.sendall(b"\xff" * 4 + b"\0" * 28)
        return is_let_in(receive(connection, ANSWER))

    def leaves(self, connection, hold):
        return False

    def resets(self, connection, hold):
        connection.sendall(hello())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def huge_frame(self, connection, hold):
        """From somebody with the secret: dropped, and nothing is kept for it."""
        shake_hands(connection, self.secret)
        connection.sendall(b"\xff\xff\xff\xff" + b"x" * 100)
        return answered(connection) != b""

    def half_frame(self, connection, hold):
        """From somebody with the secret: 16 MB are promised, a few bytes come, then silence."""
        shake_hands(connection, self.secret)
        connection.sendall(struct.pack("<I", 16 << 20) + b"x" * 100)
        return hold(connection)

    def broken_request(self, connection, hold):
        """From somebody with the secret: refused."""
        shake_hands(connection, self.secret)
        connection.sendall(struct.pack("<I", 40) + os.urandom(40))
        length = receive(connection, 4)
        return len(length) != 4 or receive(connection, struct.unpack("<I", length)[0])[:1] != b"\2"

    def idle(self, connection, hold):
        return hold(connection)

    def kinds(self):
        return [self.wrong_secret, self.no_secret, self.replayed, self.mirrored, self.garbage, self.web_request,
                self.half_hello, self.half_proof, self.request_unproven, self.leaves, self.resets, self.huge_frame,
                self.half_frame, self.broken_request, self.idle]


def status_of(answer):
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 2 and words[0].startswith(b"HTTP/") else 0


ESCAPES = [b"/../../../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"//etc/passwd", b"/metrics/../../etc/passwd",
           b"/..\\..\\etc\\passwd", b"/healthz%00.html", b"/metrics/", b"/" + b"a" * 3000]


class Web:
    """Bad requests to /metrics and /healthz; each returns whether more than a refusal came back."""

    def __init__(self, address):
        self.address = address

    def said(self, connection, request, wanted):
        with contextlib.suppress(OSError):  # it may close before it has read all
            connection.sendall(request)
        return status_of(answered(connection)) not in (*wanted, 0)  # 0: pushed out by newer ones

    def garbage(self, connection, hold):
        return self.said(connection, os.urandom(300).replace(b"\n", b"") + b"\r\n\r\n", [400])

    def other_method(self, connection, hold):
        method = random.choice([b"POST", b"PUT", b"DELETE", b"TRACE", b"get", b"X" * 200])
        return self.said(connection, method + b" /metrics HTTP/1.1\r\n\r\n", [400, 405])

    def escape(self, connection, hold):
        return self.said(connection, b"GET " + random.choice(ESCAPES) + b" HTTP/1.1\r\n\r\n", [400, 404])

    def large_header(self, connection, hold):
        return self.said(connection, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (1 << 20), [431])

    def many_requests(self, connection, hold):
        """One answer a connection, however many are asked for at once."""
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n" * 50)
        return answered(connection).count(b"HTTP/1.1 ") > 1

    def slow_header(self, connection, hold):
        for byte in b"GET /m":
            connection.sendall(bytes([byte]))
        return hold(connection)

    def leaves(self, connection, hold):
        return False

    def does_not_read(self, connection, hold):
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        return hold(connection)

    def kinds(self):
        return [self.garbage, self.other_method, self.escape, self.large_header, self.many_requests, self.slow_header,
                self.leaves, self.does_not_read, lambda connection, hold: hold(connection)]


class Gloo:
    """Its ports ask nobody who he is. Once the ranks have met, nobody new may connect at all."""

    def __init__(self, address):
        self.address = address

    def connects(self, connection, hold):
        connection.sendall(os.urandom(random.choice([1, 4, 8, 64])))
        return True

    def kinds(self):
        return [self.connects]


def page(address, path):
    """The status that somebody good gets, who tries again when he was pushed out."""
    deadline = time.monotonic() + PATIENCE
    status = 0
    while status == 0 and time.monotonic() < deadline:
        with contextlib.suppress(OSError), connect(address) as connection:
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status = status_of(answered(connection))
    return status


class Flood:
    """Some threads that connect `count` times to one address, in every bad way by turns; some stay open."""

    def __init__(self, target, count, threads=1, patience=PATIENCE):
        self.target, self.left, self.patience = target, count, patience
        self.made = self.turned_away = self.mistakes = 0  # tried; of them not even connected; authenticated or served
        self.wrong, self.held, self.lock = {}, [], threading.Lock()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def hold(self, connection):
        with self.lock:
            self.held.append(connection)
            oldest = self.held.pop(0) if len(self.held) > MOST_HELD else None
        if oldest:
            oldest.close()
        return False

    def _run(self):
        kinds = self.target.kinds()
        while True:
            with self.lock:
                self.left -= 1
                number = self.left
            if number < 0:
                return
            self._one(kinds[number % len(kinds)])

    def _one(self, kind):
        got_in = connected = False
        connection = None
        with contextlib.suppress(OSError):  # being dropped is what is wanted
            connection = connect(self.target.address, self.patience)
            connected = True
            got_in = kind(connection, self.hold)
        with self.lock:
            self.made += 1
            self.turned_away += not connected
            self.mistakes += got_in
            if got_in:
                self.wrong[kind.__name__] = self.wrong.get(kind.__name__, 0) + 1
            if connection and connection not in self.held:
                connection.close()

    def done(self):
        return not any(thread.is_alive() for thread in self.threads)

    def finish(self):
        for thread in self.threads:
            thread.join()
        for connection in self.held:
            connection.close()
        self.held.clear()

"""What a crash can leave of a recorded sequence of file operations (write_recorder.cpp): every prefix of it, and of each
prefix all that was not synced kept, lost, or kept in part.

The model is stricter than most file systems: a file's bytes are safe only once the file was synced, its name only once
the folder was, and the changes of a folder since its last sync are kept up to any of them, folder by folder.
"""
import hashlib
import json
import os
import random
import struct

CREATE, WRITE, TRUNCATE, SYNC, RENAME, EXCHANGE, MAKE_FOLDER, REMOVE, REMOVE_FOLDER, SYMLINK, LINK, MARK = range(1, 13)


def read_log(path):
    """(kind, first text, second text, data) of each record."""
    content, at, records = path.read_bytes(), 0, []
    while at < len(content):
        size, = struct.unpack_from("<I", content, at)
        record, at = content[at + 4:at + 4 + size], at + 4 + size
        texts, inside = [], 1
        for _ in range(2):
            length, = struct.unpack_from("<I", record, inside)
            texts.append(record[inside + 4:inside + 4 + length].decode())
            inside += 4 + length
        records.append((record[0], *texts, record[inside:]))
    return records


class File:
    def __init__(self):
        self.data, self.safe = bytearray(), None  # safe: what the disk surely has; None: nothing


class Link:
    def __init__(self, target):
        self.target = target


class Folder:
    def __init__(self):
        self.names, self.safe, self.changes = {}, {}, []  # changes: since the last sync, as lists of (name, node or None)

    def change(self, *pairs):
        self.changes.append(pairs)
        for name, node in pairs:
            if node is None:
                self.names.pop(name, None)
            else:
                self.names[name] = node

    def kept(self, count):
        """The names when the first `count` changes since the last sync reached the disk."""
        names = dict(self.safe)
        for pairs in self.changes[:count]:
            for name, node in pairs:
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node
        return names


class Disk:
    """The folder that was recorded, in memory."""

    def __init__(self):
        self.root = Folder()

    def find(self, path):
        node = self.root
        for name in [] if path == "." else path.split("/"):
            node = node.names[name]
        return node

    def parent(self, path):
        folder, _, name = path.rpartition("/")
        return self.find(folder or "."), name

    def apply(self, kind, first, second, data):
        if kind == WRITE:
            offset, = struct.unpack_from("<Q", data)
            file, new = self.find(first), data[8:]
            file.data.extend(bytes(max(0, offset + len(new) - len(file.data))))
            file.data[offset:offset + len(new)] = new
        elif kind == TRUNCATE:
            size, = struct.unpack_from("<Q", data)
            file = self.find(first)
            file.data = file.data[:size].ljust(size, b"\0")
        elif kind == SYNC:
            node = self.find(first)
            if isinstance(node, Folder):
                node.safe, node.changes = dict(node.names), []
            else:
                node.safe = bytes(node.data)
        elif kind in (CREATE, MAKE_FOLDER, SYMLINK):
            folder, name = self.parent(second if kind == SYMLINK else first)
            folder.change((name, File() if kind == CREATE else Folder() if kind == MAKE_FOLDER else Link(first)))
        elif kind in (REMOVE, REMOVE_FOLDER):
            folder, name = self.parent(first)
            folder.change((name, None))
        elif kind == LINK:
            folder, name = self.parent(second)
            folder.change((name, self.find(first)))
        elif kind in (RENAME, EXCHANGE):
            (a, old), (b, new) = self.parent(first), self.parent(second)
            assert a is b, f"{first} to {second}: only renames within a folder are known here"
            a.change((new, a.names[old]), (old, b.names[new] if kind == EXCHANGE else None))
        else:
            raise ValueError(f"operation {kind} is not known")


def whole(file, chance):
    return bytes(file.data)


def lost(file, chance):
    return file.safe or b""


def cut(file, chance):
    """What was not synced ends somewhere."""
    if file.safe == file.data:
        return file.safe
    return bytes(file.data[:chance.randrange(len(file.data) + 1)])


def zeros(file, chance):
    """The size is there, the bytes are not."""
    if file.safe == file.data:
        return file.safe
    return (file.safe or b"").ljust(len(file.data), b"\0")[:len(file.data)]


def some(file, chance):
    return chance.choice([whole, lost, cut, zeros])(file, chance)


def picture(folder, names_of, bytes_of, chance):
    """{name: bytes, link's text or a picture} of one way in which the disk may be found."""
    found = {}
    for name, node in names_of(folder).items():
        if isinstance(node, Folder):
            found[name] = picture(node, names_of, bytes_of, chance)
        else:
            found[name] = node.target if isinstance(node, Link) else bytes_of(node, chance)
    return found


def pictures(disk, chance, samples):
    """(what is kept, picture) of the ways in which a crash at this point may leave the disk."""
    now, safe = (lambda folder: folder.names), (lambda folder: folder.safe)
    yield "all kept", picture(disk.root, now, whole, chance)
    yield "all lost that was not synced", picture(disk.root, safe, lost, chance)
    yield "names kept, bytes lost", picture(disk.root, now, lost, chance)
    yield "names kept, bytes zero", picture(disk.root, now, zeros, chance)
    yield "names kept, bytes cut", picture(disk.root, now, cut, chance)
    yield "names lost, bytes kept", picture(disk.root, safe, whole, chance)
    for number in range(samples):
        seed = chance.random()
        counts = random.Random(seed)
        yield f"sample {number}", picture(disk.root, lambda folder: folder.kept(counts.randrange(len(folder.changes) + 1)),
                                          some, chance)


def digest(found):
    state = hashlib.blake2b(digest_size=16)

    def add(level):
        for name in sorted(level):
            item = level[name]
            state.update(f"{type(item).__name__} {name}\0".encode())
            if isinstance(item, dict):
                add(item)
                state.update(b"end\0")
            else:
                state.update(item.encode() if isinstance(item, str) else item)
                state.update(b"\0")
    add(found)
    return state.digest()


def put(found, path):
    """Makes the picture real."""
    path.mkdir()
    for name, item in found.items():
        if isinstance(item, dict):
            put(item, path / name)
        elif isinstance(item, str):
            os.symlink(item, path / name)
        else:
            (path / name).write_bytes(item)


def crashes(records, chance, samples):
    """Of every prefix: its length, the marks said so far, and each picture that was not seen before."""
    disk, marks, seen = Disk(), [], set()
    for count, (kind, first, second, data) in enumerate(records, 1):
        if kind == MARK:
            marks.append(json.loads(first))
        else:
            disk.apply(kind, first, second, data)
        fresh = []
        for how, found in pictures(disk, chance, samples):
            key = digest(found), len(marks)
            if key not in seen:
                seen.add(key)
                fresh.append((how, found))
        yield count, list(marks), fresh

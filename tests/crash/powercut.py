"""Cut the power: take back, from a store whose gateway was killed, writes that no sync had covered.

powercut.c keeps them in a journal; its entries are described there. A disk may have kept any of
them, in any order, and of each any sectors: so first all are undone, which gives what is certainly on the disk,
and then some are made again."""

import dataclasses
import os
import pathlib
import struct

ENTRY = struct.Struct("<IIQQQQQ")
MAGIC = 0x54554350
WRITE, CUT, SYNC = 1, 2, 3
ENDINGS = {1: "", 2: "-wal", 3: "-journal"}
SECTOR = 512


@dataclasses.dataclass
class Entry:
    position: int  # in the journal
    kind: int
    file: int
    at: int
    bytes: int
    old_size: int
    old: bytes
    new: bytes = b""
    was_made: bool = True


def read_journal(path):
    """Its entries. What a kill left of an entry at the end is cut off: its write was not made."""
    data = pathlib.Path(path).read_bytes()
    entries = []
    position = 0
    while position + ENTRY.size <= len(data):
        magic, kind, file, at, count, old_size, kept = ENTRY.unpack_from(data, position)
        assert magic == MAGIC, f"the journal is damaged at {position}"
        end = position + ENTRY.size + kept
        if end > len(data):
            break
        entries.append(Entry(position, kind, file, at, count, old_size, data[position + ENTRY.size:end]))
        position = end
    if position < len(data):
        os.truncate(path, position)
    return entries


def unsynced(entries, file):
    """The writes of one file, in order, that no sync covers."""
    covered = max((e.at for e in entries if e.kind == SYNC and e.file == file), default=0)
    return [e for e in entries if e.kind != SYNC and e.file == file and e.position >= covered]


def put(image, at, data):
    if len(image) < at:
        image.extend(bytes(at - len(image)))  # a hole
    image[at:at + len(data)] = data


def undo(image, entry):
    if entry.kind == WRITE:
        entry.new = bytes(image[entry.at:entry.at + entry.bytes])  # less, where the kill broke the write off
    else:
        entry.was_made = len(image) == entry.at
    put(image, entry.at, entry.old)
    del image[entry.old_size:]


def make_again(image, entry, keeps):
    """keeps(): is this part on the disk?"""
    if entry.kind == CUT:
        if entry.was_made and keeps():
            del image[entry.at:]
            put(image, entry.at, b"")
        return
    start, end = entry.at, entry.at + len(entry.new)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if keeps():
            put(image, start, entry.new[start - entry.at:stop - entry.at])
        start = stop


def cut(store, journal, random, mode=None):
    """Cut the power. Returns a line that says what was done."""
    entries = read_journal(journal)
    mode = mode or random.choices(["all lost", "all kept", "some kept"], [3, 1, 6])[0]
    lost = []
    for file, ending in ENDINGS.items():
        path = pathlib.Path(f"{store}{ending}")
        pending = unsynced(entries, file)
        if not pending or not path.exists():
            continue
        image = bytearray(path.read_bytes())
        for entry in reversed(pending):
            undo(image, entry)
        for entry in pending:
            share = {"all lost": 0.0, "all kept": 1.0}.get(mode)
            if share is None:
                share = random.choice([0.0, 0.5, 1.0])  # none of it, torn, whole
            make_again(image, entry, lambda share=share: random.random() < share)
        path.write_bytes(image)
        lost.append(f"{len(pending)} writes of {path.name}")
    os.truncate(journal, 0)  # what stands there now is on the disk
    shared = pathlib.Path(f"{store}-shm")
    if shared.exists():  # memory: nothing of it outlives the power
        shared.write_bytes(random.randbytes(shared.stat().st_size))
    return f"power cut, {mode}: " + (", ".join(lost) or "nothing was unsynced")

"""Speaks the text protocol as its first clients do and compares every answer.

Length and body go out in two pieces, with small-packet delay left on. Called with the address; prints
`ok <number of comparisons>` or the first difference, and exits with 1 then. Needs an empty directory.
"""

import json
import socket
import struct
import sys


class Client:
    """One connection."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.compared = 0

    def send(self, body):
        """Sends a request in two pieces."""
        self.socket.sendall(struct.pack("<I", len(body)))
        self.socket.sendall(body)

    def receive(self):
        """The body of the next reply."""
        (length,) = struct.unpack("<I", self.exactly(4))
        return self.exactly(length)

    def exactly(self, count):
        """So many bytes."""
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                sys.exit("the server closed the connection")
            data += part
        return data

    def expect(self, body, answer):
        """Compares the answer to a request."""
        self.send(body)
        self.compare(body, answer)

    def compare(self, body, answer):
        """Compares the next reply."""
        found = self.receive()
        if found != answer:
            sys.exit(f"{body[:60]!r}: expected {answer!r}, found {found!r}")
        self.compared += 1


def arguments(client):
    """What is wrong with a request is told in the known words."""
    for body, answer in [
        (b"HELLO WORLD", b"ERR invalid HELLO: \"WORLD\" is one word too many"),
        (b"garbage", b"ERR unknown command"),
        (b"register logs", b"ERR unknown command"),
        (b" REGISTER logs", b"ERR unknown command"),
        (b"   ", b"ERR unknown command"),
        (b"REGISTER", b"ERR REGISTER requires a topic"),
        (b"REGISTER ", b"ERR REGISTER requires a topic"),
        (b"PUT", b"ERR PUT requires a topic"),
        (b"PUT logs", b"ERR PUT requires a payload"),
        (b"PUT logs  \n", b"ERR PUT requires a payload"),
        (b"GET", b"ERR GET requires a topic"),
        (b"STATE", b"ERR STATE requires a topic"),
        (b"PUT nowhere x", b"ERR unknown topic nowhere"),
        (b"GET nowhere", b"ERR unknown topic nowhere"),
        (b"STATE nowhere", b"ERR unknown topic nowhere"),
        (b"PUT logs \xff\xfe", b"ERR invalid utf-8"),
    ]:
        client.expect(body, answer)


def queue(client):
    """REGISTER is idempotent; GET takes in order and then is empty; ends of payloads are trimmed."""
    client.expect(b"REGISTER logs", b"OK")
    client.expect(b"REGISTER logs some more words", b"OK")
    client.expect(b"GET logs", b"EMPTY")
    payloads = [b"one", b"two words", b"three\nlines\nof text", b" leading", b"trailing \t\n", "é✓".encode()]
    for payload in payloads:
        client.expect(b"PUT logs " + payload, b"OK")
    for payload in payloads:
        client.expect(b"GET logs", b"OK " + payload.rstrip())
    client.expect(b"GET logs", b"EMPTY")


def pipeline(client):
    """Requests sent without waiting are answered in order."""
    for number in range(100):
        client.send(b"PUT logs %d" % number)
    client.send(b"GET logs")
    for number in range(100):
        client.compare(b"PUT", b"OK")
    client.compare(b"GET", b"OK 0")
    for number in range(1, 100):
        client.expect(b"GET logs", b"OK %d" % number)


def lengths(client):
    """Bad lengths are refused and the connection stays in step."""
    most = b"PUT logs " + b"x" * (65536 - 9)
    client.expect(most, b"OK")
    client.expect(b"GET logs", b"OK " + most[9:])
    inner = struct.pack("<I", 9) + b"GET logs!"
    over = (inner * 6000)[:65537]
    client.expect(over, b"ERR invalid frame length")
    client.expect(b"GET logs", b"EMPTY")
    client.send(b"")
    client.compare(b"", b"ERR invalid frame length")
    # Told at once, before the body comes.
    client.socket.sendall(struct.pack("<I", 70000))
    client.compare(b"70000", b"ERR invalid frame length")
    client.socket.sendall(b"y" * 70000)
    client.expect(b"GET logs", b"EMPTY")


def documents(client):
    """STATE and METRICS have the fields that programs read."""
    client.send(b"STATE logs")
    state = json.loads(client.receive())
    assert state["current_segment"] == 1 and state["leader_node"] == 1, state
    assert state["sealed_segments"] == {} and state["segment_leaders"] == {"1": 1}, state
    assert state["last_sealed_entry_offset"] == 0, state
    client.send(b"METRICS")
    body = client.receive()
    assert body.startswith(b"{\n"), body
    metrics = json.loads(body)
    leader = metrics["current_leader"]
    members = metrics["membership_config"]["membership"]
    assert metrics["state"] == "Leader" and leader == metrics["id"] == 1, metrics
    assert members["configs"] == [[1]] and set(members["nodes"]) == {"1"}, metrics
    assert metrics["replication"]["1"]["index"] >= metrics["last_log_index"] > 0, metrics
    client.compared += 2


def main():
    """All of it on one connection."""
    client = Client(sys.argv[1])
    for part in (arguments, queue, pipeline, lengths, documents):
        part(client)
    print("ok", client.compared)


main()

#!/usr/bin/env python3
"""Packets that Scapy builds, with its own idea of the invariant CRC: an oracle that shares no code.

    pip install scapy
    python3 in-switch/roce/tests/scapy_vectors.py > in-switch/roce/tests/scapy.json
"""

import json
import struct

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

WRITES = (0x06, 0x0A, 0x0B)
IMMEDIATES = (0x03, 0x05, 0x09, 0x0B)
ACKNOWLEDGE, CNP = 0x11, 0x81
OPCODES = list(range(0x0C)) + [ACKNOWLEDGE, CNP]
PAYLOADS = (0, 1, 2, 3, 4, 63, 1024, 4096)


def vector(number, opcode, v6, payload_bytes):
    """One packet, and what was put into it."""
    said = {
        "opcode": opcode,
        "source": f"fd00::{number + 1:x}" if v6 else f"10.1.{number % 256}.1",
        "target": f"fd00::1:{number + 1:x}" if v6 else f"10.2.{number % 256}.2",
        "traffic_class": (2, 0x6B, 3)[number % 3],
        "hop_limit": 1 + number % 255,
        "label": (number * 7919) % (1 << (20 if v6 else 16)),
        "source_port": 0xC000 + number,
        "solicited": number % 2 == 0,
        "ack_requested": number % 3 == 0,
        "target_qpn": (number * 104729) % (1 << 24),
        "psn": (1 << 24) - 1 - number,
        "payload": [(number + at * 31) % 256 for at in range(payload_bytes)],
    }
    extended = b""
    if opcode in WRITES:
        said["reth"] = [0x1122334455660000 + number, 0xABCD0000 + number, payload_bytes * 3]
        extended += struct.pack("!QII", *said["reth"])
    if opcode in IMMEDIATES:
        said["immediate"] = 0xFFFF0000 + number
        extended += struct.pack("!I", said["immediate"])
    if opcode == ACKNOWLEDGE:
        said["aeth"] = [(0x1F, 0x2E, 0x60)[number % 3], number]
        extended += struct.pack("!I", said["aeth"][0] << 24 | said["aeth"][1])
    if opcode == CNP:
        extended += bytes(16)
    pad = -payload_bytes % 4
    if v6:
        ip = IPv6(src=said["source"], dst=said["target"], tc=said["traffic_class"],
                  fl=said["label"], hlim=said["hop_limit"])
    else:
        ip = IP(src=said["source"], dst=said["target"], tos=said["traffic_class"],
                id=said["label"], ttl=said["hop_limit"], flags="DF")
    # RoCEv2 leaves the UDP checksum out.
    udp = UDP(sport=said["source_port"], dport=4791, chksum=0)
    bth = BTH(opcode=opcode, solicited=said["solicited"], migreq=1, padcount=pad,
              becn=opcode == CNP, dqpn=said["target_qpn"], ackreq=said["ack_requested"],
              psn=said["psn"])
    packet = ip / udp / bth / Raw(extended + bytes(said["payload"]) + bytes(pad))
    said["packet"] = bytes(packet).hex()
    said["payload"] = bytes(said["payload"]).hex()
    return said


def vectors():
    """Every opcode over both families; payloads of every padding where there may be one."""
    number = 0
    for opcode in OPCODES:
        for v6 in (False, True):
            sizes = PAYLOADS if opcode in (0x04, 0x0B) else (64,)
            for payload_bytes in sizes if opcode < ACKNOWLEDGE else (0,):
                yield vector(number, opcode, v6, payload_bytes)
                number += 1


if __name__ == "__main__":
    print("[")
    print(",\n".join(json.dumps(said) for said in vectors()))
    print("]")

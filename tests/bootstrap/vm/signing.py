"""Keys that sign packages, as OpenPGP has them (RFC 9580: packets of version 4, RSA, SHA-256)."""

from __future__ import annotations

import base64
import hashlib
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_USER = b"packages of a test"
_OF_A_DOCUMENT, _OF_A_KEY = 0x00, 0x13


class SigningKey:
    """A key of its own making."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        self._made = int(time.time()).to_bytes(4, "big")
        self._body = b"\x04" + self._made + b"\x01" + _number(numbers.n) + _number(numbers.e)
        self._fingerprint = hashlib.sha1(self._framed()).digest()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint.hex().upper()

    def armored(self) -> str:
        """The public key, as a repository publishes it."""
        user = b"\xb4" + len(_USER).to_bytes(4, "big") + _USER
        packets = _packet(6, self._body) + _packet(13, _USER) + self._signature(_OF_A_KEY, self._framed() + user)
        return _armored("PUBLIC KEY BLOCK", packets)

    def detached_signature(self, document: bytes) -> bytes:
        return _armored("SIGNATURE", self._signature(_OF_A_DOCUMENT, document)).encode()

    def _framed(self) -> bytes:
        return b"\x99" + len(self._body).to_bytes(2, "big") + self._body

    def _signature(self, kind: int, signed: bytes) -> bytes:
        issuer = b"\x16\x21\x04" + self._fingerprint
        hashed = b"\x05\x02" + self._made + issuer
        head = bytes([4, kind, 1, 8]) + len(hashed).to_bytes(2, "big") + hashed
        whole = signed + head + b"\x04\xff" + len(head).to_bytes(4, "big")
        made = self._key.sign(whole, padding.PKCS1v15(), hashes.SHA256())
        unhashed = b"\x09\x10" + self._fingerprint[-8:]
        rest = len(unhashed).to_bytes(2, "big") + unhashed + hashlib.sha256(whole).digest()[:2]
        return _packet(2, head + rest + _number(int.from_bytes(made, "big")))


def _packet(tag: int, body: bytes) -> bytes:
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


def _number(value: int) -> bytes:
    return value.bit_length().to_bytes(2, "big") + value.to_bytes((value.bit_length() + 7) // 8, "big")


def _armored(kind: str, packets: bytes) -> str:
    text, checksum = base64.encodebytes(packets).decode(), base64.b64encode(_crc24(packets)).decode()
    return f"-----BEGIN PGP {kind}-----\n\n{text}={checksum}\n-----END PGP {kind}-----\n"


def _crc24(data: bytes) -> bytes:
    """Optional since RFC 9580, but GnuPG 2 wants it."""
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc = crc << 1 ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc.to_bytes(3, "big")

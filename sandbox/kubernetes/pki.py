"""Keys and certificates of one control plane, kept in a folder so that a restart uses the same ones."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import shutil
import ssl
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class KeyPair:
    """Where a PEM certificate and its private key lie."""

    certificate: Path
    key: Path

    def certificate_base64(self) -> str:
        return base64.b64encode(self.certificate.read_bytes()).decode()

    def key_base64(self) -> str:
        return base64.b64encode(self.key.read_bytes()).decode()


class CertificateAuthority:
    """A private CA in `folder`; creates what is missing, returns what is there."""

    def __init__(self, folder: Path, name: str = "sandbox-ca") -> None:
        self._folder = folder
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.pair = KeyPair(folder / "ca.crt", folder / "ca.key")
        if not self.pair.certificate.exists():
            self._write_ca(name)
        self._certificate = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        self._key = _load_key(self.pair.key)

    def issue(self, name: str, subject_alternative_names: Sequence[str], *, user: str = "", group: str = "") -> KeyPair:
        """A certificate for server and client use, in `<folder>/<name>/tls.{crt,key}`. Names may be IP addresses.

        To Kubernetes its bearer is `user`, which is `name` where none is given, in `group`.
        """
        folder = self._folder / name
        pair = KeyPair(folder / "tls.crt", folder / "tls.key")
        with self._lock:  # hosts that start at the same time ask for the same certificate
            if not pair.certificate.exists():
                self._issue(pair, user or name, group, subject_alternative_names)
        return pair

    def _issue(self, pair: KeyPair, user: str, group: str, subject_alternative_names: Sequence[str]) -> None:
        pair.key.parent.mkdir(mode=0o700, exist_ok=True)
        key = _new_key()
        builder = (
            _builder(user, self._certificate.subject, key, group)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
        )
        if subject_alternative_names:
            names = x509.SubjectAlternativeName([_general_name(each) for each in subject_alternative_names])
            builder = builder.add_extension(names, critical=False)
        _write_key(pair.key, key)
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def share(self, folder: Path) -> None:
        """Let a CertificateAuthority in `folder` be this same one."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.pair.certificate, self.pair.key):
            shutil.copy(path, folder / path.name)

    def signing_key(self, name: str) -> KeyPair:
        """A bare key pair without a certificate (service account tokens): `certificate` holds the public key."""
        pair = KeyPair(self._folder / f"{name}.pub", self._folder / f"{name}.key")
        if not pair.certificate.exists():
            key = _new_key()
            _write_key(pair.key, key)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            pair.certificate.write_bytes(public)
        return pair

    def _write_ca(self, name: str) -> None:
        key = _new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(name, subject, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        _write_key(self.pair.key, key)
        certificate = builder.sign(key, hashes.SHA256())
        self.pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def passing_identity(names: Sequence[str]) -> tuple[ssl.SSLContext, str]:
    """TLS for a server of these names, and the PEM certificate of the CA that only this server knows.

    Nothing of it is in a file when this returns.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as scratch:
        authority = CertificateAuthority(Path(scratch), "sandbox-passing-ca")
        pair = authority.issue("server", names)
        tls.load_cert_chain(pair.certificate, pair.key)
        return tls, authority.pair.certificate.read_text()


def _builder(name: str, issuer: x509.Name, key: rsa.RSAPrivateKey, group: str = "") -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    organization = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([*organization, x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _load_key(path: Path) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def _write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )

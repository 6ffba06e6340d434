"""A throw-away certificate authority for the servers that tests start."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, folder: Path) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = builder.add_extension(usage, True).sign(key, hashes.SHA256())
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, certificate, key)

    @property
    def file(self) -> Path:
        return self.folder / "ca.crt"

    def issue(
        self, user: str, groups: tuple[str, ...] = (), addresses: tuple[str, ...] = ("127.0.0.1",)
    ) -> Pair:
        """A certificate for a server, on loopback unless said, as good for a client called `user`."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
        )
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(subject, self.certificate.subject, key)
        builder = builder.add_extension(names, False).add_extension(usages, False)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = builder.add_extension(authority_key, False).sign(self.key, hashes.SHA256())
        pair = Pair(self.folder / f"{user}.crt", self.folder / f"{user}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(private_pem(key))
        return pair


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )

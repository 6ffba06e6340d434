"""The certificate authority of a data folder, and the certificate that the server shows.

Made at first start and kept, so that a kubeconfig stays valid; the server's certificate is made anew at each
start, for the addresses that it then listens on. Keys are readable by their owner alone.
"""

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)
Key = ec.EllipticCurvePrivateKey


def server_context(folder: Path, hosts: Iterable[str]) -> ssl.SSLContext:
    """A TLS context for these hosts; the authority is in `ca.crt` and `ca.key` of the folder."""
    authority, authority_key = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = _builder("subnetes-apiserver", authority.subject, key).add_extension(
        alternatives, critical=False
    )
    certificate = builder.add_extension(usage, critical=False).sign(authority_key, hashes.SHA256())
    write_private(folder / "server.key", _pem(key))
    (folder / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read; it appears whole or not at all, whenever we are killed."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(scratch).replace(path)


def _authority(folder: Path) -> tuple[x509.Certificate, Key]:
    certificate_file, key_file = folder / "ca.crt", folder / "ca.key"
    if certificate_file.exists() and key_file.exists():
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        assert isinstance(loaded, Key)
        return x509.load_pem_x509_certificate(certificate_file.read_bytes()), loaded
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "subnetes-ca")])
    constraint = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder("subnetes-ca", name, key).add_extension(constraint, critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    write_private(key_file, _pem(key))
    write_private(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def _builder(common_name: str, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: Key) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)

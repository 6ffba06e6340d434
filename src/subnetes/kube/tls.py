"""TLS contexts from certificates in memory or in files."""

import ssl
import tempfile
from pathlib import Path

from subnetes.kube.credentials import ClientCertificate, Pem, Tls


def tls_context(tls: Tls, client: ClientCertificate | None) -> ssl.SSLContext:
    authority = _bytes(tls.authority) if tls.authority else None
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # Python 3.13 began to refuse authorities without a key identifier, which many clusters have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client:
        _present(context, client)
    return context


def _present(context: ssl.SSLContext, client: ClientCertificate) -> None:
    """OpenSSL takes a key only from a file, so one in memory is a private file for a moment."""
    with tempfile.TemporaryDirectory(prefix="subnetes-tls-") as private:
        pair = Path(private) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(_bytes(client.certificate) + b"\n" + _bytes(client.key))
        context.load_cert_chain(pair)


def _bytes(pem: Pem) -> bytes:
    return pem.read_bytes() if isinstance(pem, Path) else pem

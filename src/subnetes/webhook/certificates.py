"""Our own certificate authority, and what of it is due at a given time. Time is an argument.

A new authority is made when two thirds of the last one's life are over. It is trusted (in the bundle) at once
and signs only after the overlap, and only if the CRD shows it, so that every API server trusts both by then:

    old authority   ├──────────── signs ────────────┤─ trusted ─ expires ─┤
    new authority                         ├ overlap ┤──────────── signs ────────────┤─ …
                                          trusted ────────────────────────────────────── …

The old one's key is forgotten when the new one signs. Its certificate stays in the bundle while it is valid,
and no certificate outlives the authority that signed it: whatever a replica still shows is trusted. What has
expired goes when the next authority comes, for each change of the bundle has API servers begin all watches of
the kind anew: one a rotation is enough.

A certificate is valid from the beginning of its authority on, lest one that is made by a clock ahead of the
others is not valid yet; when it was made, its subject says.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from subnetes.webhook.hosts import normal

BACKDATED = timedelta(minutes=5)  # for clocks that are behind ours
BUNDLE = "ca.crt"  # its name in the Secret
_STAMP = "%Y%m%d%H%M%S"
_PEM_BLOCK = re.compile(rb"-----BEGIN [^-]+-----[^-]+-----END [^-]+-----\n?")


class Unreadable(ValueError):
    """What is kept is not what we write; the text says why."""


@dataclass(frozen=True)
class Plan:
    """How long each lives, and how long a new authority is only trusted."""

    authority: timedelta = timedelta(days=365)
    leaf: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.overlap < timedelta(0) or self.leaf <= timedelta(0):
            raise ValueError("a certificate lives longer than 0 s, and an overlap is no less than 0 s")
        if self.authority / 3 < self.leaf + self.overlap:
            raise ValueError(
                "a third of the authority's life must be enough for the overlap and a certificate's life"
            )


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM. An authority's key is empty once it is forgotten."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Holdings:
    """All that replicas share: the authorities, the oldest first, and the certificate in use."""

    authorities: tuple[Pair, ...] = ()
    leaf: Pair | None = None

    @property
    def bundle(self) -> bytes:
        return b"".join(each.certificate for each in self.authorities)


def renewed(
    holdings: Holdings, now: datetime, plan: Plan, hosts: Collection[str], published: bytes | None
) -> Holdings:
    """What should be held now: the same, unless something is due.

    `published` is the bundle that the CRD shows at present; None if no CRD asks us for conversions. If the
    authorities are lost, those that it shows stay trusted: other replicas may show what they signed.
    """
    held = holdings.authorities or tuple(Pair(_pem(each), b"") for each in _legible(published or b""))
    authorities = _authorities(held, now, plan)
    leaf = holdings.leaf
    if leaf is None or _is_due(leaf, authorities, now, hosts):
        signer = _signer(authorities, now, plan, published)
        leaf = make_leaf(signer, {*hosts, *_others_hosts(leaf, now)}, now, plan.leaf)
        authorities = _forgetting(authorities, signer)
    return Holdings(authorities, leaf)


def next_look(holdings: Holdings) -> datetime:
    """When something will be due, if nobody changes anything."""
    newest = x509.load_pem_x509_certificate(holdings.authorities[-1].certificate)
    if holdings.leaf is None:
        return _two_thirds(newest)
    return min(_two_thirds(newest), _two_thirds(x509.load_pem_x509_certificate(holdings.leaf.certificate)))


def signed_by(leaf: bytes, bundle: bytes) -> bool:
    """Whether some authority of the bundle signed it; what cannot be read of it is nothing."""
    certificate = x509.load_pem_x509_certificate(leaf)
    return any(_has_signed(each, certificate) for each in _legible(bundle))


def joined(published: bytes, ours: bytes, chain: bytes, now: datetime) -> bytes:
    """The bundle with our authorities in it as well; the same, if they are.

    Nobody's authority is taken out of it before it has expired, and even then only if there is something to
    add: so replicas with different authorities come to an end. Unreadable if `ours` does not lead to `chain`,
    our certificate and those between.
    """
    try:
        added = [each for each in x509.load_pem_x509_certificates(ours) if each.not_valid_after_utc > now]
        if not _leads_to(added, x509.load_pem_x509_certificates(chain)):
            raise Unreadable("no valid certificate in it has signed ours")
    except ValueError as problem:
        raise Unreadable(f"the authority's file: {problem}") from problem
    there = _legible(published)
    if set(added) <= set(there):
        return published
    valid = [each for each in there if each.not_valid_after_utc > now]
    return b"".join(map(_pem, dict.fromkeys([*valid, *added])))


def expiry_of(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def kept(holdings: Holdings) -> dict[str, bytes]:
    """The holdings as a Secret's data; BUNDLE is whom to trust."""
    leaf = holdings.leaf or Pair(b"", b"")
    return {
        BUNDLE: holdings.bundle,
        "ca.key": b"".join(each.key for each in holdings.authorities),
        "tls.crt": leaf.certificate,
        "tls.key": leaf.key,
    }


def read(data: Mapping[str, bytes]) -> Holdings:
    """The holdings that a Secret's data says; Unreadable if they are not ours."""
    try:
        keys = {_public(_key(block)): block for block in _PEM_BLOCK.findall(data["ca.key"])}
        authorities = tuple(
            Pair(_pem(each), keys.get(_public(each), b"")) for each in _certificates(data[BUNDLE])
        )
        if not authorities:
            raise Unreadable(f"{BUNDLE} is empty")
        leaf = Pair(data["tls.crt"], data["tls.key"])
        certificate = x509.load_pem_x509_certificate(leaf.certificate)
        _alternatives(_hosts(certificate))
        if _public(_key(leaf.key)) != _public(certificate):
            raise Unreadable("tls.key is not the key of tls.crt")
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound) as problem:
        raise Unreadable(f"{type(problem).__name__}: {problem}") from problem
    return Holdings(authorities, leaf)


def make_authority(now: datetime, lifetime: timedelta) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"subnetes-webhook-ca {now:{_STAMP}}")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(subject, subject, key, now - BACKDATED, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def make_leaf(authority: Pair, hosts: Iterable[str], now: datetime, lifetime: timedelta) -> Pair:
    """For these hosts, and at most for as long as the authority has."""
    issuer, issuer_key = x509.load_pem_x509_certificate(authority.certificate), _key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"subnetes-webhook {now:{_STAMP}}")])
    until = min(now + lifetime, issuer.not_valid_after_utc)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(subject, issuer.subject, key, issuer.not_valid_before_utc, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
    )
    return Pair(_pem(builder.sign(issuer_key, hashes.SHA256())), _key_pem(key))


def _authorities(held: tuple[Pair, ...], now: datetime, plan: Plan) -> tuple[Pair, ...]:
    valid = tuple(each for each in held if expiry_of(each.certificate) > now)
    if valid and valid[-1].key and now < _two_thirds(x509.load_pem_x509_certificate(valid[-1].certificate)):
        return held
    return (*valid, make_authority(now, plan.authority))


def _signer(authorities: tuple[Pair, ...], now: datetime, plan: Plan, published: bytes | None) -> Pair:
    able = [each for each in authorities if each.key and expiry_of(each.certificate) > now]
    trusted = [
        each
        for each in able
        if _made(x509.load_pem_x509_certificate(each.certificate)) + plan.overlap <= now
        and (published is None or each.certificate in map(_pem, _legible(published)))
    ]
    return trusted[-1] if trusted else able[0]


def _is_due(leaf: Pair, authorities: tuple[Pair, ...], now: datetime, hosts: Collection[str]) -> bool:
    certificate = x509.load_pem_x509_certificate(leaf.certificate)
    if not set(_alternatives(hosts)) <= set(_alternatives(_hosts(certificate))):
        return True
    issuers = (x509.load_pem_x509_certificate(each.certificate) for each in authorities)
    return now >= _two_thirds(certificate) or not any(_has_signed(each, certificate) for each in issuers)


def _others_hosts(leaf: Pair | None, now: datetime) -> list[str]:
    """What other replicas had certified; a renewal drops it, and who still wants it adds it again."""
    if leaf is None:
        return []
    certificate = x509.load_pem_x509_certificate(leaf.certificate)
    return _hosts(certificate) if now < _two_thirds(certificate) else []


def _forgetting(authorities: tuple[Pair, ...], signer: Pair) -> tuple[Pair, ...]:
    """The keys of those before the signer: they will not sign again."""
    place = authorities.index(signer)
    return tuple(replace(each, key=b"") for each in authorities[:place]) + authorities[place:]


def _has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _leads_to(authorities: list[x509.Certificate], chain: list[x509.Certificate]) -> bool:
    """Whether they have signed the chain's first certificate, through others of it where need be."""
    certificate, *between = chain
    if certificate in authorities or any(_has_signed(each, certificate) for each in authorities):
        return True
    return any(
        _has_signed(each, certificate) and _leads_to(authorities, between[number:])
        for number, each in enumerate(between)
    )


def _made(certificate: x509.Certificate) -> datetime:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    stamp = "".join(str(each.value) for each in names).rpartition(" ")[2]
    try:
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:  # an older one of ours
        return certificate.not_valid_before_utc + BACKDATED


def _two_thirds(certificate: x509.Certificate) -> datetime:
    made = _made(certificate)
    return made + (certificate.not_valid_after_utc - made) * 2 / 3


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _alternatives(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [_alternative(each) for each in sorted(set(map(normal, hosts)))]


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle) if bundle.strip() else []


def _legible(bundle: bytes) -> list[x509.Certificate]:
    """Those that can be read, of a bundle that others may have written."""
    found = []
    for block in _PEM_BLOCK.findall(bundle):
        try:
            certificate = x509.load_pem_x509_certificate(block)
            _public(certificate)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        found.append(certificate)
    return found


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Unreadable("a key is not an elliptic curve's")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public(key: ec.EllipticCurvePrivateKey | x509.Certificate) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )

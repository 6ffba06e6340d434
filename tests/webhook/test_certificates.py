"""What of our certificates is due, at times that the test chooses."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from subnetes.webhook.certificates import (
    Holdings,
    Pair,
    Plan,
    Unreadable,
    expiry_of,
    joined,
    kept,
    make_authority,
    make_leaf,
    next_look,
    read,
    renewed,
    signed_by,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = Plan()
HOSTS = ["subnetes-webhook.kube-system.svc", "127.0.0.1"]
DAY = timedelta(days=1)
GARBAGE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def first() -> Holdings:
    return renewed(Holdings(), BEGIN, PLAN, HOSTS, None)


def step(held: Holdings, now: datetime, published: bytes | None = b"the same") -> Holdings:
    """With the CRD's bundle as held, unless said."""
    return renewed(held, now, PLAN, HOSTS, held.bundle if published == b"the same" else published)


def signer(held: Holdings) -> int:
    """Which authority signed what is in use."""
    assert held.leaf is not None
    (found,) = [
        number
        for number, each in enumerate(held.authorities)
        if signed_by(held.leaf.certificate, each.certificate)
    ]
    return found


def test_the_first_look_makes_an_authority_and_a_certificate() -> None:
    held = first()
    assert held.leaf is not None
    assert len(held.authorities) == 1
    assert signer(held) == 0
    assert expiry_of(held.leaf.certificate) == BEGIN + PLAN.leaf
    names = x509.load_pem_x509_certificate(held.leaf.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert {str(each.value) for each in names.value} == set(HOSTS)


def test_nothing_is_due_before_two_thirds_of_a_life() -> None:
    held = first()
    due = BEGIN + PLAN.leaf * 2 / 3
    assert next_look(held) == due
    assert step(held, due - timedelta(seconds=1)) == held
    later = step(held, due)
    assert later.leaf != held.leaf
    assert later.authorities == held.authorities


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_after_it_signed() -> None:
    """The whole life of two authorities, a look a day."""
    held, now = first(), BEGIN
    made = signs = gone = None
    bundles = {held.bundle}
    before = held
    while gone is None:
        now += DAY
        held = step(held, now)
        assert held.leaf is not None
        assert expiry_of(held.leaf.certificate) > now
        if len(held.authorities) > len(before.authorities):
            made = now
            assert held.leaf == before.leaf or signer(held) == 0
        if made and not signs and signer(held) == 1:
            signs = now
            assert held.authorities[0].key == b""
        if signs and held.authorities[0] == before.authorities[-1]:
            gone = now
        bundles.add(held.bundle)
        assert before.leaf is not None
        assert signed_by(before.leaf.certificate, held.bundle), "what another replica may still show"
        before = held
    assert made is not None
    assert signs is not None
    assert made - BEGIN >= PLAN.authority * 2 / 3
    assert signs - made >= PLAN.overlap
    assert gone - BEGIN >= PLAN.authority
    assert len(bundles) == 3, "the CRD is written once a rotation"


def test_an_authority_that_the_crd_does_not_show_does_not_sign() -> None:
    held = first()
    unpublished = held.bundle
    now = BEGIN + PLAN.authority * 2 / 3
    held = step(held, now, unpublished)
    assert len(held.authorities) == 2
    later = step(held, now + PLAN.leaf * 2 / 3 + DAY, unpublished)
    assert later.leaf != held.leaf
    assert signer(later) == 0
    assert signer(step(held, now + PLAN.leaf * 2 / 3 + DAY)) == 1


def test_an_authority_signs_only_after_the_overlap() -> None:
    old, new = make_authority(BEGIN, PLAN.authority), make_authority(BEGIN + 250 * DAY, PLAN.authority)
    held = Holdings((old, new), make_leaf(old, HOSTS, BEGIN + 180 * DAY, PLAN.leaf))
    early = step(held, BEGIN + 250 * DAY + PLAN.overlap - timedelta(seconds=1))
    assert early.leaf != held.leaf
    assert signer(early) == 0
    assert early.authorities == (old, new), "the old one may have to sign again"
    late = step(held, BEGIN + 250 * DAY + PLAN.overlap)
    assert signer(late) == 1
    assert late.authorities == (Pair(old.certificate, b""), new)


def test_no_certificate_outlives_its_authority() -> None:
    authority = make_authority(BEGIN, timedelta(days=10))
    leaf = make_leaf(authority, HOSTS, BEGIN + DAY, timedelta(days=90))
    assert expiry_of(leaf.certificate) == BEGIN + timedelta(days=10)


def test_an_expired_authority_does_not_sign_and_has_nothing_done_in_haste() -> None:
    held = step(first(), BEGIN + 244 * DAY, b"")
    stuck = step(held, BEGIN + 400 * DAY, b"")  # the CRD never came to show the new one
    assert signer(stuck) == 1
    assert len(stuck.authorities) == 2
    assert next_look(stuck) > BEGIN + 400 * DAY


def test_after_a_year_in_the_drawer_all_is_made_anew() -> None:
    held = step(first(), BEGIN + timedelta(days=1000))
    assert len(held.authorities) == 1
    assert signer(held) == 0


def test_another_name_is_certified_at_once() -> None:
    held = first()
    more = renewed(held, BEGIN, PLAN, [*HOSTS, "elsewhere"], held.bundle)
    assert more.leaf != held.leaf
    assert renewed(more, BEGIN, PLAN, HOSTS, held.bundle) == more


def names_of(held: Holdings) -> set[str]:
    assert held.leaf is not None
    certificate = x509.load_pem_x509_certificate(held.leaf.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(each.value) for each in names.value}


def test_replicas_with_different_hosts_come_to_an_end() -> None:
    """Each adds its own, at the beginning and at every renewal; what nobody wants any more is dropped."""
    ours, theirs = ["a.svc"], ["b.svc", "::2"]
    held = renewed(Holdings(), BEGIN, PLAN, ["old.svc"], None)
    for now, more in ((BEGIN + DAY, {"old.svc"}), (BEGIN + 70 * DAY, set())):
        held = renewed(held, now, PLAN, ours, held.bundle)
        both = renewed(held, now, PLAN, theirs, held.bundle)
        assert names_of(both) == {*ours, *theirs, *more}
        held = both
        for hosts in (ours, theirs, ours):
            assert renewed(held, now + DAY, PLAN, hosts, held.bundle) == held


def test_names_are_compared_as_the_network_does() -> None:
    held = renewed(Holdings(), BEGIN, PLAN, ["Web.Example.COM", "FD00:0::1"], None)
    assert names_of(held) == {"web.example.com", "fd00::1"}
    assert renewed(held, BEGIN, PLAN, ["web.example.com", "fd00::1"], held.bundle) == held


def test_what_the_crd_shows_stays_trusted_when_the_secret_is_lost() -> None:
    lost = first()
    assert lost.leaf is not None
    expired = make_authority(BEGIN - 2 * DAY, DAY).certificate
    anew = renewed(Holdings(), BEGIN + DAY, PLAN, HOSTS, expired + lost.bundle + GARBAGE)
    assert signed_by(lost.leaf.certificate, anew.bundle)
    assert expired not in anew.bundle
    assert [bool(each.key) for each in anew.authorities] == [False, True]
    assert signer(anew) == 1
    assert read(kept(anew)) == anew
    assert step(anew, BEGIN + 2 * DAY) == anew


def test_a_stranger_in_the_bundle_is_not_ours_while_the_secret_is_there() -> None:
    held, stranger = first(), make_authority(BEGIN, DAY)
    assert step(held, BEGIN, held.bundle + stranger.certificate) == held


@pytest.mark.parametrize("junk", [b"junk", GARBAGE, GARBAGE[:30], b"-----BEGIN nonsense\n", b"\xff\xfe"])
def test_what_cannot_be_read_of_a_published_bundle_is_nothing(junk: bytes) -> None:
    held = first()
    assert held.leaf is not None
    assert signed_by(held.leaf.certificate, junk + held.bundle + junk)
    assert not signed_by(held.leaf.certificate, junk)
    assert step(held, BEGIN + 61 * DAY, junk).leaf != held.leaf


def test_a_clock_that_is_ahead_makes_a_certificate_that_is_valid_already() -> None:
    held = first()
    ahead = step(held, BEGIN + 61 * DAY)
    assert ahead.leaf is not None
    certificate = x509.load_pem_x509_certificate(ahead.leaf.certificate)
    authority = x509.load_pem_x509_certificate(held.authorities[0].certificate)
    assert certificate.not_valid_before_utc == authority.not_valid_before_utc
    assert next_look(ahead) == BEGIN + 61 * DAY + PLAN.leaf * 2 / 3, "of its life, not its authority's"


def test_bundles_of_files_are_joined() -> None:
    ours, theirs = make_authority(BEGIN, 10 * DAY), make_authority(BEGIN, 20 * DAY)
    chain = make_leaf(ours, HOSTS, BEGIN, DAY).certificate
    assert joined(b"", ours.certificate, chain, BEGIN) == ours.certificate
    both = joined(theirs.certificate + GARBAGE, ours.certificate, chain, BEGIN)
    assert both == theirs.certificate + ours.certificate
    assert joined(both, ours.certificate, chain, BEGIN) == both
    their_chain = make_leaf(theirs, HOSTS, BEGIN, DAY).certificate
    late = BEGIN + 11 * DAY
    assert joined(both, theirs.certificate, their_chain, late) == both, "no change for what expired alone"
    third = make_authority(late, DAY)
    chain = make_leaf(third, HOSTS, late, DAY).certificate
    assert joined(both, third.certificate, chain, late) == theirs.certificate + third.certificate


def test_an_authority_may_sign_through_another() -> None:
    """With a chain as an issuer gives it: ours, then whoever signed it."""
    root, between = make_authority(BEGIN, 10 * DAY), make_authority(BEGIN, 9 * DAY)
    leaf = make_leaf(between, HOSTS, BEGIN, DAY).certificate
    crossed = _signed(root, between)
    assert joined(b"", root.certificate, leaf + crossed, BEGIN) == root.certificate
    assert joined(b"", leaf, leaf, BEGIN) == leaf, "a certificate that is trusted itself"
    for chain in (leaf, leaf + between.certificate, make_leaf(between, HOSTS, BEGIN, DAY).certificate + leaf):
        with pytest.raises(Unreadable, match="has signed ours"):
            joined(b"", root.certificate, chain, BEGIN)


def _signed(root: Pair, authority: Pair) -> bytes:
    """The authority's certificate, as the root would have made it."""
    key = serialization.load_pem_private_key(root.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    own = x509.load_pem_x509_certificate(authority.certificate)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own.subject)
        .issuer_name(x509.load_pem_x509_certificate(root.certificate).subject)
        .public_key(own.public_key())
        .serial_number(own.serial_number)
        .not_valid_before(own.not_valid_before_utc)
        .not_valid_after(own.not_valid_after_utc)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def bad_files() -> list[bytes]:
    good = make_authority(BEGIN, DAY).certificate
    return [b"", b"\n", good[:100], good + GARBAGE, good, b"junk"]


@pytest.mark.parametrize("bad", bad_files())
def test_a_file_that_is_not_our_authority_is_not_published(bad: bytes) -> None:
    ours = make_authority(BEGIN, 10 * DAY)
    chain = make_leaf(ours, HOSTS, BEGIN, DAY).certificate
    with pytest.raises(Unreadable, match="the authority's file"):
        joined(b"", bad, chain, BEGIN)


def test_an_authority_that_has_expired_is_not_published() -> None:
    ours = make_authority(BEGIN, 10 * DAY)
    with pytest.raises(Unreadable, match="has signed ours"):
        joined(b"", ours.certificate, make_leaf(ours, HOSTS, BEGIN, DAY).certificate, BEGIN + 11 * DAY)


def test_a_certificate_of_a_lost_authority_is_replaced() -> None:
    held, other = first(), first()
    assert renewed(Holdings(held.authorities, other.leaf), BEGIN, PLAN, HOSTS, None).leaf != other.leaf


def test_what_is_kept_is_read_again() -> None:
    held = first()
    assert read(kept(held)) == held
    rotated = step(step(held, BEGIN + timedelta(days=244)), BEGIN + timedelta(days=310))
    assert [bool(each.key) for each in rotated.authorities] == [False, True]
    assert read(kept(rotated)) == rotated
    assert kept(held)["ca.crt"] == held.bundle


def spoilt() -> list[dict[str, bytes]]:
    good, other = kept(first()), kept(first())
    foreign = make_authority(BEGIN, DAY)
    return [
        {},
        good | {"tls.crt": b"x"},
        good | {"tls.key": other["tls.key"]},
        good | {"ca.crt": b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"},
        good | {"ca.key": b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"},
        good | {"tls.crt": foreign.certificate, "tls.key": foreign.key},
        dict.fromkeys(good, b""),
        good | {"ca.crt": b""},
    ]


@pytest.mark.parametrize("data", spoilt())
def test_what_was_spoilt_is_unreadable(data: dict[str, bytes]) -> None:
    with pytest.raises(Unreadable):
        read(data)


@pytest.mark.parametrize(
    "lives",
    [(timedelta(days=90), timedelta(days=90), DAY), (DAY, timedelta(0), DAY / 4), (DAY, DAY / 4, -DAY)],
)
def test_lives_that_cannot_work_are_refused(lives: tuple[timedelta, timedelta, timedelta]) -> None:
    with pytest.raises(ValueError, match=r"life|lives"):
        Plan(*lives)


def test_openssl_accepts_them_at_its_strictest() -> None:
    now = datetime.now(UTC)
    held = renewed(Holdings(), now, PLAN, HOSTS, None)
    assert held.leaf is not None
    store = ssl.create_default_context(cadata=held.bundle.decode())
    store.verify_flags |= ssl.VERIFY_X509_STRICT
    assert _handshake(store, held.leaf) is None
    stranger = renewed(Holdings(), now, PLAN, HOSTS, None)
    assert "certificate verify failed" in str(
        _handshake(ssl.create_default_context(cadata=stranger.bundle.decode()), held.leaf)
    )


def _handshake(client_side: ssl.SSLContext, leaf: Pair) -> ssl.SSLError | None:
    """Both sides in memory; what the client has against it."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(leaf.certificate + leaf.key)
        pair.flush()
        server_side.load_cert_chain(pair.name)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server, server_hostname=HOSTS[0])
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as problem:
                return problem
    return None

"""What of our certificates is due, at times that the test chooses."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from subnetes.webhook.certificates import (
    Holdings,
    Pair,
    Plan,
    Unreadable,
    expiry_of,
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

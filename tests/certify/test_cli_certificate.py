"""`muster certificate` as a user meets it: export, show, verify; with keys, through sigstore, and tampered with."""

from __future__ import annotations

import base64
import io
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.cli import certificate as verb
from muster.cli import certificate_files
from muster.cli.group import run
from muster.kube.api import CERTIFICATION_PARTS, CERTIFICATIONS, CRDS, NODE_HEALTHS
from muster.resources import crd
from muster.resources.base import to_object
from muster.resources.certification import Certification, CertificationPart
from muster.resources.fingerprint import fingerprint
from muster.resources.node_health import NodeHealth, Standing
from tests.bundle.own_sigstore import OwnSigstore
from tests.bundle.test_signing import token
from tests.certify.attestation_samples import (
    ISSUED,
    NODE,
    NOW,
    OTHER,
    READINGS,
    Certified,
    certified,
    health,
    with_certificate,
)
from tests.contract.server import Server, eventually, simulated
from tests.live.cluster import create
from tests.signing.test_keys import private_pem, public_pem

WHO, ISSUER = "release@example.com", "https://issuer.example.com"
SAMPLE = certified()
ED, EC = ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())


class At:
    """A clock that stands."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "clock_from_environment", lambda: At(NOW))


def whole(model: NodeHealth | Certification | CertificationPart) -> dict[str, Any]:
    """The object as a server has it, with the kind that models leave out."""
    return {"apiVersion": model.api_version, "kind": model.kind, **to_object(model)}


def save(path: Path, *objects: Any) -> Path:
    """A List, as kubectl prints it."""
    path.write_text(json.dumps({"kind": "List", "items": [whole(o) for o in objects]}))
    return path


def saved(path: Path, sample: Certified) -> Path:
    return save(path, sample.health, sample.certification, *sample.parts)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder with what `kubectl get` saves and with keys."""
    saved(tmp_path / "saved.json", SAMPLE)
    (tmp_path / "key.pem").write_bytes(private_pem(ED))
    (tmp_path / "pub.pem").write_bytes(public_pem(ED))
    (tmp_path / "ec.pem").write_bytes(private_pem(EC, BestAvailableEncryption(b"secret")))
    (tmp_path / "ecpub.pem").write_bytes(public_pem(EC))
    return tmp_path


def export(there: Path, *more: str, node: str = NODE, file: str = "saved.json") -> int:
    return run(["certificate", "export", node, "--file", str(there / file), "-o", str(there / "c.json"), *more])


def verify(there: Path, *more: str) -> int:
    return run(["certificate", "verify", str(there / "c.json"), *more])


def checks(out: str) -> dict[str, tuple[str, str]]:
    return {c["check"]: (c["result"], c["sentence"]) for c in json.loads(out)["checks"]}


Capture = pytest.CaptureFixture[str]


# With a key


def test_exported_signed_and_verified(there: Path, capsys: Capture) -> None:
    assert export(there, "--sign-key", str(there / "key.pem"), "--evidence") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "signed with the key" in said.err
    assert "4 documents of evidence" in said.err
    assert (
        verify(there, "--key", str(there / "pub.pem"), "--node", NODE, "--node-health", str(there / "saved.json"))
        == 0
    )
    out = capsys.readouterr().out
    assert out.endswith("c.json: what was checked holds for gpu-0001.\n")
    assert "not checked" not in out
    names = sorted(p.name for p in there.iterdir() if p.name.startswith((".", "c.json")))
    assert names == ["c.json", "c.json.evidence"]


def test_what_was_not_checked_is_said(there: Path, capsys: Capture) -> None:
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    assert verify(there, "--key", str(there / "pub.pem"), "-o", "json") == 0
    found = checks(capsys.readouterr().out)
    assert {k: v[0] for k, v in found.items()} == {
        "signature": "holds",
        "statement": "holds",
        "node": "not checked",
        "tests": "holds",
        "age": "holds",
        "evidence": "not checked",
        "standing": "not checked",
    }
    assert verify(there, "--key", str(there / "pub.pem")) == 0
    assert "NOT checked: node, evidence, standing." in capsys.readouterr().out


def test_an_encrypted_key(there: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    key = ["--sign-key", str(there / "ec.pem")]
    monkeypatch.delenv("MUSTER_KEY_PASSWORD", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert export(there, *key) == 2
    assert (
        "is encrypted; give its password with --key-password-file or MUSTER_KEY_PASSWORD." in capsys.readouterr().err
    )
    assert not (there / "c.json").exists()
    monkeypatch.setenv("MUSTER_KEY_PASSWORD", "wrong")
    assert export(there, *key) == 2
    monkeypatch.setenv("MUSTER_KEY_PASSWORD", "secret")
    assert export(there, *key) == 0
    (there / "password").write_text("secret\n")
    monkeypatch.setenv("MUSTER_KEY_PASSWORD", "wrong")
    assert export(there, *key, "--key-password-file", str(there / "password")) == 0
    assert verify(there, "--key", str(there / "ecpub.pem")) == 0


def test_a_password_is_asked_for_at_a_terminal(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("MUSTER_KEY_PASSWORD", raising=False)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(certificate_files.click, "prompt", lambda *_, **how: "secret" if how["hide_input"] else "")
    assert export(there, "--sign-key", str(there / "ec.pem")) == 0
    assert verify(there, "--key", str(there / "ecpub.pem")) == 0


def test_one_of_several_keys(there: Path, capsys: Capture) -> None:
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    assert verify(there, "--key", str(there / "ecpub.pem"), "--key", str(there / "pub.pem")) == 0
    capsys.readouterr()
    assert verify(there, "--key", str(there / "ecpub.pem"), "-o", "json") == 3
    said = capsys.readouterr()
    assert list(checks(said.out)) == ["signature"]
    assert "c.json does not hold: It was not signed with the given key, or was changed afterwards" in said.err


def test_the_key_id_in_the_file_proves_nothing(there: Path) -> None:
    """An envelope that names the reader's key and was signed by another one."""
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    envelope = json.loads((there / "c.json").read_bytes())
    good = envelope["signatures"][0]["keyid"]
    monkey = ed25519.Ed25519PrivateKey.generate()
    (there / "key.pem").write_bytes(private_pem(monkey))
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    envelope = json.loads((there / "c.json").read_bytes())
    envelope["signatures"][0]["keyid"] = good
    (there / "c.json").write_text(json.dumps(envelope))
    assert verify(there, "--key", str(there / "pub.pem")) == 3


def test_a_key_id_that_lies_is_refused_and_none_is_taken(there: Path) -> None:
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    envelope = json.loads((there / "c.json").read_bytes())
    for key_id, code in (("0" * 64, 3), ("", 0)):
        envelope["signatures"][0]["keyid"] = key_id
        (there / "c.json").write_text(json.dumps(envelope))
        assert verify(there, "--key", str(there / "pub.pem")) == code


# Tampering


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported file with its evidence, signed with the key beside it."""
    folder = tmp_path_factory.mktemp("exported")
    saved(folder / "saved.json", SAMPLE)
    (folder / "key.pem").write_bytes(private_pem(ED))
    (folder / "pub.pem").write_bytes(public_pem(ED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verb, "clock_from_environment", lambda: At(NOW))
        assert export(folder, "--sign-key", str(folder / "key.pem"), "--evidence") == 0
    return folder


def said_of(folder: Path, *more: str) -> tuple[int, str]:
    """(Exit code, stderr) of a verification."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = verify(folder, *more)
    return code, err.getvalue()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_of_the_file(exported: Path, position: int, bits: int) -> None:
    raw = bytearray((exported / "c.json").read_bytes())
    raw[position % (len(raw) - 1)] ^= bits  # the last byte is the end of the line
    other = exported / "other"
    other.mkdir(exist_ok=True)
    (other / "c.json").write_bytes(raw)
    code, err = said_of(other, "--key", str(exported / "pub.pem"))
    assert code in (2, 3)
    assert err.startswith("muster: ")
    assert err.count("\n") == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 255), st.sampled_from(["payload", "sig"]))
def test_a_changed_byte_of_payload_or_signature(exported: Path, position: int, bits: int, what: str) -> None:
    """Inside of the base64, so that the file is well-formed: only the signature can tell."""
    envelope = json.loads((exported / "c.json").read_bytes())
    at = envelope if what == "payload" else envelope["signatures"][0]
    raw = bytearray(base64.b64decode(at[what]))
    raw[position % len(raw)] ^= bits
    at[what] = base64.b64encode(raw).decode()
    other = exported / "other"
    other.mkdir(exist_ok=True)
    (other / "c.json").write_text(json.dumps(envelope))
    code, err = said_of(other, "--key", str(exported / "pub.pem"))
    assert code == 3
    assert "It was not signed with the given key, or was changed afterwards" in err


def test_what_was_exported_once_is_verified_for_good() -> None:
    """Files that the first version wrote, with a key that nobody has any more. They must never need to be made again:
    a statement of version 1 that has left a cluster cannot be changed."""
    folder = Path(__file__).with_name("exported_v1")
    assert said_of(folder, "--key", str(folder / "pub.pem"), "--node", "gpu-0000") == (0, "")


def test_changed_evidence(exported: Path, tmp_path: Path) -> None:
    key = ["--key", str(exported / "pub.pem")]
    assert said_of(exported, *key)[0] == 0
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    part = tmp_path / "c.json.evidence" / "certification-part-0.json"
    content = part.read_bytes()
    part.write_bytes(content.replace(b"PASS", b"WARN", 1))
    assert said_of(tmp_path, *key) == (
        3,
        f"muster: {tmp_path / 'c.json'} does not hold: The document certification-part-0.json was changed.\n",
    )
    part.write_bytes(content + b" ")
    assert "was changed" in said_of(tmp_path, *key)[1]
    part.unlink()
    assert "certification-part-0.json is missing" in said_of(tmp_path, *key)[1]
    part.write_bytes(content)
    (part.parent / "note").write_text("x")
    assert "note does not belong" in said_of(tmp_path, *key)[1]
    assert said_of(tmp_path, *key, "--evidence", str(exported / "c.json.evidence"))[0] == 0
    assert said_of(tmp_path, *key, "--evidence", str(tmp_path / "none"))[0] == 2


def test_signed_but_of_another_type(there: Path, exported: Path) -> None:
    from muster.signing import dsse
    from muster.signing.keys import SigningKey

    payload = base64.b64decode(json.loads((exported / "c.json").read_bytes())["payload"])
    key = SigningKey(ED)

    def write(kind: str, content: bytes) -> None:
        signature = dsse.Signature(key.public.key_id, key.sign(dsse.pae(kind, content)))
        (there / "c.json").write_bytes(dsse.encode(dsse.Envelope(kind, content, (signature,))))

    wanted = ["--key", str(there / "pub.pem")]
    write("application/vnd.in-toto+json", payload)
    assert said_of(there, *wanted)[0] == 0
    write("application/json", payload)
    assert "carries 'application/json', not an in-toto statement" in said_of(there, *wanted)[1]
    write("application/vnd.in-toto+json", payload.replace(b"node-certificate/v1", b"node-certificate/v2"))
    code, err = said_of(there, *wanted)
    assert (code, "states something else than a node's certificate" in err) == (2, True)
    envelope = json.loads((exported / "c.json").read_bytes())
    (there / "c.json").write_text(json.dumps({**envelope, "payloadType": "application/json"}))
    assert said_of(there, *wanted)[0] == 3  # the type is signed too


def test_more_evidence_than_is_taken(exported: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_files, "MAX_EVIDENCE_BYTES", 1000)
    code, err = said_of(exported, "--key", str(exported / "pub.pem"))
    assert (code, "The evidence in" in err) == (2, True)
    assert export(there) == 2
    assert not (there / "c.json").exists()


def test_a_sigstore_file_that_is_too_large(there: Path) -> None:
    (there / "c.json").write_text('{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}' + " " * 1024 * 1024)
    code, err = said_of(there, "--identity", WHO, "--issuer", ISSUER, "--trusted-root", "none")
    assert (code, "is larger than 1 MiB" in err) == (2, True)


# In force?


def test_a_statement_about_another_node(there: Path) -> None:
    assert export(there) == 0
    code, err = said_of(there, "--unsigned", "--node", OTHER)
    assert (code, "It is about gpu-0001, not about gpu-0002." in err) == (3, True)
    save(there / "nh.json", certified(OTHER).health)
    code, err = said_of(there, "--unsigned", "--node-health", str(there / "nh.json"))
    assert (code, "is about gpu-0002." in err) == (3, True)


def test_an_older_certificate_does_not_pass_for_the_node_as_it_is_now(there: Path) -> None:
    """The driver was updated, and the node certified again: the old file names what changed."""
    assert export(there) == 0
    new = (replace(READINGS[0], value="590.1"), *READINGS[1:])
    newer = replace(SAMPLE.certificate, fingerprint=fingerprint(new), issued_at=ISSUED + timedelta(hours=1))
    save(there / "nh.json", health(NODE, newer, new))
    code, err = said_of(there, "--unsigned", "--node-health", str(there / "nh.json"))
    assert code == 3
    assert "driver.version changed from 580.65.06 to 590.1" in err


def test_a_test_that_it_does_not_state(there: Path) -> None:
    assert export(there) == 0
    assert said_of(there, "--unsigned", "--test", "pair", "--test", "host")[0] == 0
    code, err = said_of(there, "--unsigned", "--test", "storage")
    assert (code, "It does not say that storage was passed." in err) == (3, True)


def test_a_revoked_certificate(there: Path) -> None:
    assert export(there) == 0
    void = replace(SAMPLE.certificate, standing=Standing.VOID, voided_because="XID 79 on GPU 3")
    save(there / "nh.json", with_certificate(SAMPLE.health, void))
    code, err = said_of(there, "--unsigned", "--node-health", str(there / "nh.json"))
    assert (code, "The certificate was revoked: XID 79 on GPU 3." in err) == (3, True)


def test_too_old(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert export(there) == 0
    assert said_of(there, "--unsigned", "--max-age", "1")[0] == 0
    monkeypatch.setattr(verb, "clock_from_environment", lambda: At(NOW + timedelta(seconds=1)))
    assert "more than 1 days ago" in said_of(there, "--unsigned", "--max-age", "1")[1]
    monkeypatch.setattr(verb, "clock_from_environment", lambda: At(ISSUED + timedelta(days=90)))
    code, err = said_of(there, "--unsigned")
    assert (code, "It expired at 2027-02-01 14:00 UTC." in err) == (3, True)


# Unsigned, and asked for in a wrong way


def test_unsigned_is_said_so(there: Path, capsys: Capture) -> None:
    assert export(there) == 0
    assert "NOT signed: anybody could have written it" in capsys.readouterr().err
    code, err = said_of(there)
    assert (code, "Say who must have signed it" in err) == (2, True)
    assert said_of(there, "--unsigned")[0] == 0
    code, err = said_of(there, "--key", str(there / "pub.pem"))
    assert (code, "It is not signed" in err) == (3, True)


def test_a_signed_file_taken_unsigned(there: Path, capsys: Capture) -> None:
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    assert verify(there, "--unsigned", "-o", "json") == 0
    assert checks(capsys.readouterr().out)["signature"][0] == "not checked"


def test_to_the_terminal(there: Path, capsys: Capture) -> None:
    assert run(["certificate", "export", NODE, "--file", str(there / "saved.json")]) == 0
    (there / "c.json").write_text(capsys.readouterr().out)
    assert said_of(there, "--unsigned")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--sign-key", "key.pem", "--keyless"],
        ["--key-password-file", "x"],
        ["--identity-token-file", "x"],
        ["--sign-key", "pub.pem"],
        ["--sign-key", "none.pem"],
    ],
)
def test_export_asked_for_in_a_wrong_way(there: Path, words: list[str]) -> None:
    assert export(there, *(str(there / w) if w.endswith(".pem") else w for w in words)) == 2
    assert not (there / "c.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--key", "pub.pem", "--unsigned"],
        ["--identity", WHO],
        ["--issuer", ISSUER],
        ["--trusted-root", "x", "--unsigned"],
        ["--identity", WHO, "--issuer", ISSUER, "--unsigned"],
        ["--identity", WHO, "--issuer", ISSUER],
        ["--key", "key.pem"],
        ["--key", "none.pem"],
        ["--unsigned", "--node-health", "x", "--against-cluster"],
        ["--unsigned", "--node-health", "none.json"],
        ["--unsigned", "--max-age", "0"],
    ],
)
def test_verification_asked_for_in_a_wrong_way(exported: Path, words: list[str]) -> None:
    code, err = said_of(exported, *(str(exported / w) if w.endswith(".pem") else w for w in words))
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b'{"_type":"x"}', b'{"payloadType":"x"}', b"[" * 9999])
def test_what_is_no_exported_file(there: Path, raw: bytes) -> None:
    (there / "c.json").write_bytes(raw)
    code, err = said_of(there, "--unsigned")
    assert (code, err.count("\n")) == (2, 1)
    assert run(["certificate", "show", str(there / "c.json")]) == 2


def test_evidence_is_not_written_over_something(there: Path, capsys: Capture) -> None:
    assert export(there, "--evidence") == 0
    before = (there / "c.json").read_bytes()
    assert export(there, "--evidence") == 2
    assert "c.json.evidence is there already" in capsys.readouterr().err
    assert export(there) == 2  # its evidence would be that of another export
    assert (there / "c.json").read_bytes() == before
    assert run(["certificate", "export", NODE, "--file", str(there / "saved.json"), "--evidence"]) == 2


def test_files_that_do_not_hold_what_is_needed(there: Path, capsys: Capture) -> None:
    assert export(there, node=OTHER) == 2
    assert "no NodeHealth of gpu-0002" in capsys.readouterr().err
    save(there / "half.json", SAMPLE.health)
    assert export(there, file="half.json") == 2
    assert "no Certification accept-1" in capsys.readouterr().err
    save(there / "parts.json", SAMPLE.health, SAMPLE.certification)
    assert export(there, file="parts.json") == 3
    assert "2 of its 2 parts are missing" in capsys.readouterr().err
    save(there / "none.json", with_certificate(SAMPLE.health, None))
    assert export(there, file="none.json") == 3
    assert "The node gpu-0001 has no certificate; 'muster node gpu-0001' says" in capsys.readouterr().err


def test_show_says_that_nothing_is_verified(there: Path, capsys: Capture) -> None:
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    capsys.readouterr()
    assert run(["certificate", "show", str(there / "c.json")]) == 0
    said = capsys.readouterr()
    assert "GPU-a, GPU-b" in said.out
    assert "gpu-burn.throughput_tflop_per_s" in said.out
    assert "Nothing of this was verified" in said.err
    assert run(["certificate", "show", str(there / "c.json"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["subject"][0]["name"] == NODE


# Through sigstore


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, there: Path) -> OwnSigstore:
    """A sigstore of our own that signs for WHO, and its trusted root and a token as files."""
    from sigstore.dsse import Statement
    from sigstore.models import Bundle, ClientTrustConfig
    from sigstore.sign import SigningContext

    made = OwnSigstore()

    class Signer:
        def __enter__(self) -> Signer:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def sign_dsse(self, statement: Statement) -> Bundle:
            return Bundle.from_json(made.signed_statement(statement._contents, WHO, ISSUER))

    class Context:
        def signer(self, _: object) -> Signer:
            return Signer()

    monkeypatch.setattr(ClientTrustConfig, "production", lambda: None)
    monkeypatch.setattr(SigningContext, "from_trust_config", lambda _: Context())
    (there / "token").write_text(token())
    (there / "root.json").write_text(made.trusted_root)
    return made


def by(there: Path, identity: str = WHO, issuer: str = ISSUER) -> list[str]:
    return ["--identity", identity, "--issuer", issuer, "--trusted-root", str(there / "root.json")]


@pytest.mark.usefixtures("own")
def test_signed_through_sigstore(there: Path, capsys: Capture) -> None:
    assert export(there, "--keyless", "--identity-token-file", str(there / "token"), "--evidence") == 0
    assert verify(there, *by(there), "--node", NODE, "-o", "json") == 0
    found = checks(capsys.readouterr().out)
    assert found["signature"] == ("holds", f"Signed by {WHO}, vouched for by {ISSUER}, in sigstore's log.")
    assert found["evidence"][0] == "holds"
    assert run(["certificate", "show", str(there / "c.json")]) == 0
    assert "through sigstore" in capsys.readouterr().out
    for other in (by(there, identity="other@example.com"), by(there, issuer="https://other.example.com")):
        code, err = said_of(there, *other)
        assert (code, "does not hold for the statement" in err) == (3, True)
    code, err = said_of(there, "--key", str(there / "pub.pem"))
    assert (code, "is signed through sigstore; give --identity and --issuer" in err) == (2, True)


def test_every_part_of_a_sigstore_signature_counts(there: Path, own: OwnSigstore) -> None:
    assert export(there, "--keyless", "--identity-token-file", str(there / "token")) == 0
    bundle = json.loads((there / "c.json").read_bytes())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    changed = payload.replace(b'"driver.version","value":"5', b'"driver.version","value":"6')
    assert changed != payload
    for envelope in (
        {**bundle["dsseEnvelope"], "payload": base64.b64encode(changed).decode()},
        {**bundle["dsseEnvelope"], "payloadType": "application/json"},
        {**bundle["dsseEnvelope"], "signatures": [{"sig": base64.b64encode(b"x" * 70).decode()}]},
    ):
        (there / "c.json").write_text(json.dumps({**bundle, "dsseEnvelope": envelope}))
        assert said_of(there, *by(there))[0] == 3
    (there / "c.json").write_text(own.signed_statement(payload, WHO, ISSUER, "application/json"))
    assert said_of(there, *by(there))[0] == 2
    (there / "c.json").write_text(own.signed(payload, WHO, ISSUER))
    assert said_of(there, *by(there))[0] == 3  # a signature over something that is not in the file
    (there / "c.json").write_text(OwnSigstore().signed_statement(payload, WHO, ISSUER))
    assert said_of(there, *by(there))[0] == 3  # a log that nobody trusts
    (there / "c.json").write_text(own.signed_statement(payload, WHO, ISSUER))
    assert said_of(there, *by(there))[0] == 0


def test_without_the_extra(there: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "sigstore", None)
    (there / "token").write_text(token())
    assert export(there, "--keyless", "--identity-token-file", str(there / "token")) == 2
    assert "muster-gpu[sign]" in capsys.readouterr().err
    assert export(there, "--sign-key", str(there / "key.pem")) == 0
    assert verify(there, "--key", str(there / "pub.pem")) == 0


# From a cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with simulated(tmp_path_factory.mktemp("simulated")) as found:
        for manifest in crd.manifests():
            create(found, CRDS, dict(manifest))
        for kind in ("nodehealths", "certifications", "certificationparts"):
            eventually(partial(_served, found, kind))
        for sample in (SAMPLE, certified(OTHER)):
            _put(found, NODE_HEALTHS, sample.health)
        gone = with_certificate(certified("gpu-0003").health, replace(SAMPLE.certificate, certification="gone"))
        _put(found, NODE_HEALTHS, gone)
        _put(found, CERTIFICATIONS, SAMPLE.certification)
        for part in SAMPLE.parts:
            _put(found, CERTIFICATION_PARTS, part)
        yield found


def _served(server: Server, plural: str) -> bool:
    return server.admin.get(f"/apis/muster.dev/v1alpha1/{plural}").status == 200


def _put(server: Server, kind: Any, model: Any) -> None:
    obj = whole(model)
    obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k in ("name", "annotations")}
    create(server, kind, {k: v for k, v in obj.items() if k != "status"}, obj.get("status"))


def test_from_a_cluster(server: Server, there: Path, capsys: Capture) -> None:
    to = ["--kubeconfig", str(server.kubeconfig)]
    target = ["-o", str(there / "c.json"), "--evidence", "--sign-key", str(there / "key.pem")]
    assert run(["certificate", "export", NODE, *target, *to]) == 0
    key = ["--key", str(there / "pub.pem")]
    assert verify(there, *key, "--node", NODE, "--against-cluster", *to) == 0
    assert (
        "In the cluster the certificate is valid and gpu-0001 is as it was certified: InService"
        in capsys.readouterr().out
    )
    assert run(["certificate", "export", "gpu-0009", *to]) == 2
    assert "The cluster has no NodeHealth gpu-0009; 'muster nodes' lists them." in capsys.readouterr().err
    assert run(["certificate", "export", "gpu-0003", *to]) == 3
    assert (
        "The certification gone, on which the certificate of gpu-0003 rests, was deleted" in capsys.readouterr().err
    )


def test_a_node_that_left_the_cluster(server: Server, there: Path) -> None:
    other = certified("gpu-0000")
    saved(there / "saved.json", other)
    assert export(there, node="gpu-0000") == 0
    code, err = said_of(there, "--unsigned", "--against-cluster", "--kubeconfig", str(server.kubeconfig))
    assert (code, "There is no node gpu-0000 in the cluster." in err) == (3, True)


def test_saved_by_kubectl_as_yaml(there: Path) -> None:
    from muster import yamlio

    objects = [SAMPLE.health, SAMPLE.certification, *SAMPLE.parts]
    (there / "saved.yaml").write_text(yamlio.dumps_all([whole(o) for o in objects]))
    assert export(there, file="saved.yaml") == 0
    (there / "nh.yaml").write_text(yamlio.dumps(whole(SAMPLE.health)))
    assert said_of(there, "--unsigned", "--node-health", str(there / "nh.yaml"))[0] == 0

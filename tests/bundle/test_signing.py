"""Signatures: everything that can be wrong without the network. Signing itself needs sigstore's services."""

from __future__ import annotations

import base64
import json
import sys
from importlib import resources
from pathlib import Path

import pytest

from muster.cli.group import run
from muster.configure.bundles import build as bundles
from muster.configure.bundles import signing
from muster.configure.bundles.build import Deployer
from muster.errors import BadInputError, NotSatisfiedError, UnreachableError
from tests.bundle.cases import bundle_of
from tests.bundle.own_sigstore import OwnSigstore

WHO, ISSUER = "release@example.com", "https://issuer.example.com"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "bundle"
    bundles.write(target, bundle_of("h100-any", Deployer.HELM)[1])
    return target


@pytest.fixture(scope="module")
def trusted_root() -> Path:
    """The trusted root that comes with sigstore, so that nothing is fetched."""
    store = resources.files("sigstore._store")
    found = [p for p in Path(str(store)).glob("*sigstore.dev/trusted_root.json") if "sigstage" not in str(p)]
    assert found
    return found[0]


def stored(folder: Path, own: OwnSigstore, identity: str = WHO, issuer: str = ISSUER) -> tuple[Path, Path]:
    """(Signature beside the bundle, trusted root), both of `own`."""
    signature, root = signing.signature_beside(folder), folder.parent / "root.json"
    signature.write_text(own.signed((folder / "checksums.txt").read_bytes(), identity, issuer))
    root.write_text(own.trusted_root)
    return signature, root


def test_a_good_signature_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signature, root = stored(folder, OwnSigstore())
    signing.verify_signature(folder, signature, WHO, ISSUER, root)
    command = ["bundle", "verify", str(folder), "--certificate-identity", WHO, "--certificate-oidc-issuer", ISSUER]
    assert run([*command, "--trusted-root", str(root)]) == 0
    assert f"signed by {WHO}" in capsys.readouterr().out
    signature.rename(folder.parent / "elsewhere.json")
    assert run([*command, "--trusted-root", str(root), "--bundle", str(folder.parent / "elsewhere.json")]) == 0


@pytest.mark.parametrize(
    ("identity", "issuer"),
    [("other@example.com", ISSUER), (WHO, "https://other.example.com"), ("example.com", ISSUER)],
)
def test_somebody_else_signed(folder: Path, identity: str, issuer: str) -> None:
    signature, root = stored(folder, OwnSigstore())
    with pytest.raises(NotSatisfiedError, match="does not hold for the bundle"):
        signing.verify_signature(folder, signature, identity, issuer, root)


def test_another_bundle_was_signed(folder: Path, tmp_path: Path) -> None:
    own = OwnSigstore()
    signature, root = stored(folder, own)
    other = tmp_path / "other"
    bundles.write(other, bundle_of("gb200-any", Deployer.HELM)[1])
    with pytest.raises(NotSatisfiedError, match="does not hold for the bundle"):
        signing.verify_signature(other, signature, WHO, ISSUER, root)


def paths(content: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where in a JSON document texts of base64 stand."""
    if isinstance(content, dict):
        return [p for key, value in content.items() for p in paths(value, (*at, key))]
    if isinstance(content, list):
        return [p for index, value in enumerate(content) for p in paths(value, (*at, index))]
    return [at] if isinstance(content, str) and len(content) > 30 and "/" not in str(at[-1]) else []


def test_every_part_of_a_signature_counts(folder: Path) -> None:
    signature, root = stored(folder, OwnSigstore())
    whole = signature.read_text()
    places = [p for p in paths(json.loads(whole)) if p[-1] != "mediaType"]
    assert len(places) >= 8
    for place in places:
        content = json.loads(whole)
        node = content
        for key in place[:-1]:
            node = node[key]
        value = node[place[-1]]
        node[place[-1]] = value[:20] + ("A" if value[20] != "A" else "B") + value[21:]
        signature.write_text(json.dumps(content))
        with pytest.raises((NotSatisfiedError, BadInputError)):
            signing.verify_signature(folder, signature, WHO, ISSUER, root)
    signature.write_text(whole)
    signing.verify_signature(folder, signature, WHO, ISSUER, root)


def test_a_signature_that_nobody_vouches_for_is_refused(folder: Path, trusted_root: Path) -> None:
    signature, _ = stored(folder, OwnSigstore())
    with pytest.raises(NotSatisfiedError, match="does not hold for the bundle"):
        signing.verify_signature(folder, signature, WHO, ISSUER, trusted_root)


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", '{"mediaType": "application/x"}', "\x00", '{"a":' * 500])
def test_what_is_no_signature_is_bad_input(folder: Path, trusted_root: Path, text: str) -> None:
    signature = signing.signature_beside(folder)
    signature.write_text(text)
    with pytest.raises(BadInputError, match="is no sigstore bundle") as caught:
        signing.verify_signature(folder, signature, WHO, ISSUER, trusted_root)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_used(folder: Path, tmp_path: Path, trusted_root: Path) -> None:
    signature = signing.signature_beside(folder)
    with pytest.raises(BadInputError, match="Cannot read"):
        signing.verify_signature(folder, signature, WHO, ISSUER, trusted_root)
    signature.write_text("x" * (1024 * 1024 + 1))
    with pytest.raises(BadInputError, match="larger than 1 MiB"):
        signing.verify_signature(folder, signature, WHO, ISSUER, trusted_root)
    signature.write_text(OwnSigstore().signed(b"", WHO, ISSUER))
    root = tmp_path / "root.json"
    root.write_text("{}")
    with pytest.raises(BadInputError, match="is no trusted root"):
        signing.verify_signature(folder, signature, WHO, ISSUER, root)


def test_through_the_cli(folder: Path, trusted_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The signature lies beside the bundle, which stays a closed world."""
    stored(folder, OwnSigstore())
    assert run(["bundle", "verify", str(folder)]) == 0
    command = ["bundle", "verify", str(folder), "--certificate-identity", WHO, "--certificate-oidc-issuer", ISSUER]
    capsys.readouterr()
    assert run([*command, "--trusted-root", str(trusted_root)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert run([*command, "--bundle", str(folder / "none")]) == 2


def test_without_an_identity_nothing_is_signed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "BUILDKITE", "SIGSTORE_ID_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sigstore.oidc.detect_credential", lambda *_: None)
    with pytest.raises(BadInputError, match="No identity to sign with"):
        signing.sign(folder)
    with pytest.raises(BadInputError, match="identity token cannot be used"):
        signing.sign(folder, "no.token.atall")
    assert not signing.signature_beside(folder).exists()


def token() -> str:
    """An identity token whose signature only the services would check."""

    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = {"aud": "sigstore", "iss": ISSUER, "sub": WHO, "iat": 1767225600, "nbf": 1767225600, "exp": 32503680000}
    return f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(claims)}.eA"


def test_signing_writes_beside_the_bundle(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything but the services, which are our own: what was written holds for the same identity."""
    from sigstore.models import Bundle, ClientTrustConfig
    from sigstore.sign import SigningContext

    own = OwnSigstore()

    class Signer:
        def __enter__(self) -> Signer:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def sign_artifact(self, content: bytes) -> Bundle:
            return Bundle.from_json(own.signed(content, WHO, ISSUER))

    class Context:
        def signer(self, identity: object) -> Signer:
            return Signer()

    monkeypatch.setattr(ClientTrustConfig, "production", lambda: None)
    monkeypatch.setattr(SigningContext, "from_trust_config", lambda _: Context())
    (tmp_path / "token").write_text(token() + "\n")
    assert run(["bundle", "sign", str(folder), "--identity-token-file", str(tmp_path / "token")]) == 0
    assert "bundle.sigstore.json: written" in capsys.readouterr().err
    (tmp_path / "root.json").write_text(own.trusted_root)
    signing.verify_signature(folder, signing.signature_beside(folder), WHO, ISSUER, tmp_path / "root.json")
    bundles.verify(folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "bundle.sigstore.json", "root.json", "token"]


def test_services_that_do_not_answer(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from sigstore.errors import TUFError
    from sigstore.models import ClientTrustConfig

    def production(offline: bool = False) -> ClientTrustConfig:
        raise TUFError("Failed to refresh TUF metadata")

    monkeypatch.setattr(ClientTrustConfig, "production", production)
    with pytest.raises(UnreachableError, match="did not sign the bundle: Failed to refresh TUF metadata"):
        signing.sign(folder, token())
    signing.signature_beside(folder).write_text(OwnSigstore().signed(b"x", WHO, ISSUER))
    with pytest.raises(UnreachableError, match="give one with --trusted-root"):
        signing.verify_signature(folder, signing.signature_beside(folder), WHO, ISSUER)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "bundle.sigstore.json"]


def test_without_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sigstore", None)
    with pytest.raises(BadInputError, match=r"muster-gpu\[sign\]"):
        signing.sign(folder)
    signing.signature_beside(folder).write_text("{}")
    with pytest.raises(BadInputError, match=r"muster-gpu\[sign\]"):
        signing.verify_signature(folder, signing.signature_beside(folder), WHO, ISSUER)

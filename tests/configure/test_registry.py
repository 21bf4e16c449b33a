"""Folders in OCI registries: a real one, one that lies, and none at all."""

from __future__ import annotations

import base64
import io
import json
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.configure.layers.opening import MEDIA_TYPE, open_catalogue
from muster.configure.registry.archive import pack
from muster.configure.registry.artifacts import (
    EMPTY_TYPE,
    LAYER_TYPE,
    MANIFEST_TYPE,
    Reference,
    digest_of,
    manifest_of,
    parse_reference,
    pull_folder,
    push_folder,
)
from muster.configure.registry.tree import TreeFile, read_tree
from muster.errors import BadInputError, ExitCode, NotSatisfiedError, UnreachableError
from tests.configure.layer_cases import write_layer
from tests.configure.stub_registry import Answer, Stub, stub_registry
from tests.programs.sources import find

TYPE = "application/vnd.muster.bundle.v1"
HASH = "$2b$05$herC.Gb2owI9ig0b6rZg2uvm/lTIeQOQTh1I2Mec67UKsYFtanu6m"
"""bcrypt of `open sesame`, at the lowest cost."""
PATCH = {"components/gpu-operator.yaml": {"values": {"driver": {"version": "580.200.01"}}}}


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the credentials or the cache of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return home


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_registry() as found:
        yield found


def folder_with(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


# A real registry


def test_push_and_pull(oci_registry: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "in", a=b"1", deep__er__b=b"\x00\xff", empty=b"")
    (folder / "a").chmod(0o755)
    digest = push_folder(folder, f"oci://{oci_registry}/team/bundle:1.0", media_type=TYPE)
    assert pull_folder(f"oci://{oci_registry}/team/bundle:1.0", tmp_path / "tag", media_type=TYPE) == digest
    pinned = f"oci://{oci_registry}/team/bundle@{digest}"
    assert pull_folder(pinned, tmp_path / "digest", media_type=TYPE, require_digest=True) == digest
    assert read_tree(tmp_path / "tag") == read_tree(tmp_path / "digest") == read_tree(folder)


def test_the_same_files_have_the_same_digest(oci_registry: str, tmp_path: Path) -> None:
    one = folder_with(tmp_path / "one", a=b"1", b=b"2")
    other = folder_with(tmp_path / "other", b=b"2", a=b"1")
    (other / "a").touch()
    digests = {push_folder(f, f"oci://{oci_registry}/same/{f.name}", media_type=TYPE) for f in (one, other)}
    assert len(digests) == 1
    (other / "a").write_bytes(b"3")
    assert push_folder(other, f"oci://{oci_registry}/same/other", media_type=TYPE) not in digests


def test_a_layer_from_a_registry_is_pinned_and_cached(oci_registry: str, tmp_path: Path) -> None:
    folder = write_layer(tmp_path / "layer", files=PATCH)
    digest = push_folder(folder, f"oci://{oci_registry}/acme/layer:7", media_type=MEDIA_TYPE)
    with pytest.raises(BadInputError) as failure:
        open_catalogue([f"oci://{oci_registry}/acme/layer:7"])
    pinned = f"oci://{oci_registry}/acme/layer@{digest}"
    assert str(failure.value).endswith(pinned)
    made = open_catalogue([pinned])
    assert made.layers == open_catalogue([str(folder)]).layers
    # Another host, nothing listens there: the digest says what it is, wherever it came from.
    assert open_catalogue([f"oci://127.0.0.1:1/acme/layer@{digest}"]) == made


def test_what_is_not_there(oci_registry: str, tmp_path: Path) -> None:
    for tail in (":none", f"@sha256:{'0' * 64}"):
        with pytest.raises(BadInputError, match="check the reference"):
            pull_folder(f"oci://{oci_registry}/nobody/knows{tail}", tmp_path / "out", media_type=TYPE)
    assert not (tmp_path / "out").exists()


def test_another_kind_of_artifact_is_refused(oci_registry: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "in", a=b"1")
    push_folder(folder, f"oci://{oci_registry}/kind/bundle:1", media_type=TYPE)
    with pytest.raises(BadInputError, match=r"not a application/vnd\.muster\.catalogue"):
        pull_folder(f"oci://{oci_registry}/kind/bundle:1", tmp_path / "out", media_type=MEDIA_TYPE)


@pytest.fixture(scope="module")
def registry_program(oci_registry: str) -> Path:
    """The program of the registry that runs; looked up before a test has a home of its own."""
    return find("registry")


@pytest.fixture
def closed_registry(
    oci_registry: str, registry_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The same registry with a password: `me`, `open sesame` (bcrypt)."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "users").write_text(f"me:{HASH}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"auth: {{htpasswd: {{realm: test, path: {folder}/users}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(registry_program), "serve", str(folder / "config.yml")], stdout=log, stderr=log
        )
        try:
            for _ in range(200):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    threading.Event().wait(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=10)


def test_a_registry_with_a_password(closed_registry: str, tmp_path: Path, home: Path) -> None:
    folder = folder_with(tmp_path / "in", a=b"1" * 100_000)
    with pytest.raises(BadInputError, match=f"docker login {closed_registry}"):
        push_folder(folder, f"oci://{closed_registry}/team/a:1", media_type=TYPE)
    log_in(home, closed_registry, "me:open sesame")
    digest = push_folder(folder, f"oci://{closed_registry}/team/a:1", media_type=TYPE)
    assert pull_folder(f"oci://{closed_registry}/team/a@{digest}", tmp_path / "out", media_type=TYPE) == digest
    log_in(home, closed_registry, "me:wrong")
    with pytest.raises(BadInputError, match="docker login"):
        pull_folder(f"oci://{closed_registry}/team/a@{digest}", tmp_path / "again", media_type=TYPE)


def log_in(home: Path, host: str, user_and_password: str) -> str:
    """What `docker login` leaves behind. Returns the token."""
    token = base64.b64encode(user_and_password.encode()).decode()
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": token}}}))
    return token


# What is the same with every registry


def test_a_target_that_holds_something_is_left_alone(stub: Stub, tmp_path: Path) -> None:
    reference = serve(stub, pack({"a": TreeFile(b"1")}))
    folder = folder_with(tmp_path / "out", mine=b"1")
    with pytest.raises(BadInputError, match="not an empty folder"):
        pull_folder(reference, folder, media_type=TYPE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert read_tree(folder) == {"mine": TreeFile(b"1")}
    (tmp_path / "empty").mkdir()
    pull_folder(reference, tmp_path / "empty", media_type=TYPE)
    assert read_tree(tmp_path / "empty") == {"a": TreeFile(b"1")}


def test_the_manifest_is_what_argo_cd_and_flux_read() -> None:
    manifest = json.loads(manifest_of(b"packed", TYPE))
    assert manifest["mediaType"] == MANIFEST_TYPE
    assert manifest["artifactType"] == TYPE
    assert manifest["config"]["mediaType"] == EMPTY_TYPE
    assert [layer["mediaType"] for layer in manifest["layers"]] == [LAYER_TYPE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://r.example.com/a", Reference("r.example.com", "a")),
        ("oci://r:5000/a/b-c/d_e:v1.0", Reference("r:5000", "a/b-c/d_e", "v1.0")),
        (f"oci://r/a:t@sha256:{'a' * 64}", Reference("r", "a", "t", f"sha256:{'a' * 64}")),
        ("oci://[::1]:5000/a:x", Reference("[::1]:5000", "a", "x")),
    ],
)
def test_references(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "r/a:1", "oci://r", "oci://r/", "oci://r/A", "oci://r/a:", "oci://r/a@sha256:12", "oci://u:p@r/a", "oci://r/../a",
        "oci://r/a?x", "oci://r/a:1\n", "oci://r/" + "a/" * 400 + "a", "https://r/a:1",
    ],
)  # fmt: skip
def test_strange_references_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="no reference to a registry"):
        parse_reference(text)


def test_a_push_by_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="follows from what is pushed"):
        push_folder(tmp_path, f"oci://r/a@sha256:{'0' * 64}", media_type=TYPE)


def test_links_are_not_pushed(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="a link"):
        push_folder(tmp_path, f"oci://{stub.host}/a:1", media_type=TYPE)
    assert stub.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nowhere.invalid"])
def test_nobody_answers(host: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "in", a=b"1")
    with pytest.raises(UnreachableError, match="does not answer") as failure:
        pull_folder(f"oci://{host}/a:1", tmp_path / "out", media_type=TYPE)
    assert failure.value.exit_code is ExitCode.UNREACHABLE
    with pytest.raises(UnreachableError, match=host):
        push_folder(folder, f"oci://{host}/a:1", media_type=TYPE, plain_http=True)


def test_without_the_extra_one_sentence_says_so(tmp_path: Path) -> None:
    """In a process of its own: this one has the package."""
    code = (
        "import sys; sys.modules['oras'] = None\n"
        "from pathlib import Path\n"
        "from muster.configure.registry.artifacts import pull_folder\n"
        "try: pull_folder('oci://r/a:1', Path('x'), media_type='t')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.startswith("BadInputError oci://r/a:1 needs the extra 'oci'; install it with: pip install")


# A registry that lies


def serve(stub: Stub, packed: bytes, **changes: Any) -> str:
    """Put an artifact into the stub; `changes` replace fields of its manifest. Returns the pinned reference."""
    manifest = json.dumps(json.loads(manifest_of(packed, TYPE)) | changes).encode()
    digest = digest_of(manifest)
    for name in ("1", digest):
        stub.answers[f"/v2/a/manifests/{name}"] = Answer(body=manifest)
    stub.answers[f"/v2/a/blobs/{digest_of(packed)}"] = Answer(body=packed)
    return f"oci://{stub.host}/a@{digest}"


def refused(reference: str, tmp_path: Path, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as failure:
        pull_folder(reference, tmp_path / "out", media_type=TYPE)
    assert "\n" not in str(failure.value)
    assert list(tmp_path.iterdir()) == []


def test_another_manifest_than_the_digest_says(stub: Stub, tmp_path: Path) -> None:
    serve(stub, pack({"a": TreeFile(b"1")}))
    digest = f"sha256:{'0' * 64}"
    stub.answers[f"/v2/a/manifests/{digest}"] = stub.answers["/v2/a/manifests/1"]
    refused(f"oci://{stub.host}/a@{digest}", tmp_path, NotSatisfiedError, "answered with something else")


def test_another_layer_than_the_manifest_says(stub: Stub, tmp_path: Path) -> None:
    packed, other = pack({"a": TreeFile(b"1")}), pack({"a": TreeFile(b"2")})
    reference = serve(stub, packed)
    stub.answers[f"/v2/a/blobs/{digest_of(packed)}"] = Answer(body=other[: len(packed)])
    refused(reference, tmp_path, NotSatisfiedError, "not what its manifest says")
    stub.answers[f"/v2/a/blobs/{digest_of(packed)}"] = Answer(body=packed + b"more")
    refused(reference, tmp_path, BadInputError, "sends more than")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"artifactType": "image"}, "is a 'image', not a"),
        ({"artifactType": None}, "is a 'None'"),
        ({"layers": []}, "does not hold one layer"),
        ({"layers": "x"}, "does not hold one layer"),
        ({"layers": [{}]}, "does not hold one layer"),
        ({"layers": [{"size": 1}]}, "no manifest that can be read"),
        ({"layers": [{"size": 1, "digest": "md5:1"}]}, "does not hold one layer"),
        ({"layers": [{"size": "1", "digest": f"sha256:{'0' * 64}"}]}, "does not hold one layer"),
        ({"layers": [{"size": 2**40, "digest": f"sha256:{'0' * 64}"}]}, "is larger than 64 MiB"),
        ({"layers": [{"size": -1, "digest": f"sha256:{'0' * 64}"}]}, "is larger than"),
    ],
)
def test_strange_manifests(stub: Stub, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    refused(serve(stub, pack({}), **changes), tmp_path, BadInputError, message)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b"\xff", b"{" * 100_000])
def test_a_manifest_that_is_none(stub: Stub, tmp_path: Path, body: bytes) -> None:
    stub.answers["/v2/a/manifests/1"] = Answer(body=body)
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "no manifest that can be read")


def test_an_endless_manifest(stub: Stub, tmp_path: Path) -> None:
    stub.answers["/v2/a/manifests/1"] = Answer(body=b" " * (2**20 + 1))
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "sends more than 1048576 bytes")


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, BadInputError, "docker login"),
        (403, BadInputError, "docker login"),
        (400, BadInputError, "HTTP 400"),
        (429, UnreachableError, "HTTP 429"),
        (500, UnreachableError, "HTTP 500"),
        (503, UnreachableError, "HTTP 503"),
    ],
)
def test_refusals(stub: Stub, tmp_path: Path, status: int, kind: type[Exception], message: str) -> None:
    stub.answers["/v2/a/manifests/1"] = Answer(status=status)
    refused(f"oci://{stub.host}/a:1", tmp_path, kind, message)


def test_credentials_of_docker_are_used(stub: Stub, tmp_path: Path, home: Path) -> None:
    stub.answers["/v2/"] = Answer(401, headers={"Www-Authenticate": 'Basic realm="registry"'})
    stub.answers["/v2/a/manifests/1"] = Answer(401, headers={"Www-Authenticate": 'Basic realm="registry"'})
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "docker login")
    token = log_in(home, stub.host, "me:secret")
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "docker login")
    assert stub.authorizations[-1] == f"Basic {token}"
    (home / ".docker" / "config.json").write_text("{")
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "config.json cannot be used")


def test_a_token_is_asked_for(stub: Stub, tmp_path: Path, home: Path) -> None:
    wanted = f'Bearer realm="http://{stub.host}/token",service="registry",scope="repository:a:pull"'
    stub.answers["/v2/a/manifests/1"] = Answer(401, headers={"Www-Authenticate": wanted})
    stub.answers["/token"] = Answer(body=b'{"token": "for-a"}')
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "docker login")
    assert "GET /token?service=registry&scope=repository%3Aa%3Apull" in stub.requests
    assert stub.authorizations[-1] == "Bearer for-a"
    token = log_in(home, stub.host, "me:secret")
    refused(f"oci://{stub.host}/a:1", tmp_path, BadInputError, "docker login")
    assert f"Basic {token}" in stub.authorizations


def tar_of(*entries: tarfile.TarInfo, content: bytes = b"") -> bytes:
    import gzip

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue())


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (lambda: tar_of(entry("../x")), "leads outside"),
        (lambda: tar_of(entry("/etc/x")), "leads outside"),
        (lambda: tar_of(entry("a/../../x")), "leads outside"),
        (lambda: tar_of(entry("a//b")), "leads outside"),
        (lambda: tar_of(entry("a\\b")), "leads outside"),
        (lambda: tar_of(entry("a\nb")), "leads outside"),
        (lambda: tar_of(entry("/".join("a" * 30))), "leads outside"),
        (lambda: tar_of(entry("x" * 300)), "leads outside"),
        (lambda: tar_of(entry("a", tarfile.SYMTYPE, "/etc/passwd")), "a link"),
        (lambda: tar_of(entry("a", tarfile.LNKTYPE, "b")), "a link"),
        (lambda: tar_of(entry("a", tarfile.CHRTYPE)), "a link or no regular"),
        (lambda: tar_of(entry("a", tarfile.FIFOTYPE)), "a link or no regular"),
        (lambda: tar_of(entry("a"), entry("a")), "twice"),
        (lambda: tar_of(entry("a"), entry("./a")), "twice"),
        (lambda: tar_of(entry("a"), entry("a/b")), "below a file"),
        (lambda: b"no gzip", "no gzip"),
        (lambda: pack({"a": TreeFile(b"1")})[:-9], "ends too early"),
        (lambda: pack({"a": TreeFile(b"1")}) * 2, "ends too early or goes on"),
        (lambda: tar_of(entry("bomb"), content=b"\0" * (120 * 2**20)), "unpacks to more than 64 MiB"),
    ],
)
def test_hostile_archives(stub: Stub, tmp_path: Path, packed: Callable[[], bytes], message: str) -> None:
    refused(serve(stub, packed()), tmp_path, BadInputError, message)

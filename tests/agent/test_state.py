"""What an agent keeps: replaced as a whole, and never in the way when it is damaged."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from muster.agent import memory
from muster.agent.memory import Memory
from muster.agent.state import MAX_STATE_BYTES, DirectoryStateStore, MemoryStateStore
from muster.errors import BadInputError


def test_the_last_saved_document_is_loaded_by_the_next_agent(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    first = DirectoryStateStore(folder)
    assert first.load() is None
    first.save(b"one")
    first.save(b"two")
    assert DirectoryStateStore(folder).load() == b"two"
    assert [file.name for file in folder.iterdir()] == [DirectoryStateStore.FILE]


def test_a_crash_while_saving_leaves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStateStore(tmp_path)
    store.save(b"old")

    def crash(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("muster.agent.state.os.fsync", crash)
    with pytest.raises(OSError, match="No space left"):
        store.save(b"new")
    assert DirectoryStateStore(tmp_path).load() == b"old"


def test_a_document_that_is_too_large_counts_as_none(tmp_path: Path) -> None:
    store = DirectoryStateStore(tmp_path)
    (tmp_path / DirectoryStateStore.FILE).write_bytes(b"x" * (MAX_STATE_BYTES + 1))
    assert store.load() is None


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"^Cannot keep state in .*; give another --state-dir\.$"):
        DirectoryStateStore(tmp_path / "file")


def test_memory_survives_its_document() -> None:
    kept = Memory(boot_id="b", cursor="c", diagnosis="{}")
    store = MemoryStateStore()
    assert memory.decode(store.load()) is None
    store.save(memory.encode(kept))
    assert memory.decode(store.load()) == kept


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"\x00\xff", b'{"bootId":"b","diagnosis":"","format":99}'])
def test_a_damaged_document_is_no_document(document: bytes) -> None:
    assert memory.decode(document) is None


def test_a_disk_that_hangs_holds_the_agent_once_and_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, free = DirectoryStateStore(tmp_path), threading.Event()
    store.save(b"old")
    monkeypatch.setattr("muster.agent.state.SAVE_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr("muster.agent.state.os.fsync", lambda fd: free.wait(60))
        began = time.monotonic()
        with pytest.raises(OSError, match="did not answer within"):
            store.save(b"new")
        with pytest.raises(OSError, match="since an earlier write"):
            store.save(b"newer")
        assert time.monotonic() - began < 10
        assert store.load() == b"old"
        free.set()
        assert store._saving is not None
        store._saving.join(10)
    store.save(b"newest")
    assert store.load() == b"newest"

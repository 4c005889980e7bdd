"""One process at a time."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sqhn.storage import lockfile
from sqhn.storage.lockfile import held

posix = pytest.mark.skipif(sys.platform == "win32", reason="no flock, no signals of this kind, no links")
HOLD = "import sys; from pathlib import Path; from sqhn.storage.lockfile import held\n"


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something that takes a moment."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until a line comes; it has it when this returns."""
    program = HOLD + "with held(Path(sys.argv[1]), print): print('held', flush=True); input()"
    words = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


class Waiter(threading.Thread):
    """Takes the lock as soon as it can, and gives it back at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.told, self.entered = path, list[str](), False
        self.start()

    def run(self) -> None:
        with held(self.path, self.told.append):
            self.entered = True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.sqhn"


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


class TestAlone:
    def test_nobody_is_told_and_nothing_is_left(self, path: Path) -> None:
        told: list[str] = []
        for _ in range(2):
            with held(path, told.append):
                assert [other.name for other in path.parent.iterdir()] == [".m.sqhn.lock"]
        assert told == []
        assert list(path.parent.iterdir()) == []

    def test_after_an_error_too(self, path: Path) -> None:
        with pytest.raises(ZeroDivisionError), held(path, print):
            raise ZeroDivisionError
        assert list(path.parent.iterdir()) == []

    def test_the_lock_file_says_who_holds_it(self, path: Path) -> None:
        with held(path, print):
            text = lock_of(path).read_text()
        who = f"process {os.getpid()} on {re.escape(socket.gethostname())}"
        assert re.fullmatch(rf"{who} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\n", text)

    def test_one_that_was_left_behind_is_taken_over(self, path: Path) -> None:
        lock_of(path).write_text("process 1 on moon since the Flood, and much more than anybody would write " * 9)
        told: list[str] = []
        with held(path, told.append):
            assert lock_of(path).read_text().startswith(f"process {os.getpid()} on")
            assert "Flood" not in lock_of(path).read_text()
        assert told == []
        assert not lock_of(path).exists()

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"nowhere.*\.m\.lock"), held(tmp_path / "nowhere" / "m", print):
            pass

    @posix
    def test_what_a_link_of_its_name_leads_to_is_left_alone(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "diary").write_text("secret")
        lock_of(path).symlink_to("diary")
        with pytest.raises(OSError, match=r"\.m\.sqhn\.lock"), held(path, print):
            pass
        assert (tmp_path / "diary").read_text() == "secret"

    @posix
    def test_removed_by_hand(self, path: Path) -> None:
        with held(path, print):
            lock_of(path).unlink()
            with held(path, print):
                pass
            lock_of(path).write_text("somebody else's")
        assert lock_of(path).read_text() == "somebody else's"

    @posix
    def test_of_another_user(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What may be read but not written can be locked all the same."""
        lock_of(path).write_text("theirs")
        open_file, theirs = os.open, lock_of(path).stat().st_ino

        def refuse_to_write(place: Path, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_RDWR and place.exists() and place.stat().st_ino == theirs:
                raise PermissionError(errno.EACCES, "Permission denied", str(place))
            return open_file(place, flags, mode)

        monkeypatch.setattr(os, "open", refuse_to_write)
        with held(path, print):
            other = Waiter(path)
            until(lambda: other.told)
            assert not other.entered
        other.join()
        assert other.entered
        assert list(path.parent.iterdir()) == []

    @posix
    def test_of_another_user_who_removes_it_at_that_moment(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lock_of(path).write_text("theirs")
        open_file = os.open

        def refuse_and_remove(place: Path, flags: int, mode: int = 0o777) -> int:
            if place.exists() and place.read_text() == "theirs":
                place.unlink()
                raise PermissionError(errno.EACCES, "Permission denied", str(place))
            return open_file(place, flags, mode)

        monkeypatch.setattr(os, "open", refuse_and_remove)
        with held(path, print):
            assert lock_of(path).read_text() != "theirs"
        assert list(path.parent.iterdir()) == []

    def test_where_none_may_be_made(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(place: Path, *_: object) -> int:
            raise PermissionError(errno.EACCES, "Permission denied", str(place))

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError, match=r"\.m\.sqhn\.lock"), held(path, print):
            pass

    @posix
    @pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP])
    def test_a_file_system_without_locks(self, number: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.break_locks(number, monkeypatch)
        told: list[str] = []
        with held(path, told.append):
            assert list(path.parent.iterdir()) == []
        assert len(told) == 1
        assert "no locks" in told[0]
        assert str(path) in told[0]

    @posix
    def test_other_errors_are_errors(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.break_locks(errno.EIO, monkeypatch)
        with pytest.raises(OSError, match="broken"), held(path, print):
            pass
        assert list(path.parent.iterdir()) == []

    def break_locks(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        import fcntl

        def refuse(*_: object) -> None:
            raise OSError(number, "broken")

        monkeypatch.setattr(fcntl, "flock", refuse)


class TestTogether:
    def test_the_second_waits_and_is_told_once_for_whom(self, path: Path) -> None:
        with held(path, print):
            other = Waiter(path)
            until(lambda: other.told)
            time.sleep(4 * lockfile.POLL)
            assert not other.entered
        other.join()
        assert other.entered
        assert len(other.told) == 1
        assert other.told[0].startswith(f"{path} is in use by process {os.getpid()} on {socket.gethostname()} since ")
        assert list(path.parent.iterdir()) == []

    @posix
    def test_two_names_of_a_file_have_one_lock(self, path: Path, tmp_path: Path) -> None:
        link = tmp_path / "elsewhere" / "link"
        link.parent.mkdir()
        link.symlink_to(path)
        with held(path, print):
            other = Waiter(link)
            until(lambda: other.told)
            assert not other.entered
        other.join()
        assert [item.name for item in link.parent.iterdir()] == ["link"]

    def test_other_files_of_the_folder_are_free(self, path: Path, tmp_path: Path) -> None:
        with held(path, print):
            other = Waiter(tmp_path / "other.sqhn")
            other.join()
        assert other.entered
        assert other.told == []

    def test_turns_of_many_processes(self, path: Path) -> None:
        """No turn overlaps another, though the lock file is removed and made anew all the time."""
        path.write_text("0")
        program = HOLD + (
            "path = Path(sys.argv[1])\n"
            "for _ in range(40):\n"
            "    with held(path, lambda text: None):\n"
            "        path.write_text(str(int(path.read_text()) + 1))\n"
        )
        words = [sys.executable, "-c", program, str(path)]
        processes = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
        assert path.read_text() == "160"
        assert list(path.parent.iterdir()) == [path]

    @posix
    def test_a_killed_holder_holds_nothing(self, path: Path) -> None:
        with holder(path) as process:
            other = Waiter(path)
            until(lambda: other.told)
            assert f"process {process.pid} on" in other.told[0]
            assert not other.entered
            process.send_signal(signal.SIGKILL)
            other.join()
        assert other.entered
        assert list(path.parent.iterdir()) == []

    @posix
    def test_ctrl_c_ends_the_wait(self, path: Path) -> None:
        with holder(path) as process:
            before = lock_of(path).read_text()

            def interrupt(text: str) -> None:
                assert f"process {process.pid} on" in text
                threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()

            with pytest.raises(KeyboardInterrupt), held(path, interrupt):
                pass
            assert lock_of(path).read_text() == before
            process.communicate("\n", timeout=60)
        assert process.returncode == 0
        assert list(path.parent.iterdir()) == []

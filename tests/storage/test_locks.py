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

from sqhn.storage import locks
from sqhn.storage.locks import held

posix = pytest.mark.skipif(sys.platform == "win32", reason="no flock, no signals of this kind, no links")
HOLD = "import sys; from pathlib import Path; from sqhn.storage.locks import held\n"


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
    def test_a_free_lock_calls_nothing_and_leaves_nothing(self, path: Path) -> None:
        told: list[str] = []
        for _ in range(2):
            with held(path, told.append):
                assert [other.name for other in path.parent.iterdir()] == [".m.sqhn.lock"]
        assert told == []
        assert list(path.parent.iterdir()) == []

    def test_an_error_in_the_block_ends_the_lock(self, path: Path) -> None:
        with pytest.raises(ZeroDivisionError), held(path, print):
            raise ZeroDivisionError
        assert list(path.parent.iterdir()) == []

    def test_the_lock_file_says_who_holds_it(self, path: Path) -> None:
        with held(path, print):
            text = lock_of(path).read_text().strip()
        who = f"process {os.getpid()} on {re.escape(socket.gethostname())}"
        assert re.fullmatch(rf"{who} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d", text)

    def test_a_lock_file_left_behind_is_taken_over(self, path: Path) -> None:
        lock_of(path).write_text("process 1 on moon since the Flood, and much more than anybody would write " * 9)
        told: list[str] = []
        with held(path, told.append):
            assert lock_of(path).read_text().strip().startswith(f"process {os.getpid()} on")
            assert "Flood" not in lock_of(path).read_text()
        assert told == []
        assert not lock_of(path).exists()

    def test_a_missing_folder_is_an_error_and_is_not_made(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"nowhere.*\.m\.lock"), held(tmp_path / "nowhere" / "m", print):
            pass
        assert list(tmp_path.iterdir()) == []

    @posix
    def test_a_link_in_its_place_is_refused_and_its_target_unchanged(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "diary").write_text("secret")
        lock_of(path).symlink_to("diary")
        with pytest.raises(OSError, match=r"\.m\.sqhn\.lock"), held(path, print):
            pass
        assert (tmp_path / "diary").read_text() == "secret"

    @posix
    def test_a_lock_file_removed_by_hand(self, path: Path) -> None:
        with held(path, print):
            lock_of(path).unlink()
            with held(path, print):
                pass
            lock_of(path).write_text("somebody else's")
        assert lock_of(path).read_text() == "somebody else's"

    @posix
    def test_other_users_can_take_over_a_lock_file(self, path: Path) -> None:
        before = os.umask(0o077)
        try:
            with held(path, print):
                assert lock_of(path).stat().st_mode & 0o777 == 0o666
        finally:
            os.umask(before)

    def test_the_lock_ends_in_any_thread(self, path: Path) -> None:
        lock = held(path, print)
        lock.__enter__()
        ending = threading.Thread(target=lock.__exit__, args=(None, None, None))
        ending.start()
        ending.join()
        assert list(path.parent.iterdir()) == []

    @posix
    @pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP])
    def test_a_file_system_without_locks(self, number: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.break_locks(number, monkeypatch)
        problem = f"no locks on the file system of {re.escape(str(path))}"
        with pytest.warns(UserWarning, match=problem) as told, held(path, print):
            assert list(path.parent.iterdir()) == []
        assert len(told) == 1

    @posix
    def test_other_errors_are_errors(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.break_locks(errno.EIO, monkeypatch)
        with pytest.raises(OSError, match="broken"), held(path, print):
            pass

    def break_locks(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        import fcntl

        def refuse(*_: object) -> None:
            raise OSError(number, "broken")

        monkeypatch.setattr(fcntl, "flock", refuse)


class TestTogether:
    def test_the_second_waits_and_learns_once_who_holds_the_lock(self, path: Path) -> None:
        with held(path, print):
            other = Waiter(path)
            until(lambda: other.told)
            time.sleep(2 * locks.PATIENCE)
            assert not other.entered
        other.join()
        assert other.entered
        assert len(other.told) == 1
        assert other.told[0].startswith(f"{path} is in use by process {os.getpid()} on {socket.gethostname()} since ")
        assert list(path.parent.iterdir()) == []

    def test_nobody_waits_without_a_function_that_tells_it(self, path: Path) -> None:
        problem = f"{re.escape(str(path))} is in use by process {os.getpid()} on"
        with held(path), pytest.raises(BlockingIOError, match=problem), held(path):
            pass
        assert list(path.parent.iterdir()) == []

    @posix
    def test_two_names_of_a_file_share_one_lock(self, path: Path, tmp_path: Path) -> None:
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

    def test_many_processes_take_the_lock_in_turn(self, path: Path) -> None:
        """No two hold it at once, although the lock file is removed and made again each time."""
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

    @posix
    def test_a_forked_child_does_not_hold_its_parents_lock(self, path: Path) -> None:
        """Not even when it outlives its parent."""
        program = HOLD + (
            "import os, time\n"
            "with held(Path(sys.argv[1]), print):\n"
            "    child = os.fork()\n"
            "    if child:\n"
            "        print(child, flush=True)\n"
            "        os.kill(os.getpid(), 9)\n"
            "    time.sleep(60)\n"
        )
        words = [sys.executable, "-c", program, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            try:
                process.wait()
                with held(path, print):
                    os.kill(child, 0)  # it is still there
            finally:
                os.kill(child, signal.SIGKILL)

    @posix
    def test_a_child_that_ends_leaves_its_parents_lock(self, path: Path) -> None:
        with held(path, print):
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)
            program = HOLD + "with held(Path(sys.argv[1]), sys.exit): pass"
            done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
            assert f"in use by process {os.getpid()}" in done.stderr

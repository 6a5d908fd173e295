# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import re
import socket
import threading
from datetime import timedelta

import pytest
from torch.distributed import FileStore, HashStore, PrefixStore, TCPStore

from aikido_torch.errors import ConfigError, RetryLaterError
from aikido_torch.testing import late
from aikido_torch.trace.record._trace_store import (
    Board,
    Told,
    address_of,
    as_steps,
    base_of,
    collect,
    open_store,
    own_connection,
)


@pytest.fixture
def store():
    return HashStore()


def test_a_store_is_found_under_its_prefixes_and_by_its_address(tmp_path):
    path = tmp_path / "store"
    file = FileStore(str(path), 1)
    assert base_of(PrefixStore("a", PrefixStore("b", file))) is not None
    address = address_of(PrefixStore("a", file))
    assert address == f"file://{path}"
    file.set("key", "value")
    assert open_store(address).get("key") == b"value"


def test_a_store_over_tcp_is_found_by_its_address():
    served = TCPStore("127.0.0.1", 0, 1, True)
    found = open_store(address_of(PrefixStore("a", served)))
    served.set("key", "value")
    assert found.get("key") == b"value"
    assert own_connection(PrefixStore("a", served)).get("key") == b"value"


def test_a_store_inside_of_a_process_has_no_address(store):
    assert address_of(store) is None


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_port_without_a_store_gives_a_clear_error(is_taken, capfd):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not is_taken:
            server.close()
        with pytest.raises(ConfigError, match=rf"No job answers at .*:{port} within 0"):
            open_store(f"tcp://127.0.0.1:{port}", timeout=timedelta(seconds=0.2))
    assert "c10d" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("host:29500", "give tcp://host:port"),
        ("tcp://host", "give tcp://host:port"),
        ("tcp://host:port", "give tcp://host:port"),
        ("file:///no/such/file", "/no/such/file is no file"),
    ],
)
def test_an_invalid_address_gives_a_clear_error(address, text):
    with pytest.raises(ConfigError, match=text):
        open_store(address)


@pytest.mark.parametrize(
    ("text", "steps"), [("100:105", (100, 105)), ("7", (7, 7)), ("0:0", (0, 0))]
)
def test_steps_are_first_and_last(text, steps):
    assert as_steps(text) == steps


@pytest.mark.parametrize("text", ["", "5:3", "-1", "a:b", "1:2:3", ":4"])
def test_invalid_steps_give_a_clear_error(text):
    with pytest.raises(ConfigError, match="such as 100:105"):
        as_steps(text)


def answer(store, rank, data, *, heard, now, through=True, refused=""):
    board = Board(store)
    number = board.num_requests()
    assert board.wanted(number) == (2, 5)  # also the step before
    board.tell(number, rank, Told(heard, now, refused=refused))
    if through:
        board.give(number, rank, data)


class Asking(threading.Thread):
    """Thread that asks for a trace and keeps the result or the error."""

    def __init__(self, store, timeout_s=20.0, silent_s=20.0):
        super().__init__()
        self.store, self.times = store, {"timeout_s": timeout_s, "silent_s": silent_s}
        self.found = self.error = None
        self.start()
        while Board(store).num_requests() == 0:
            pass
        while Board(store).wanted(1) is None:
            pass

    def run(self):
        try:
            self.found = collect(Board(self.store), 3, 5, **self.times)
        except (ConfigError, RetryLaterError) as error:
            self.error = str(error)


def test_dumps_of_all_ranks_are_collected_and_deleted(store):
    Board(store).join(2)
    asking = Asking(store)
    large = bytes(range(256)) * 40_000
    answer(store, 0, large, heard=1, now=6)
    answer(store, 1, b"small", heard=4, now=6)
    asking.join()
    assert asking.found == (
        {0: large, 1: b"small"},
        ["rank 1 was at step 4 when it heard: its trace begins there."],
        1,
    )
    # Dumps stay until the requester has written them.
    board = Board(store)
    assert board.dump_of(1, 0) == large
    for rank in range(2):
        board.clear(1, rank)
    # Only counters and the mark of the end stay.
    assert board.is_off(1)
    assert board.wanted(1) is None
    assert board.dump_of(1, 0) is None
    assert store.num_keys() == 3


def test_ranks_are_asked_when_all_of_them_listen(store):
    board = Board(store)
    board.listen()
    board.join(2)
    other = threading.Timer(0.3, Board(store).listen)  # it calls watch later
    other.start()
    asking = Asking(store)
    assert board.num_listening() == 2
    for rank in range(2):
        answer(store, rank, b"data", heard=1, now=6)
    asking.join()
    other.join()
    assert sorted(asking.found.dumps) == [0, 1]


def test_a_rank_that_never_listens_is_not_waited_for_long(store):
    Board(store).listen()
    Board(store).join(2)
    asking = Asking(store, timeout_s=20.0, silent_s=0.2)
    answer(store, 0, b"data", heard=1, now=6)
    asking.join()
    assert sorted(asking.found.dumps) == [0]


def test_a_silent_rank_is_named_and_the_other_dumps_are_kept(store):
    Board(store).join(3)
    asking = Asking(store, timeout_s=0.3)
    answer(store, 1, b"data", heard=1, now=6)
    answer(store, 2, b"", heard=1, now=4, through=False)
    asking.join()
    found, notes, _ = asking.found
    assert found == {1: b"data"}
    assert notes == [
        "no trace came of rank 0: it has not heard of it.",
        "no trace came of rank 2: it is at step 4.",
    ]


def test_a_missing_verdict_on_step_0_is_reported(store):
    class Answered(Board):
        def dump_of(self, number, rank):
            return b"data"

    Board(store).join(1)
    _, notes, number = collect(Answered(store), 0, 1, timeout_s=20)
    assert notes == ["no step comes before step 0, so there is no verdict on it."]
    assert number == 1


def test_dead_ranks_are_named_and_not_waited_for(store):
    Board(store).join(4)
    asking = Asking(store, timeout_s=50.0, silent_s=0.2)
    answer(store, 1, b"data", heard=1, now=6)
    answer(store, 2, b"", heard=1, now=4, through=False)
    answer(store, 3, b"", heard=1, now=1, through=False, refused="records by hand")
    asking.join(timeout=20)
    found, notes, _ = asking.found
    assert found == {1: b"data"}
    silent = "it has told nothing for 0.2 s"
    dead = ": it is dead or stopped, or has not called watch."
    assert notes == [
        f"no trace came of rank 0: {silent}{dead}",
        f"no trace came of rank 2: {silent}, at step 4 when last heard of{dead}",
        "no trace came of rank 3: it records by hand.",
    ]


def test_a_rank_that_reports_its_step_is_waited_for(store):
    Board(store).join(1)
    asking = Asking(store, timeout_s=50.0, silent_s=0.6)
    board = Board(store)
    for beat in range(10):
        late(0.1)
        board.tell(1, 0, Told(1, 2, beat))
    board.give(1, 0, b"data")
    asking.join()
    assert asking.found[0] == {0: b"data"}


def test_a_lost_store_keeps_the_dumps_found_so_far(store):
    class Dying(Board):
        def dump_of(self, number, rank):
            if rank == 1:
                raise RuntimeError("Connection was likely closed")
            return b"data"

    Board(store).join(2)
    found, notes, _ = collect(Dying(store), 3, 5, timeout_s=20)
    assert found == {0: b"data"}
    assert notes[0].startswith("the store of the job has gone")


def test_if_no_rank_answers_the_error_names_the_step_of_each(store):
    Board(store).join(1)
    asking = Asking(store, timeout_s=0.2)
    answer(store, 0, b"", heard=1, now=2, through=False)
    asking.join()
    assert re.match(
        r"No trace came of steps 3 to 5 within [0-9.]+ s: no trace came of rank 0: it "
        r"is at step 2\. Ask for",
        asking.error,
    )


def test_the_error_says_the_time_waited_and_not_the_limit(store):
    Board(store).join(1)
    asking = Asking(store, timeout_s=600)
    while Board(store).num_requests() == 0:
        pass
    Board(store).tell(1, 0, Told(1, 1, refused="has ended"))
    asking.join()
    assert float(re.search(r"within ([0-9.]+) s", asking.error)[1]) < 60
    assert "rank 0: it has ended." in asking.error


def test_if_no_rank_listens_the_error_says_so(store):
    with pytest.raises(ConfigError, match="No rank of this job listens"):
        collect(Board(store), 3, 5, timeout_s=1)
    assert Board(store).num_requests() == 0


def test_polling_for_requests_does_not_grow_a_file_store(tmp_path):
    path = tmp_path / "store"
    board = Board(FileStore(str(path), 1))
    board.join(1)
    board.request(3, 5)
    board.say("", {})
    size = path.stat().st_size
    assert board.num_requests() == 1
    assert board.num_verdicts("") == 1
    assert path.stat().st_size == size

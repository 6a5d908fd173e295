# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import threading
import warnings

import pytest
import torch
import torch.distributed as dist

from aikido_torch import Options, _backend, register_backend
from aikido_torch.errors import ConfigError, TimedOutError


def test_the_backend_is_registered_once():
    assert dist.Backend.AIKIDO == "aikido"
    assert dist.Backend.backend_capability["aikido"] == ["cpu", "cuda"]
    before = list(dist.Backend.backend_list)
    register_backend()
    assert dist.Backend.backend_list == before


def test_a_group_of_one_does_everything_itself(group_of_one):
    tensor = torch.arange(5.0)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, src=0)
    gathered = torch.empty(5)
    dist.all_gather_into_tensor(gathered, tensor)
    listed = [torch.empty(5)]
    dist.all_gather(listed, tensor)
    dist.barrier()
    for result in (tensor, gathered, listed[0]):
        assert result.tolist() == [0, 1, 2, 3, 4]
    backend = _backend.backend_of(group_of_one)
    assert backend is _backend.backend_of(None)
    assert (backend.rank(), backend.size(), backend.name()) == (0, 1, "aikido")
    assert backend.counters["operations"] == 5
    assert backend.committed_ahead == backend.called_ahead == 0


def test_groups_can_be_made_again_and_share_the_progress_thread():
    addresses = set()
    for _ in range(3):
        dist.init_process_group("aikido", store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()
        (runtime,) = _backend._runtimes.values()
        addresses.add(runtime.address)
        dist.destroy_process_group()
    assert len(addresses) == 1


def test_a_missing_group_and_another_backend_are_named(group_of_one):
    gloo = dist.new_group(backend="gloo")
    with pytest.raises(ConfigError) as caught:
        _backend.backend_of(gloo)
    assert str(caught.value) == (
        f"The group '{gloo.group_name}' runs on backend 'gloo', not on 'aikido'; make "
        "it with new_group(backend='aikido')."
    )
    dist.destroy_process_group()
    with pytest.raises(ConfigError, match="There is no process group yet; call init_"):
        _backend.backend_of(None)


def test_options_of_another_backend_are_refused(group_of_one):
    with pytest.raises(ConfigError) as caught:
        dist.new_group(backend="aikido", pg_options=dist.ProcessGroupGloo._Options())
    assert str(caught.value).startswith("pg_options is a _Options; backend 'aikido' t")


def test_a_wrong_variable_is_named_when_the_group_is_made(monkeypatch):
    monkeypatch.setenv("AIKIDO_TRANSPORT_CHUNK_BYTES", "7")
    with pytest.raises(ConfigError, match='AIKIDO_TRANSPORT_CHUNK_BYTES is "7"; it'):
        dist.init_process_group("aikido", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("given", "first"),
    [({"socket_ifname": "nope0"}, "''"), ({"transport_handshake_timeout_ms": 77}, "5")],
)
def test_a_later_group_cannot_change_an_option_that_all_groups_share(
    given, first, monkeypatch, group_of_one
):
    (values,) = _backend._runtime_values.values()
    ((name, value),) = given.items()
    with pytest.raises(ConfigError) as caught:
        dist.new_group(backend="aikido", pg_options=Options(**given))
    assert str(caught.value).startswith(
        f"pg_options has {name}={value!r}, but all groups of a process share it, and "
        f"the first one was made with {first}"
    )
    # The same value again and options of a single group are accepted.
    for options in (Options(**{name: values[name]}), Options(memory_pool_bytes=5)):
        dist.new_group(backend="aikido", pg_options=options)


def test_mistyped_variables_are_reported_once_at_the_first_group(monkeypatch):
    monkeypatch.setattr(_backend, "_runtimes", {})
    monkeypatch.setenv("AIKIDO_SOCKET_IFNAM", "lo")

    def make():
        dist.init_process_group("aikido", store=dist.HashStore(), rank=0, world_size=1)
        dist.destroy_process_group()

    with pytest.warns(UserWarning, match="AIKIDO_SOCKET_IFNAM is none of"):
        make()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*AIKIDO_")
        make()


class LostStore(dist.Store):
    """A store whose server closes the connection of every waiting rank."""

    def set(self, key, value):
        pass

    def wait(self, keys, timeout=None):
        raise RuntimeError("the server hung up\nException raised from recvBytes at x:1")


def test_the_error_of_a_lost_store_ends_with_its_cause_and_without_a_stack():
    with pytest.raises(TimedOutError) as caught:
        dist.init_process_group("aikido", store=LostStore(), rank=1, world_size=2)
    text = str(caught.value)
    assert 'the rendezvous store failed while "token" was waited for: ' in text
    assert text.endswith("the server hung up")


def test_a_group_calls_a_hook_once_before_it_ends():
    calls = []

    def hook(linger):
        tensor = torch.ones(2)
        dist.all_reduce(tensor)  # the group still works
        calls.append((linger.total_seconds(), tensor.tolist()))

    options = Options(shutdown_linger_ms=1500)
    dist.init_process_group(
        "aikido", store=dist.HashStore(), rank=0, world_size=1, pg_options=options
    )
    backend = _backend.backend_of(None)
    backend.set_end_hook(lambda _: calls.append("replaced"))
    backend.set_end_hook(hook)
    dist.destroy_process_group()
    backend.shutdown()
    assert calls == [(1.5, [1.0, 1.0])]


def test_a_second_thread_that_ends_a_group_waits_for_the_first(group_of_one):
    has_begun, may_end, has_returned = (threading.Event() for _ in range(3))

    def hook(_):
        has_begun.set()
        may_end.wait()

    def end_again():
        backend.shutdown()
        has_returned.set()

    backend = _backend.backend_of(group_of_one)
    backend.set_end_hook(hook)
    first, second = (threading.Thread(target=t) for t in (backend.shutdown, end_again))
    first.start()
    assert has_begun.wait(10.0)
    second.start()
    has_gone_on = has_returned.wait(0.2)
    may_end.set()
    first.join()
    second.join()
    assert not has_gone_on


def test_a_hook_may_end_its_group(group_of_one):
    backend = _backend.backend_of(group_of_one)
    backend.set_end_hook(lambda _: backend.shutdown())
    dist.destroy_process_group()


def test_the_error_of_a_hook_comes_when_the_group_has_ended(group_of_one):
    def hook(_):
        raise ConfigError("of the hook")

    backend = _backend.backend_of(group_of_one)
    backend.set_end_hook(hook)
    with pytest.raises(ConfigError, match="of the hook"):
        dist.destroy_process_group()
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(1))


@pytest.mark.parametrize("end", ["abort", "shut_down_family"])
def test_an_aborted_group_and_the_end_of_the_process_call_no_hook(group_of_one, end):
    backend = _backend.backend_of(group_of_one)
    backend.set_end_hook(pytest.fail)
    getattr(backend, end)()
    dist.destroy_process_group()


def test_the_options_of_a_group_are_known_by_its_backend(group_of_one):
    backend = _backend.backend_of(group_of_one)
    assert _backend.option_of(backend, "shutdown_linger_ms") == 5000
    group = dist.new_group(pg_options=Options(straggler_log_bytes=1 << 20))
    backend = _backend.backend_of(group)
    assert _backend.option_of(backend, "straggler_log_bytes") == 1 << 20

# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import socket

import torch.distributed as dist

from aikido_torch._store_end import ends_with_rank_0, is_served_here


def test_a_port_is_served_here_while_this_process_listens_on_it():
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as server:
            server.bind((host, 0))
            port = server.getsockname()[1]
            assert not is_served_here(port)
            server.listen()
            assert is_served_here(port)
        assert not is_served_here(port)


def test_a_store_of_torch_is_served_where_it_was_made():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    assert is_served_here(store.port)
    client = dist.TCPStore("127.0.0.1", store.port, is_master=False)
    assert ends_with_rank_0(store, 0, store.port)
    assert ends_with_rank_0(client, 1, client.port)


def test_other_ranks_learn_from_rank_0_that_the_store_continues():
    store = dist.HashStore()
    assert not ends_with_rank_0(store, 0, 1)  # no process listens on the port
    assert not ends_with_rank_0(store, 1, 1)

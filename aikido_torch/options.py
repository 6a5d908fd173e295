# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Settings of a group, for `init_process_group(..., pg_options=Options(...))`."""

from dataclasses import dataclass, fields

from aikido_torch import _C
from aikido_torch._names import guess, refuse_unknown_names
from aikido_torch.errors import ConfigError

__all__ = ["Options"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The value of one setting and its source."""

    name: str
    option: str
    variable: str
    value: int | str
    source: str  # "default", "environment" or "option"
    help: str


@refuse_unknown_names
@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a group. An option that is None comes from its variable, or default.

    `python -m aikido_torch.doctor` prints all of them with their variables, ranges and
    meaning. Bytes and milliseconds are whole numbers.

    Raises:
        ConfigError: a value is out of its range, and the text has both; or there is no
            such option, and the text has the nearest.
    """

    transport_chunk_bytes: int | None = None
    transport_eager_bytes: int | None = None
    transport_window_bytes: int | None = None
    transport_handshake_timeout_ms: int | None = None
    transport_shared_memory_bytes: int | None = None
    transport_credit_bytes: int | None = None
    transport_priority: int | None = None
    transport_spin_us: int | None = None
    heartbeat_interval_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    socket_ifname: str | None = None
    role: str | None = None
    collectives_min_shard_bytes: int | None = None
    collectives_lead_bytes: int | None = None
    collectives_algorithm: str | None = None
    devices_nccl: str | None = None
    devices_ipc: str | None = None
    straggler_log_bytes: int | None = None
    memory_pool_bytes: int | None = None
    shutdown_linger_ms: int | None = None

    def __post_init__(self) -> None:
        self.resolve()

    def given(self) -> dict[str, str]:
        """The options that were set in code, as text."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: str(value) for name, value in values.items() if value is not None}

    def resolve(self) -> list[Setting]:
        """Every setting with its value and source."""
        values = _C.resolve_settings(self.given())
        return [
            Setting(
                name=row["name"],
                option=row["option"],
                variable=row["variable"],
                value=values[row["option"]][0],
                source=values[row["option"]][1],
                help=row["help"],
            )
            for row in _C.settings_table()
        ]

    def value(self, option: str) -> int | str:
        """The value of one setting, from any source.

        Raises:
            ConfigError: there is no such option; the text suggests the nearest.
        """
        values = _C.resolve_settings(self.given())
        if option not in values:
            raise ConfigError(
                f"Options: there is no option {option!r}; {guess(str(option), values)}"
            )
        value: int | str = values[option][0]
        return value

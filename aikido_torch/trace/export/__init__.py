# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Traces for other programs and for people: files, pages, metrics and requests."""

__all__: list[str] = []

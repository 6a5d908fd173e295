# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Data of the small models for measuring training (models.py).

The data exist on every machine: scikit-learn's handwritten digits, and Python's own
reference text. So the text differs slightly between versions of Python, but the ranks
of one run read the same file. This file does not import torch, for processes that only
start ranks.
"""

import dataclasses
import enum
from collections.abc import Callable
from pathlib import Path

import numpy as np

TEST_SHARE = 0.25
# Characters before the predicted one, and length of the text.
CONTEXT = 24
TEXT_LENGTH = 60_000
# Characters of the text; all others become a space.
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))


class Task(enum.StrEnum):
    """Data to learn."""

    DIGITS = "digits"
    TEXT = "text"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Source of the data, and training options of its model in models.py.

    Attributes:
        save: writes train_x, train_y, test_x, test_y to a file, split by a seed.
        learning_rate: for SGD with momentum 0.9.
        target_accuracy: accuracy on the test data up to which a run is timed.
    """

    save: Callable[[Path, int], None]
    learning_rate: float
    target_accuracy: float


def save_digits(path: Path, seed: int) -> None:
    """Splits the images into training and test data, by the seed."""
    from sklearn.datasets import load_digits  # slow to import: not in every rank

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng((seed, 0)).permutation(len(labels))
    images = (images[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    _save(path, images, labels[order].astype(np.int64))


def read_text(length: int = TEXT_LENGTH) -> np.ndarray:
    """The beginning of Python's reference, as indices of characters in ALPHABET."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))[:length]
    numbers = {character: i for i, character in enumerate(ALPHABET)}
    space = numbers[" "]
    return np.array([numbers.get(c, space) for c in text], dtype=np.int64)


def save_text(path: Path, seed: int) -> None:
    """Contexts and the next character, shuffled by the seed.

    The test data is a separate part of the text, so the training has seen no context of
    it.
    """
    text = read_text()
    windows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)
    num_train = round(len(windows) * (1 - TEST_SHARE))
    order = np.random.default_rng((seed, 0)).permutation(num_train - CONTEXT)
    train, test = windows[order], windows[num_train::8]
    np.savez(
        path,
        train_x=train[:, :CONTEXT],
        train_y=train[:, CONTEXT],
        test_x=test[:, :CONTEXT],
        test_y=test[:, CONTEXT],
    )


def _save(path: Path, inputs: np.ndarray, labels: np.ndarray) -> None:
    num_train = round(len(labels) * (1 - TEST_SHARE))
    np.savez(
        path,
        train_x=inputs[:num_train],
        train_y=labels[:num_train],
        test_x=inputs[num_train:],
        test_y=labels[num_train:],
    )


RECIPES = {
    Task.DIGITS: Recipe(save_digits, 0.05, 0.95),
    Task.TEXT: Recipe(save_text, 0.2, 0.3),
}

# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Patterns that make a sentence hard to read, with the rule that each one breaks.

The reader is an engineer who knows PyTorch and reads English as a second language.
"""

import re
from collections.abc import Iterator

MOST_WORDS = 40  # the rule for writers says 25; names, numbers and lists add some

NAME_THE_SUBJECT = "name the noun: 'the leaving rank', not 'who leaves'"
REPEAT_THE_NOUN = "repeat the noun: 'a rank that', not 'one that'"
SPLIT = f"one idea per sentence; this one has more than {MOST_WORDS} words"
FIELD_WORD = "use the usual word of the field, as in CONTRIBUTING.md"
MAIN_CLAUSE_FIRST = "main clause first: 'Returns X if ...', not 'Where ..., X'"

_TOKEN = re.compile(r"[A-Za-z][A-Za-z'-]*|[.,:;()!?\"-]")
# A noun before the word "who" is its antecedent. These words are not nouns.
_NO_NOUN = frozenset(
    re.split(
        " ",
        "of for by to from with without and or nor than but as is are was were be that "
        "if where when while on in into at behind before after between beside besides "
        "against over under all since because until unless so then like not only just "
        "also even about per via upon through which must can may does do "
        ', : ; ( ) . - " ! ?',
    )
)
# "The log says who was late" is an indirect question, which is plain English.
_ASKS = re.compile(
    r"(?:sa(?:y|ys|id|ying)|tell(?:s|ing)?|know(?:s|n|ing)?|show(?:s|ing)?|see|decided?s?"
    r"|asks?|asked|checks?|chooses?|describes?|explains?|determines?|matter|learns?|guess"
    r"|understand|defines?|prints?|remember)"
)
_FREE = frozenset(("who", "whoever", "whose", "whom", "what", "whatever"))
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_PRIVATE = re.compile(
    r"\b(?:(?:is|are|was|were|been|be|not) had|passed over|mend(?:s|ed|ing)?|haste"
    r"|untold|settled|scarce|trays?|outbox(?:es)?|doorbells?|uplink credit"
    r"|even feed|relay feed|lead window)\b",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\b(?:ones?|those|another one) (?:that|of which|which)\b", re.I)
_FRAGMENT = re.compile(r"^(?:Of|Whether)\b.*[^?]$")
_WHERE_FIRST = re.compile(r"^Where\b[^,?]*,")


def findings(sentence: str) -> Iterator[tuple[str, str]]:
    """(words that break a rule, advice) for each break in a sentence."""
    for words in _free_relatives(sentence):
        yield words, NAME_THE_SUBJECT
    for match in _FRAGMENT.finditer(sentence):
        yield match.group().split()[0], NAME_THE_SUBJECT
    for match in _PRONOUN.finditer(sentence):
        yield match.group(), REPEAT_THE_NOUN
    for match in _PRIVATE.finditer(sentence):
        yield match.group(), FIELD_WORD
    if _WHERE_FIRST.match(sentence):
        yield "Where", MAIN_CLAUSE_FIRST
    if len(_WORD.findall(sentence)) > MOST_WORDS:
        yield sentence, SPLIT


def _free_relatives(sentence: str) -> Iterator[str]:
    if sentence.endswith("?"):
        return
    tokens = _TOKEN.findall(sentence)
    for place, token in enumerate(tokens):
        word = token.lower()
        before = tokens[place - 1].lower() if place else "."
        if word not in _FREE or _ASKS.fullmatch(before):
            continue
        if word.startswith("what") or before in _NO_NOUN:
            yield " ".join(tokens[max(0, place - 1) : place + 3])

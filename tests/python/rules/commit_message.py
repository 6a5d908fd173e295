# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Check of a commit message, for the commit-msg hook of pre-commit.

python tests/python/rules/commit_message.py .git/COMMIT_EDITMSG
"""

import re
import sys
from pathlib import Path

MOST_CHARACTERS = 65
# First words of a subject that are not a verb in the imperative.
_NO_VERB = re.compile(
    r"(a|an|the|no|all|more|less|one|two|who|whoever|what|whose|of|as|where|when|if"
    r"|that|this|these|in|on|with|without)$|.*([^s]s|ed|ing)$"
)
_VERBS = frozenset(("feed", "need", "seed", "speed", "embed", "bring", "focus", "bias"))


def complaints(message: str) -> list[str]:
    """One sentence for each rule that the message breaks; empty if it breaks none."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return []
    found = []
    if len(subject) > MOST_CHARACTERS:
        found.append(
            f"the subject has {len(subject)} characters; it takes {MOST_CHARACTERS}"
        )
    part, colon, rest = subject.partition(": ")
    if not colon or not rest or " " in part.replace(", ", ""):
        found.append(f"the subject is {subject!r}; write 'part: imperative subject'")
    else:
        verb = rest.split()[0]
        if verb[0].isupper() or (_NO_VERB.match(verb) and verb not in _VERBS):
            found.append(
                f"the subject begins with {verb!r}; begin with an imperative, such as "
                "'bound' or 'show'"
            )
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line has text; leave it empty, and write why below")
    return found


def main() -> int:
    """Prints the complaints about the file of the command line."""
    found = complaints(Path(sys.argv[1]).read_text())
    for complaint in found:
        print(f"commit message: {complaint} (CONTRIBUTING.md, Commits)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

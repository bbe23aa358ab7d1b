"""Until when stored labels are those of an earlier release, from marks next to those of what was read. Pure.

Only what is read again is labelled by the current rules; an upgrade does not read the history again by itself.
"""

from __future__ import annotations

OUTDATED = "outdated labels"


def outdated_until_s(read_s: int | None, labelled_s: int | None, marked_s: int | None) -> int | None:
    """Return until when labels may be an earlier release's (unix seconds); None if there are none.

    Accounting was read until `read_s`, and until `labelled_s` by this release or one with the same labels;
    `marked_s` is the result before that, 0 for none.
    """
    behind_s = read_s if read_s is not None and (labelled_s is None or labelled_s < read_s) else 0
    return max(marked_s or 0, behind_s) or None


def still_outdated_s(outdated_s: int, begin_s: int, end_s: int, earliest_s: int | None) -> int:
    """Return until when labels are outdated after everything from `begin_s` to `end_s` was read again; 0 for none.

    `earliest_s` is the earliest end of all stored attempts.
    """
    if end_s < outdated_s:
        return outdated_s
    return 0 if earliest_s is None or earliest_s >= begin_s else min(outdated_s, begin_s)

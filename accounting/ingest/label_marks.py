"""Until when labels are an earlier release's, by marks beside that of what was read. Pure.

What is read again is labelled by the rules of now, and only that is: an upgrade reads no history again by itself.
"""

from __future__ import annotations

OUTDATED = "outdated labels"


def outdated_until_s(read_s: int | None, labelled_s: int | None, marked_s: int | None) -> int | None:
    """Return until when labels may be an earlier release's (unix seconds); None where there are none of those.

    Accounting was read until `read_s`, until `labelled_s` by this release or one with its labels; `marked_s` is what
    was outdated before that, 0 for nothing.
    """
    is_behind = read_s is not None and (labelled_s is None or labelled_s < read_s)
    return max(marked_s or 0, (read_s or 0) if is_behind else 0) or None


def still_outdated_s(outdated_s: int, begin_s: int, end_s: int, earliest_s: int | None) -> int:
    """Return what is outdated once all from `begin_s` until `end_s` was read again; 0 for nothing.

    `earliest_s` is when the first of all attempts that are stored ended.
    """
    if end_s < outdated_s:
        return outdated_s
    return 0 if earliest_s is None or earliest_s >= begin_s else min(outdated_s, begin_s)

"""EASY backfill on one pool of CPUs, written to be plain: whole numbers, lists, everything worked out again each time.

It shares no code with the simulator, so that both agree only where both are right (or wrong in the same way).
"""

from __future__ import annotations


def naive_easy(
    submit_s: list[int], run_s: list[int], limit_s: list[int], cpus: list[int], pool: int
) -> list[int | None]:
    """Return when each job starts; None for one that requests more than there is."""
    starts: list[int | None] = [None] * len(submit_s)
    waiting: list[int] = []
    running: list[int] = []
    moments = set(submit_s)
    while moments:
        now = min(moments)
        moments.discard(now)
        running = [job for job in running if (starts[job] or 0) + run_s[job] > now]
        waiting += [job for job, at in enumerate(submit_s) if at == now and cpus[job] <= pool]
        for job in _to_start(now, waiting, running, starts, limit_s, cpus, pool):
            starts[job] = now
            waiting.remove(job)
            running.append(job)
            moments.add(now + run_s[job])
    return starts


def _to_start(
    now: int,
    waiting: list[int],
    running: list[int],
    starts: list[int | None],
    limit_s: list[int],
    cpus: list[int],
    pool: int,
) -> list[int]:
    chosen: list[int] = []
    free = pool - sum(cpus[job] for job in running)
    queue = list(waiting)
    while queue and cpus[queue[0]] <= free:
        free -= cpus[queue[0]]
        chosen.append(queue.pop(0))
    if not queue:
        return chosen
    head = queue.pop(0)
    ends = sorted(
        [((starts[job] or 0) + limit_s[job], cpus[job]) for job in running]
        + [(now + limit_s[job], cpus[job]) for job in chosen]
    )
    then_free, shadow = free, now
    for end, given in ends:
        if then_free >= cpus[head] and end > shadow:
            break
        then_free, shadow = then_free + given, end
    extra = then_free - cpus[head]
    for job in queue:
        if cpus[job] > free:
            continue
        if now + limit_s[job] <= shadow:
            free -= cpus[job]
            chosen.append(job)
        elif cpus[job] <= extra:
            free -= cpus[job]
            extra -= cpus[job]
            chosen.append(job)
    return chosen

"""A round by deadlines: tells models/scheduling/deadlines.py what waits and runs, and starts the jobs it chooses."""

from __future__ import annotations

import msgspec

from accounting.errors import ModelError
from models.scheduling.deadlines import Job, decide, told
from models.scheduling.lanes import Busy, Pool
from models.scheduling.room import Room
from models.simulation.devices import Devices
from models.simulation.queue import NUMBER
from models.simulation.state import State


def by_deadline(state: State, now_s: float) -> None:
    """Start the jobs that the policy starts; jobs that fit no pool of like nodes start wherever there is room."""
    devices = state.devices
    if devices is None:
        raise ModelError(
            "a round by deadlines needs to know devices; simulate with the policy's start `deadlines`"
        )
    # Which jobs may run into one window together is only known once each has started.
    while _decided(state, devices, now_s):
        pass
    _spread(state, devices, now_s)


def _decided(state: State, devices: Devices, now_s: float) -> bool:
    """Start the jobs that the policy starts; return whether to ask it again: some started, and others were refused."""
    numbers = state.queue.ints[NUMBER].tolist()
    jobs = [_job(state, devices, position, number, now_s) for position, number in enumerate(numbers)]
    works_s = [devices.came(job, now_s) for job in jobs]
    most_s = devices.pressure.most_s(now_s)
    jobs = [
        msgspec.structs.replace(job, large=True) if work_s >= most_s else job
        for job, work_s in zip(jobs, works_s, strict=True)
    ]
    terms = msgspec.structs.replace(devices.terms, spare_share=devices.spare_share(most_s))
    position_of = {number: position for position, number in enumerate(numbers)}
    refused, gone = False, []
    pools = _pools(state, devices, now_s)
    for decision in decide(now_s, state.room, jobs, pools, state.place, terms):
        if decision.number == devices.explained:
            devices.why = told(decision, pools, jobs[position_of[decision.number]], now_s)
        if decision.parts is None:
            continue
        position = position_of[decision.number]
        if state.usable(state.kind(state.queue, position, now_s)).holds(decision.parts):
            state.launch(decision.number, decision.parts)
            devices.started(decision)
            gone.append(position)
        else:
            refused = True
    state.queue.remove_all(gone)
    return refused and bool(gone)


def _spread(state: State, devices: Devices, now_s: float) -> None:
    """Start jobs that fit no pool of like nodes wherever there is room; if nothing runs, any job."""
    gone: list[int] = []
    for position, number in enumerate(state.queue.ints[NUMBER].tolist()):
        demand = state.waiting[number].demand
        fits_one = any(devices.holds(demand, state.place))
        if not state.running or not fits_one:
            parts = state.place(state.usable(state.kind(state.queue, position, now_s)), demand)
            if parts is not None:
                state.launch(number, parts)
                gone.append(position)
                if number == devices.explained:
                    because = "nothing else runs" if fits_one else "it fits on no device by itself"
                    devices.why = f"starts wherever there is room: {because}"
    state.queue.remove_all(gone)


def _job(state: State, devices: Devices, position: int, number: int, now_s: float) -> Job:
    waiting = state.waiting[number]
    usable = None
    if state.windows is not None:
        kind = state.kind(state.queue, position, now_s)

        def usable(room: Room) -> Room:
            return room.within(*bounds) if (bounds := state.bounds(kind)) else room

    return Job(
        number=number,
        deadline_s=waiting.deadline_s,
        demand=waiting.demand,
        run_s=devices.run_s(number, waiting, state.place),
        usable=usable,
    )


def _pools(state: State, devices: Devices, now_s: float) -> list[Pool]:
    """Return the pools with what runs in each, in the order of expected ends."""
    busy: list[list[Busy]] = [[] for _ in devices.pools]
    for ending in state.endings:
        spare = ending.number in devices.spare
        for node, amounts in ending.parts:
            busy[devices.pool_of[node]].append(Busy(ending.end_s, amounts, spare))
    return [
        msgspec.structs.replace(pool, busy=tuple(running), left_s=devices.left_s(pool, now_s))
        for pool, running in zip(devices.pools, busy, strict=True)
    ]

"""A model of how replicas share a server that keeps state, small enough to look at every run there is.

A server over stdio has its memory in one process, so only one replica may run it: its *owner*. The others
send their calls to the owner. Replicas die and pause, messages are lost, the clock of the store is set. These
are the rules that keep a call from running twice; `test_model.py` searches all runs of up to three replicas,
two calls and a few faults, and shows what goes wrong without each rule.

**The lease.** The owner holds a lease in the store, which ends `LEASE` after the store noted its last
renewal. Its fencing token is higher than that of every earlier holder, and only the holder of the newest one
renews. A lease that ended and was not taken by another can still be renewed.

**The guardian's deadline.** No token can fence a pipe: a process takes what is written to it. So the process
has a deadline, `DEADLINE` after the owner *asked* the store for the lease or its renewal, which is earlier
than the lease ends whenever the store's answer comes. The guardian, a process of its own, ends the server
at the deadline, even while its host is paused. The deadline is a time, not a span: it does not move when the
owner pauses between the store's answer and its message to the guardian.

**Who runs a call.** A replica with a call looks up the holder of the lease. It is the holder itself: the call
is written to the process. It is another: the call goes to that replica as one HTTP exchange. The lease is
free: the replica takes it, starts a process, and then is the holder.

**The first byte.** A connection that is refused, and the answer "I am not the owner", mean that the call was
not sent: the replica looks up the holder again. Once the request's first byte is on its way, silence means
`unknown`. The call is not repeated, and a late answer is dropped with its exchange.

**One exchange, one call.** An answer belongs to the call of the exchange that it comes in.

**A clean stop.** The process ends first, then the lease is released.

A store that does not answer needs no case of its own: it is a renewal that does not happen, or an answer
that is never read. Nor does a slow message: what waits may wait for any number of ticks.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

LEASE = 3
"""Ticks that a lease lasts in the store."""
DEADLINE = 2
"""Ticks that a process may run after the store was asked. Less than the lease: that is the margin."""
MAX_ATTEMPTS = 2
"""How often a replica looks for an owner before it gives up: so often is enough to do harm."""

Condition = Literal["running", "paused", "dead"]
Outcome = Literal["unsent", "deciding", "sent", "answered", "unknown", "not_sent"]


class Rules(NamedTuple):
    """The rules in force; a test takes out one at a time. The others are the size of the model."""

    guardian_has_deadline: bool = True
    silence_is_unknown: bool = True
    answers_belong_to_exchanges: bool = True
    process_ends_before_release: bool = True
    replicas: int = 2
    calls: int = 2
    faults: int = 2
    leases: int = 2
    """How often a replica may take the lease: the first owner, and those that take over."""
    clock_step: int = 0
    """Ticks by which the clock of the store may be set, once."""


class Copy(NamedTuple):
    """A request on its way: of which call, in which of its attempts, and from which replica."""

    call: int
    attempt: int
    origin: int


class Answer(NamedTuple):
    """An answer on its way: what it says (the call that was run), and the exchange it comes in."""

    says: int
    exchange: Copy
    owner: int


class Replica(NamedTuple):
    """One gateway process, and the server process below its guardian."""

    condition: Condition = "running"
    token: int = 0
    """The fencing token of the lease that it believes to hold; 0 for none."""
    granted: int = 0
    """The token in an answer of the store that it has not read yet; 0 for none."""
    asked: int = 0
    """How many ticks ago it asked for that."""
    left: int = 0
    """Ticks until the deadline that the guardian was told."""
    has_process: bool = False
    pipe: tuple[Copy, ...] = ()
    """What was written to the process, and not read by it."""


class Call(NamedTuple):
    """A client's call: where it was sent, what its client knows, and how often it was run."""

    origin: int = -1
    outcome: Outcome = "unsent"
    attempt: int = 0
    runs: int = 0
    answer: int = -1
    """The call whose answer it got."""


class System(NamedTuple):
    """Everything at one moment."""

    replicas: tuple[Replica, ...]
    calls: tuple[Call, ...]
    holder: int = -1
    """The replica that the store gave the newest token to; -1 after a release."""
    token: int = 0
    lease_left: int = 0
    requests: frozenset[tuple[Copy, int]] = frozenset()
    """Requests between replicas, each with the replica it goes to."""
    answers: frozenset[Answer] = frozenset()
    faults: int = 0
    clock_step: int = 0

    def with_replica(self, number: int, replica: Replica) -> "System":
        """The same, apart from one replica."""
        before, after = self.replicas[:number], self.replicas[number + 1 :]
        return self._replace(replicas=(*before, replica, *after))

    def with_call(self, number: int, call: Call) -> "System":
        """The same, apart from one call."""
        before, after = self.calls[:number], self.calls[number + 1 :]
        return self._replace(calls=(*before, call, *after))

    def is_waiting(self, copy: Copy) -> bool:
        """Whether the exchange of a request is still open at the replica it came from."""
        call = self.calls[copy.call]
        is_open = call.outcome == "sent" and call.attempt == copy.attempt
        return is_open and self.replicas[copy.origin].condition != "dead"


Step = tuple[str, System]


def first_state(rules: Rules) -> System:
    """Replicas that run, and calls that no client has sent yet."""
    return System(
        replicas=(Replica(),) * rules.replicas,
        calls=(Call(),) * rules.calls,
        faults=rules.faults,
        clock_step=rules.clock_step,
    )


def broken_rule(system: System) -> str | None:
    """What must not be in any state."""
    if any(call.runs > 1 for call in system.calls):
        return "a call was run twice"
    if any(call.answer not in (-1, number) for number, call in enumerate(system.calls)):
        return "a call was answered with another's answer"
    if any(call.outcome == "not_sent" and call.runs for call in system.calls):
        return "a call that was run is said not to have been sent"
    if sum(replica.has_process for replica in system.replicas) > 1:
        return "two processes take calls at the same time"
    return None


def goals(system: System) -> Iterator[str]:
    """What some run has to reach, so that the model is known to do something."""
    answered = [call for call in system.calls if call.outcome == "answered"]
    if len(answered) == len(system.calls):
        yield "all calls answered"
    if any(call.origin != system.holder for call in answered):
        yield "answered by way of the owner"
    if answered and system.token > 1:
        yield "answered after a takeover"
    if any(call.outcome == "unknown" and call.runs for call in system.calls):
        yield "unknown, and it was run"


def successors(rules: Rules, system: System) -> Iterator[Step]:
    """Everything that can happen next."""
    yield _tick(rules, system)
    for number, replica in enumerate(system.replicas):
        if replica.condition == "running":
            yield from _keep_lease(rules, system, number, replica)
        if replica.has_process and replica.pipe:
            yield _run_call(system, number, replica)
    for number, call in enumerate(system.calls):
        yield from _go_on(rules, system, number, call)
    for copy, owner in system.requests:
        yield from _receive_request(system, copy, owner)
    for answer in system.answers:
        yield from _receive_answer(rules, system, answer)
    yield from _faults(system)


# Time, the store and the guardian.


def _tick(rules: Rules, system: System) -> Step:
    """One unit of time passes for every clock. Processes whose deadline that is are gone."""
    replicas = tuple(_pass_time(rules, replica) for replica in system.replicas)
    return "a tick passes", system._replace(replicas=replicas, lease_left=max(0, system.lease_left - 1))


def _pass_time(rules: Rules, replica: Replica) -> Replica:
    left = max(0, replica.left - 1)
    ends = replica.condition == "dead" or (rules.guardian_has_deadline and left == 0)
    if replica.has_process and not ends and left == 0 and replica.condition == "running":
        ends = True  # without a guardian that knows the deadline, the host ends its process where it can
    asked = min(DEADLINE, replica.asked + 1) if replica.granted else 0
    if ends:
        left = 0 if replica.condition == "dead" else left
        return replica._replace(left=left, asked=asked, has_process=False, pipe=())
    return replica._replace(left=left, asked=asked)


def _keep_lease(rules: Rules, system: System, number: int, replica: Replica) -> Iterator[Step]:
    name = f"replica {number}"
    if replica.granted:
        # The deadline counts from the question, however late the answer is read.
        left = max(0, DEADLINE - replica.asked)
        read = replica._replace(token=replica.granted, granted=0, asked=0, left=left)
        if left or not replica.has_process:
            yield f"{name} reads that it holds lease {replica.granted}", system.with_replica(number, read)
    elif replica.token and replica.token == system.token and system.holder == number:
        asking = replica._replace(granted=replica.token, asked=0)
        renewed = system.with_replica(number, asking)._replace(lease_left=LEASE)
        yield f"{name} asks to renew its lease, and the store does", renewed
    elif replica.token:
        lost = replica._replace(token=0, left=0, has_process=False, pipe=())
        yield f"{name} learns that its lease is lost, and ends its process", system.with_replica(number, lost)
    if replica.token and replica.left and not replica.has_process:
        yield f"{name} starts a process", system.with_replica(number, replica._replace(has_process=True))
    if replica.token and replica.token == system.token and not replica.granted and not replica.pipe:
        yield from _stop_cleanly(rules, system, number, replica)


def _stop_cleanly(rules: Rules, system: System, number: int, replica: Replica) -> Iterator[Step]:
    name = f"replica {number}"
    released = system._replace(holder=-1, lease_left=0)
    if replica.has_process and rules.process_ends_before_release:
        ended = replica._replace(has_process=False)
        yield f"{name} ends its process cleanly", system.with_replica(number, ended)
    else:
        gone = replica._replace(token=0, left=replica.left if replica.has_process else 0)
        yield f"{name} releases its lease", released.with_replica(number, gone)


# Calls.


def _go_on(rules: Rules, system: System, number: int, call: Call) -> Iterator[Step]:
    if call.outcome == "unsent":
        yield from _send_from_client(system, number, call)
        return
    replica = system.replicas[call.origin]
    if replica.condition != "running":
        return
    if call.outcome == "deciding":
        yield from _send(rules, system, number, call)
    elif call.outcome == "sent":
        label = f"replica {call.origin} hears nothing about call {number}"
        if rules.silence_is_unknown:
            yield f"{label}: unknown", _end_call(system, number, "unknown")
        elif call.attempt < MAX_ATTEMPTS:
            yield f"{label}: it is sent again", system.with_call(number, _next_attempt(call))


def _send_from_client(system: System, number: int, call: Call) -> Iterator[Step]:
    """A client sends a call to any replica. All are alike at first, so the first call goes to replica 0."""
    if number and system.calls[number - 1].outcome == "unsent":
        return  # the numbers of calls are the order they are sent in
    for origin, replica in enumerate(system.replicas[: len(system.replicas) if number else 1]):
        if replica.condition != "dead":
            sent = call._replace(origin=origin, outcome="deciding", attempt=1)
            yield f"a client sends call {number} to replica {origin}", system.with_call(number, sent)


def _end_call(system: System, number: int, outcome: Outcome, answer: int = -1) -> System:
    """Tell the client. Answers that come now are dropped with their exchange; requests may still be run."""
    ended = system.with_call(number, system.calls[number]._replace(outcome=outcome, answer=answer, attempt=0))
    return ended._replace(answers=frozenset(each for each in system.answers if each.exchange.call != number))


def _next_attempt(call: Call) -> Call:
    if call.attempt == MAX_ATTEMPTS:
        return call._replace(outcome="not_sent")
    return call._replace(outcome="deciding", attempt=call.attempt + 1)


def _send(rules: Rules, system: System, number: int, call: Call) -> Iterator[Step]:
    origin, name = call.origin, f"replica {call.origin}"
    replica = system.replicas[origin]
    copy = Copy(number, call.attempt, origin)
    sent = system.with_call(number, call._replace(outcome="sent"))
    if replica.token:
        if replica.has_process and replica.left:
            writing = replica._replace(pipe=(*replica.pipe, copy))
            yield f"{name} writes call {number} to its process", sent.with_replica(origin, writing)
    elif system.lease_left == 0:
        if not replica.granted and system.token < rules.leases:
            token = system.token + 1
            taken = system._replace(token=token, holder=origin, lease_left=LEASE)
            asking = replica._replace(granted=token, asked=0)
            yield (
                f"{name} asks for the lease, and the store gives {token}",
                taken.with_replica(origin, asking),
            )
    elif system.holder != origin:
        if system.replicas[system.holder].condition == "dead":
            refused = system.with_call(number, _next_attempt(call))
            yield f"{name} is refused a connection to replica {system.holder}", refused
        else:
            on_its_way = sent._replace(requests=system.requests | {(copy, system.holder)})
            yield f"{name} sends call {number} to replica {system.holder}", on_its_way


def _receive_request(system: System, copy: Copy, owner: int) -> Iterator[Step]:
    replica = system.replicas[owner]
    if replica.condition != "running":
        return
    rest = system._replace(requests=system.requests - {(copy, owner)})
    if replica.token and replica.left:
        if replica.has_process:
            writing = replica._replace(pipe=(*replica.pipe, copy))
            label = f"replica {owner} writes call {copy.call} of replica {copy.origin} to its process"
            yield label, rest.with_replica(owner, writing)
        return
    label = f"replica {owner} refuses call {copy.call}: it is not the owner"
    if rest.is_waiting(copy):
        yield label, rest.with_call(copy.call, _next_attempt(rest.calls[copy.call]))
    else:
        yield label, rest


def _run_call(system: System, number: int, replica: Replica) -> Step:
    """The process reads a call from its pipe, runs it and writes the answer; its host may be paused."""
    copy, *rest = replica.pipe
    call = system.calls[copy.call]
    ran = system.with_call(copy.call, call._replace(runs=min(2, call.runs + 1)))
    ran = ran.with_replica(number, replica._replace(pipe=tuple(rest)))
    if system.is_waiting(copy):
        answer = Answer(says=copy.call, exchange=copy, owner=number)
        ran = ran._replace(answers=system.answers | {answer})
    return f"the process of replica {number} runs call {copy.call}", ran


def _receive_answer(rules: Rules, system: System, answer: Answer) -> Iterator[Step]:
    """The owner passes an answer on, and the replica that waits for it gives it to its client."""
    origin = answer.exchange.origin
    if any(system.replicas[number].condition != "running" for number in (answer.owner, origin)):
        return
    number = answer.exchange.call
    if not rules.answers_belong_to_exchanges:
        # One stream of answers between two replicas: the first that comes is for the first that waits.
        number = next(
            n for n, each in enumerate(system.calls) if (each.origin, each.outcome) == (origin, "sent")
        )
    rest = system._replace(answers=system.answers - {answer})
    label = f"replica {origin} gets the answer of call {answer.says} for call {number}"
    yield label, _end_call(rest, number, "answered", answer.says)


# Faults.


def _faults(system: System) -> Iterator[Step]:
    for number, replica in enumerate(system.replicas):
        if replica.condition == "paused":
            running = replica._replace(condition="running")
            yield f"replica {number} goes on", system.with_replica(number, running)
    if not system.faults:
        return
    less = system._replace(faults=system.faults - 1)
    if system.clock_step and system.lease_left:
        early = max(0, system.lease_left - system.clock_step)
        yield "the clock of the store is set", less._replace(lease_left=early, clock_step=0)
    for number, replica in enumerate(system.replicas):
        if replica.condition == "running":
            paused = replica._replace(condition="paused")
            yield f"replica {number} is paused", less.with_replica(number, paused)
        if replica.condition != "dead":
            yield _kill(less, number, replica)
    for request in system.requests:
        label = f"call {request[0].call} is lost on its way to replica {request[1]}"
        yield label, less._replace(requests=system.requests - {request})
    for answer in system.answers:
        label = f"the answer of call {answer.says} is lost"
        yield label, less._replace(answers=system.answers - {answer})


def _kill(system: System, number: int, replica: Replica) -> Step:
    """End a replica. Its process lives until the guardian has ended it, a tick at most."""
    dead = Replica(condition="dead", left=replica.left, has_process=replica.has_process, pipe=replica.pipe)
    killed = system.with_replica(number, dead)
    for call_number, call in enumerate(system.calls):
        if call.origin == number and call.outcome in ("deciding", "sent"):  # its client's connection ends
            killed = _end_call(killed, call_number, "unknown")
    requests = frozenset(each for each in system.requests if number != each[1])  # its own may still arrive
    answers = frozenset(each for each in killed.answers if number != each.owner)
    return f"replica {number} is killed", killed._replace(requests=requests, answers=answers)

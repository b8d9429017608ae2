"""One gateway of several processes on one machine: `fairlead gateway --workers`.

A supervisor (`pool`) owns the port and the worker processes. It accepts connections, reads nothing of them,
and hands each to the worker with the fewest (`handover`). A worker (`member`) is an ordinary gateway that is
given its connections. What one worker keeps, such as a client's session, has that worker's number in its id
(`gateway/worker_ids.py`): a request for it that came to another worker goes on to its owner, with the
connection it came on (`passing`). `messages` is how workers ask each other, for the dashboard say.
"""

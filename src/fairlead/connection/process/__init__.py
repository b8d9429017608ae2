"""Server processes: started below a guardian, sandboxed, and ended with all their descendants.

`child` is the interface for any system, with the environment and the `ProcessLease`; `posix` and `windows`
implement it. On POSIX `guardian` is the host's side of the process in `reaper`, a program of the standard
library alone. `sandbox` builds the command line of bubblewrap, `stderr` keeps what a process writes.
"""

"""One file per command, `<name>_.py`, with a click command of that name."""

"""The built-in `shell` server: commands in a sandbox that can change the repository, and little else.

`tools` has the tool, `command` runs one command, and `guard` keeps what programs outside the sandbox would
act on (`survey`) as it was.
"""

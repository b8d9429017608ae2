"""The command line.

`main.main` finds a command in `commands/` and loads that one alone. `options` has the options that commands
share, `catalogs`, `logins` and `review` what several of them do, `completion` that of the shell. A gateway
is run by `gateway_serving` and `gateway_workers` (in the foreground) and `gateway_service` (in the
background).
"""

"""What the command line and the console share: output, tables, prompts, exit statuses, running a host.

Renders what `actions` return. `output` and `exit_codes` load nothing heavy, so that `--help` stays quick.
"""

"""Parts that the command line and the console share: output, tables, prompts, exit statuses, the event loop.

Renders what `actions` return. `output` and `exit_codes` load nothing heavy, so that `--help` stays quick.
"""

"""The interactive terminal host: `fairlead console`.

`app` runs it: `prompt` is the one reader of the terminal, `lines` executes what is typed, by a verb of
`verbs/` or as a message of `conversation`, and `hosting` starts the host in the background. `screen` and
`render` print.
"""

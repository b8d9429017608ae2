"""The built-in `repo` server: files and search below confined folders.

`folders.Confinement` is the only way to a file; `files` has the tools that read and list, `ripgrep` the one
that searches, by an engine of `engines`: ripgrep, or `scan` in Python, each confined by `landlock`.
"""

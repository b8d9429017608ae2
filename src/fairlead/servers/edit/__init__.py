"""The built-in `edit` server: create, change, move and delete files below confined folders, with undo.

`tools` has the tools, `changes` applies and reverts, `patch` reads unified diffs, and `diffs` shows changes
to the user who decides about them.
"""

"""What a user can do, one function each, for every surface.

An action picks the file to edit, makes the edit, writes the audit record and returns a value. It prints
nothing and asks nothing: the command line, the console and the dashboard call it and render what it returns.
`context` says for whom, with which configuration, and how an edit takes effect there.
"""

"""Tools from a folder of Python files, served by a process of their own.

`supervisor.py` is the process that a host starts: it forks `worker.py`, which runs the files one by one and
serves their tools, and forks it again without a file that hangs or ends it. The files come as an archive
(`fairlead.config.extension_files`), which is read once; nothing of the folder is.
"""

"""The built-in `repo` server: files and search below confined folders."""

"""The built-in `edit` server: create, change, move and delete files below confined folders, with undo."""

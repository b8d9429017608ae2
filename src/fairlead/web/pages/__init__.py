"""The dashboard's pages, one per file: functions that answer a request with HTML."""

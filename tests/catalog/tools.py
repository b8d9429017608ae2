"""A few servers' tools to search among, all made up here."""

from typing import Any

from fairlead.catalog.search.index import SearchDocument
from fairlead.catalog.tools import ToolKey

ABOUT = {
    "serena": "Navigate and edit source code by its symbols.",
    "github": "Work with repositories, issues and pull requests on GitHub.",
    "slack": "Read and write messages in Slack channels.",
    "weather": "Forecasts for any place on earth.",
    "fs": "Files on this machine.",
    "tickets": "The help desk of the company.",
}


def document(server: str, name: str, description: str = "", **rest: Any) -> SearchDocument:
    """A tool. Further arguments are its parameters, each with its schema."""
    return SearchDocument(
        key=ToolKey(server, name),
        name=name,
        description=description,
        input_schema={"type": "object", "properties": rest},
        server_description=ABOUT.get(server, ""),
    )


TEXT = {"type": "string"}

TOOLS = [
    document("serena", "find_symbol", "Look up a class or function by name.", name_path=TEXT),
    document(
        "serena", "find_referencing_symbols", "List the places where something is used.", name_path=TEXT
    ),
    document("serena", "rename_symbol", "Give a class or function another name.", name_path=TEXT),
    document("github", "create_issue", "Open an issue in a repository.", title=TEXT, repo=TEXT),
    document("github", "list_issues", "List the issues of a repository.", repo=TEXT),
    document("github", "create_pull_request", "Propose changes to a repository.", head=TEXT, base=TEXT),
    document("github", "search_code", "Search for code in all repositories.", query=TEXT),
    document("slack", "postMessage", "Post to a channel.", channel={**TEXT, "description": "Where to post."}),
    document("slack", "listChannels", "List all channels."),
    document("weather", "get_forecast", "Get the weather forecast for a city.", city=TEXT),
    document("weather", "get_alerts", "Get warnings of storms and floods.", region=TEXT),
    document("fs", "read_file", "Read the contents of a file.", path=TEXT),
    document("fs", "write_file", "Write text to a file.", path=TEXT, text=TEXT),
    document("fs", "list_directory", "List what is in a directory.", path=TEXT),
    document("tickets", "create_ticket", "Ask the help desk for something.", subject=TEXT),
    document("tickets", "get_queue", "See what waits.", status={"enum": ["open", "escalated"]}),
]

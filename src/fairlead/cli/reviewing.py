"""What a person looks at in a review, on the terminal."""

from fairlead.catalog.entries import Listing
from fairlead.catalog.sanitise import made_visible, suspicious
from fairlead.cli.output import print_data, printable, say
from fairlead.policy.claims import claims_of
from fairlead.policy.findings import findings_of
from fairlead.policy.pins import Pins
from fairlead.policy.reviewing import ReviewedTool, diff, instructions_diff, whole, words_of


def show_tool(tool: ReviewedTool) -> None:
    """Show a tool whole, or what changed in it; all that is hidden spelled out, and its words as its own."""
    standing = "denied" if tool.denied else "allowed" if tool.allowed else "not allowed"
    print_data(f"{printable(made_visible(tool.name))}: {tool.state}, {standing}")
    before = tool.before()
    for line in whole(tool.definition()) if before is None else diff(before, tool.definition()):
        print_data(f"  {printable(line)}")
    claims = claims_of(tool.entry.definition)
    if claims:
        print_data(f"  it claims, and nobody has checked: {'; '.join(claims)}")
    for finding in findings_of(tool.entry):
        print_data(f"  warning: {printable(words_of(finding))}")
    print_data("")


def show_instructions(listing: Listing, pins: Pins | None) -> None:
    """Show what a server tells models about itself, and what of it is new."""
    print_data("instructions for models:")
    for line in instructions_diff(listing, pins):
        print_data(f"  {printable(line)}")
    for look in suspicious(listing.instructions or ""):
        print_data(f"  warning: it {look}")
    print_data("")


def show_in_one_line(tool: ReviewedTool) -> None:
    """Name a tool about which there is nothing to decide."""
    say(f"{printable(made_visible(tool.name))}: {'denied' if tool.denied else 'reviewed, and as it was'}")

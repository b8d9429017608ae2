"""What journeys share: a person with a machine of their own, and servers that can be broken and mended."""

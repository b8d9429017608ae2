"""References to secrets, where secrets are kept, and how they are masked in everything shown."""

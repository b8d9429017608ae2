"""What servers offer, as values."""

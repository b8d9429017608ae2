"""What a server may do, and what reaches the model."""

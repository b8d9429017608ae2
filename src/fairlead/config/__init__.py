"""What a configuration may say, where it comes from, how its layers merge and how it is edited."""

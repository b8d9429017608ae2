"""What people do with Fairlead from beginning to end, with the real command in real terminals and pipes."""

"""Server processes: started below a guardian, sandboxed, and ended with all their descendants."""

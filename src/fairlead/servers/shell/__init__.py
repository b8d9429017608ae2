"""The built-in `shell` server: commands in a sandbox that can change the repository, and little else."""

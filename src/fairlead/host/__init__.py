"""Many servers behind one host: owns connections, runs calls, keeps what servers offer fresh."""

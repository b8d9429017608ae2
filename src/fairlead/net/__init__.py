"""What all traffic over the network goes by: whom to trust, which proxy to use, which redirect to follow."""

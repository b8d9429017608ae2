"""Tools in the words of others: model providers, agent frameworks, other hosts."""

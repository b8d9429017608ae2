"""Durable state that all processes of one user share: consents, catalogs, approvals, tokens, audit."""

"""Secrets: `references`, `keyring` and `storage`; `masking`, `redaction` and `log_filter` of output."""

"""Several gateway processes as one gateway: replicas find each other, and forward what another one owns.

`cluster` is what the gateway uses: it tells which requests another replica answers. Below it: `replicas` (the
directory in the store), `addresses`, `replica_keys` (keys and signatures), `session_ids` (sealed ids),
`forwarding` (one request to another replica and back), `peer_client` (its HTTP), and `server_owners` with
`owned_server` and `peer_transport` for server processes that run once for all.
"""

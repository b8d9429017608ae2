"""Several gateway processes as one gateway: replicas find each other, and forward what another one owns.

`replicas` is the directory of replicas in the store, `replica_keys` what they authenticate each other with.
"""

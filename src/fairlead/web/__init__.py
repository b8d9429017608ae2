"""The dashboard of the gateway: pages for people, rendered here, and a few endpoints for programs."""

"""The dashboard of the gateway: pages for people, rendered here, and a few endpoints for programs.

The command line mounts `app.dashboard_routes`. `sessions` authenticates browsers, `page_request` checks
access to each page, and the modules in `pages` render them with `layout`, `html`, `forms` and `charts`.
Pages read and act through `host_panel` (values: `panel`; files: `config_panel`; calls and logs: `watch`).
`live` updates open pages, `monitoring` has health checks and the metrics.
"""

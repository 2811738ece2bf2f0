"""The web console: pages about jobs, queues, nodes and history.

The console reads the cluster over REST only, and with the viewer's token, so that admission's rules
for tenants apply. It owns the sessions of browsers, and per session a live cache of the rows that
its pages show. ``core/`` makes rows, filters and facts (pure); ``live_rows.py`` keeps rows up to
date by watches; ``pages/`` are the routes; ``templates/`` and ``static/`` are what a browser
receives.
"""

"""The web console: pages of jobs, queues, nodes and history, over REST with the rights of viewers.

It reads nothing but REST: with the viewer's token, so that the rules for tenants are those of
admission. It owns the sessions of browsers, and per session a live cache of the rows that its pages
show. ``core/`` makes rows, filters and facts (pure); ``live_rows.py`` keeps rows up to date by
watches; ``pages/`` are the routes; ``templates/`` and ``static/`` are what a browser receives.
"""

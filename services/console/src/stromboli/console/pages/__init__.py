"""The routes: each reads REST with the session's token, and renders one template."""

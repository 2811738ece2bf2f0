"""The routes of the REST API by kind of object."""

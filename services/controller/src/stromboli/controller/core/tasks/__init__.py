"""The tasks of a job: what its spec asks for by name and what its pods amount to."""

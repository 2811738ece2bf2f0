"""Sessions in pods of a job: commands in containers and connections to ports."""

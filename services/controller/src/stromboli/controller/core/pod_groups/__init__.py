"""PodGroups: creation and update for jobs, status, and warnings about missing PodGroups."""

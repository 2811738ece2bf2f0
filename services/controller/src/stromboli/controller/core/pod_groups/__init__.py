"""PodGroups of jobs: the gang itself, its status, and pods whose PodGroup is missing."""

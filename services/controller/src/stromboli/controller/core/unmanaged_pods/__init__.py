"""PodGroups for pods that name our scheduler and were not created by us."""

"""PodGroups for unmanaged pods: pods that name our scheduler and that Stromboli did not create."""

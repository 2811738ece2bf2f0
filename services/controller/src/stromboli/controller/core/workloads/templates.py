"""JobTemplates: their status lists the jobs that flows created from them. As in Volcano."""

from datetime import datetime

import msgspec

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.workloads import child_jobs
from stromboli.shared.api import flow, kinds


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Update the list of created jobs in the template's status."""
    template = cache.get(kinds.JOB_TEMPLATES, key)
    if template is None or cache.is_terminating(template):
        return ()
    if not child_jobs.is_ours(cache, msgspec.json.decode(template.spec) or {}):
        return ()
    names = tuple(job.metadata.name for job in cache.made_from(key))
    if names == template.status.job_depends_on_list:
        return ()
    status = flow.JobTemplateStatus(job_depends_on_list=names)
    return ((child_jobs.write_status(kinds.JOB_TEMPLATES, template, status),),)

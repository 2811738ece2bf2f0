"""Job plugins: what a job asks for beside its pods, by name.

A plugin is pure: resources of the job and changes to its pods as data. Source: spec/jobs.md 6.
"""

from collections.abc import Mapping

from stromboli.controller.core.plugins import env, svc
from stromboli.controller.core.plugins.base import Plugin

PLUGINS: Mapping[str, Plugin] = {"env": env.Env(), "svc": svc.Svc()}
"""Every plugin that is carried out."""

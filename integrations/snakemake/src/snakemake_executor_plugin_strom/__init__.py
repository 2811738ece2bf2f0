"""Snakemake's executor plugin ``strom``: the names that Snakemake's registry reads."""

from snakemake_interface_executor_plugins.settings import CommonSettings

from snakemake_executor_plugin_strom.executor import StromExecutor as Executor
from snakemake_executor_plugin_strom.settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=True,
    pass_group_args=True,
)

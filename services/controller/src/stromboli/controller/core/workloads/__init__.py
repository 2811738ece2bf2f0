"""Objects that create jobs: flows, templates and crons."""

"""The job specification: schemas, defaults, validation, job plugins, CEL policies, quotas."""

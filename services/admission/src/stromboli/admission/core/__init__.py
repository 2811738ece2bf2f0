"""The wire format of reviews. The rules themselves stand in
``stromboli.shared.jobspec.validation``, where the controller reads them, too.
"""

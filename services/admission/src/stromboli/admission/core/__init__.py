"""The wire format of reviews, limits and history. The validation rules are in
``stromboli.shared.jobspec.validation``, which the controller uses, too.
"""

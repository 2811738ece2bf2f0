"""Defaults and validation, kind by kind: functions of an object and of related cluster state.

Webhooks, REST and manifests use the same functions, and the controller applies them to objects that
were created while the webhook was unavailable. All functions are pure.
"""

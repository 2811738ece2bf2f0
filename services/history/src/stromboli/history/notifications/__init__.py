"""Notifications about jobs: which are due (``notices``), their receivers (``targets``), their texts
(``texts``) and how they are sent (``sender``, ``channels``).

Owns the table ``notices``, an outbox: a notice is stored in the transaction of the event that it is
about, so it is neither lost nor made twice, however often the service is killed. Sending is at
least once: receivers deduplicate by the notice's id.
"""

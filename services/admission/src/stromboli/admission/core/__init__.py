"""The wire format of reviews. The rules themselves stand in ``stromboli.shared.admission``, where
the controller reads them, too.
"""

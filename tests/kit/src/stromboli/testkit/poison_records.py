"""Records that are valid for Kafka, but whose headers or values are invalid in many ways."""

DIGITS = "9" * 5_000
"""A number with more digits than Python converts."""
DEEP = b"[" * 200_000
"""JSON that is nested more deeply than decoders allow."""

SUBMISSION = {
    "ce_id": "train-1",
    "ce_source": "nightly",
    "ce_type": "stromboli.admission.objects_submitted.v1",
    "ce_time": "2026-01-01T12:00:00Z",
    "authorization": "Bearer t",
}
"""Headers of a valid submission."""

SUBMISSIONS: dict[str, tuple[dict[str, str], bytes]] = {
    "a time without a zone": ({"ce_time": "2026-01-01T12:00:00"}, b'{"objects":[{}]}'),
    "a time that is a number": ({"ce_time": "253402300800"}, b'{"objects":[{}]}'),
    "a time before all times": ({"ce_time": "0001-01-01T00:00:00+23:59"}, b'{"objects":[{}]}'),
    "a time of 5,000 digits": ({"ce_time": DIGITS}, b'{"objects":[{}]}'),
    "an id of 5,000 digits": ({"ce_id": f"w/{DIGITS}/1"}, b'{"objects":[{}]}'),
    "an epoch of 5,000 digits": ({"ce_id": f"w/{DIGITS[:200]}/1"}, b'{"objects":[{}]}'),
    "text that is not UTF-8": ({}, b'{"objects":[{"kind":"\xff"}]}'),
    "a key that is not UTF-8": ({}, b'{"objects":[{"\xff":1}]}'),
    "deep nesting": ({}, b'{"objects":[' + DEEP),
    "deep nesting that ends": ({}, b'{"objects":[' + DEEP + b"]" * 200_001 + b"}"),
    "deep objects": ({}, b'{"objects":[' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]}"),
    "a number of 5,000 digits": ({}, b'{"objects":[{"a":' + DIGITS.encode() + b"}]}"),
    "half a surrogate pair": ({}, b'{"objects":[{"a":"\\ud800"}]}'),
    "a token that is deep": ({"authorization": "Bearer a." + "W1tb" * 50_000 + ".c"}, b"{}"),
    "a token that is not ASCII": ({"authorization": "Bearer a.ü.c"}, b"{}"),
}
"""Description of the error -> the headers that differ from valid ones, and the value."""

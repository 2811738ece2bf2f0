"""Submit manifests over Kafka and wait for the answer. Needs aiokafka and PyYAML.

    STROM_TOKEN=$(kubectl create token trainer -n vision --audience stromboli-submissions \
        --duration 10m) python examples/producer.py hello.yaml [SERVER [CLUSTER]]
"""

import asyncio
import datetime
import json
import os
import pathlib
import sys
import uuid
from typing import Any

import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def read(file: str) -> list[dict[str, Any]]:
    """The manifests of a file."""
    text = pathlib.Path(file).read_text(encoding="utf-8")
    return [document for document in yaml.safe_load_all(text) if document]


async def submit(file: str, server: str = "127.0.0.1:9092", cluster_name: str = "default") -> int:
    """Submit a file; return the exit status: 0 if all of its objects exist now."""
    name = str(uuid.uuid4())  # the idempotency key: a repeated request with it has no effect
    headers = {
        "ce_specversion": "1.0",
        "ce_id": name,
        "ce_source": "examples/producer.py",
        "ce_type": "stromboli.admission.objects_submitted.v1",
        "ce_time": datetime.datetime.now(datetime.UTC).isoformat(),
        "authorization": f"Bearer {os.environ['STROM_TOKEN']}",
    }
    answers = AIOKafkaConsumer(f"{cluster_name}.admission.reviews", bootstrap_servers=server)
    async with answers, AIOKafkaProducer(bootstrap_servers=server) as producer:
        await answers.seek_to_end()  # before sending, so that the answer is not missed
        await producer.send_and_wait(
            f"{cluster_name}.admission.submissions",
            json.dumps({"objects": read(file)}).encode(),
            headers=[(key, value.encode()) for key, value in headers.items()],
        )
        async for record in answers:
            if record.key == name.encode():
                answer = json.loads(record.value)
                print(json.dumps(answer, indent=1))
                return 0 if answer["status"] == 200 else 1
    return 1


sys.exit(asyncio.run(submit(*sys.argv[1:])))

"""Print the events of jobs: python examples/consumer.py [SERVER [CLUSTER]]. Needs aiokafka."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer


async def follow(server: str = "127.0.0.1:9092", cluster_name: str = "default") -> None:
    """Print all events of the topic, and then new ones as they arrive."""
    topic = f"{cluster_name}.batch.events"
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=server, auto_offset_reset="earliest")
    async with consumer:
        async for record in consumer:
            kind = dict(record.headers)["ce_type"].decode().split(".")[2]
            if kind == "epoch_announced":
                continue  # a record of the log itself, not an event
            event = json.loads(record.value)
            print(event["at"], event["job"], kind, event.get("after", ""), flush=True)


asyncio.run(follow(*sys.argv[1:]))

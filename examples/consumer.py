"""Follow what happens to jobs: python examples/consumer.py [SERVER [CELL]]. Needs aiokafka."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer


async def follow(server: str = "127.0.0.1:9092", cluster_name: str = "default") -> None:
    """Print every event from the beginning of the topic, and on."""
    topic = f"{cluster_name}.batch.events"
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=server, auto_offset_reset="earliest")
    async with consumer:
        async for record in consumer:
            kind = dict(record.headers)["ce_type"].decode().split(".")[2]
            if kind == "epoch_announced":
                continue  # the log's own
            event = json.loads(record.value)
            print(event["at"], event["job"], kind, event.get("after", ""), flush=True)


asyncio.run(follow(*sys.argv[1:]))

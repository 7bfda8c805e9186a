"""asyncio clients of any Kafka broker, and the `barnabas` command."""

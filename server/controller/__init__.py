"""The controller: topics, partition states, elections, and the requests to brokers that follow from them."""

from .kafka_controller import KafkaController

__all__ = ["KafkaController"]

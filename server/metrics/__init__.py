"""Metrics for Prometheus, under the names of Kafka's MBeans in the JMX exporter's spelling."""

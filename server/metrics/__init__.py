"""What there is to measure: under the names of Kafka's MBeans as the JMX exporter writes them, for Prometheus."""

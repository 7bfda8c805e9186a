"""The entry points of the container image, which takes what the images of Kafka take: variables, scripts and paths."""

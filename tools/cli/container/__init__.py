"""The entry points of the container image, with the variables, scripts and paths of the images of Kafka."""

"""Schemas by subject and id in topic `_schemas`, served as Confluent's schema registry serves them, and read from one.

What is served is the REST API of Confluent Platform 7; records have the layout of its classes in
`io.confluent.kafka.schemaregistry.storage`, so that either can go on where the other was.
"""

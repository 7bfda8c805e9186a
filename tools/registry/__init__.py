"""A schema registry compatible with Confluent's: schemas by subject and id in topic `_schemas`.

It serves the REST API of Confluent Platform 7; records have the layout of its classes in
`io.confluent.kafka.schemaregistry.storage`, so that either registry can continue with the topic of the other.
"""

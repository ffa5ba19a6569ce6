"""Avro, JSON Schema and Protobuf with schema registries: the extra `schema-registry`.

ids             a schema as a registry has it, and how records name it, in headers and before their bytes
parsed_schema   a schema, parsed; what a kind of schema is
kinds           the kinds: Avro, and those of `json_kind` and `protobuf_kind`
registry        SchemaRegistry: what keeps schemas, and is asked once for each; subclass it for one's own
confluent       ConfluentRegistry: Confluent's protocol
registries      Md5Registry, TopicRegistry: schemas by their MD5, in a mapping and in a topic
serde           registry_serde, and avro_serde: deposit their schema, and read what other schemas have written;
                plain_avro_serde: under one schema, without a registry
interceptor     SchemaInterceptor: deposits schemas beside a serde that knows no registry, as `plain_avro_serde`

Users import from here. Imports `connect` and the foundation of `statestore.middleware`. Start at `serde`.
"""

from statestore.middleware.schemas.schema_registry.confluent import ConfluentRegistry
from statestore.middleware.schemas.schema_registry.ids import AVRO_SCHEMA_MD5, IdPlace, RegisteredSchema, SchemaIds
from statestore.middleware.schemas.schema_registry.interceptor import SchemaInterceptor
from statestore.middleware.schemas.schema_registry.registries import Md5Registry, TopicRegistry
from statestore.middleware.schemas.schema_registry.registry import SchemaRegistry, schema_md5
from statestore.middleware.schemas.schema_registry.serde import avro_serde, plain_avro_serde, registry_serde

__all__ = [
    "AVRO_SCHEMA_MD5",
    "ConfluentRegistry",
    "IdPlace",
    "Md5Registry",
    "RegisteredSchema",
    "SchemaIds",
    "SchemaInterceptor",
    "SchemaRegistry",
    "TopicRegistry",
    "avro_serde",
    "plain_avro_serde",
    "registry_serde",
    "schema_md5",
]

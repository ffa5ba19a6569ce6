"""Avro with schema registries: the extra `schema-registry`.

ids             how records name schemas, in headers and before their bytes
registry        SchemaRegistry: what keeps schemas, and is asked once for each; subclass it for one's own
registries      ConfluentRegistry: Confluent's protocol; Md5Registry, TopicRegistry: schemas by their MD5, in a mapping
                and in a topic
serde           avro_serde: deposits its schema, and reads what other schemas have written; plain_avro_serde: under one
                schema, without a registry
interceptor     SchemaInterceptor: deposits schemas beside a serde that knows no registry, as `plain_avro_serde`

Users import from here. Imports `connect` and the foundation of `statestore.middleware`. Start at `serde`.
"""

from statestore.middleware.schemas.schema_registry.ids import AVRO_SCHEMA_MD5, IdPlace, SchemaIds
from statestore.middleware.schemas.schema_registry.interceptor import SchemaInterceptor
from statestore.middleware.schemas.schema_registry.registries import ConfluentRegistry, Md5Registry, TopicRegistry
from statestore.middleware.schemas.schema_registry.registry import RegisteredSchema, SchemaRegistry, schema_md5
from statestore.middleware.schemas.schema_registry.serde import avro_serde, plain_avro_serde

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
    "schema_md5",
]

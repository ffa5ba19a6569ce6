"""Classes of messages of Protobuf, made without its compiler: an order, which imports an item and a time."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

INT64: Final = FieldDescriptorProto.TYPE_INT64
STRING: Final = FieldDescriptorProto.TYPE_STRING


def add_field(message: DescriptorProto, number: int, name: str, of: int | str, *, repeated: bool = False) -> None:
    """Add a field of a type, or of messages of a name."""
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if isinstance(of, int):
        field.type = of
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, of


def file_of(name: str, *imports: str, syntax: str = "proto3") -> FileDescriptorProto:
    """Return a file without types, of the package "shop"."""
    return FileDescriptorProto(name=name, package="shop", syntax=syntax, dependency=imports)


def classes_of(*files: FileDescriptorProto) -> dict[str, Any]:
    """Return the classes of all messages in files, the imported ones first, by their full names."""
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    made: dict[str, Any] = {}
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
        waiting = list(pool.FindFileByName(file.name).message_types_by_name.values())
        while waiting:
            found = waiting.pop()
            made[found.full_name] = GetMessageClass(found)
            waiting.extend(found.nested_types)
    return made


def order_files(*more: str) -> list[FileDescriptorProto]:
    """Return two files: an item, and an order that imports it; the order has these fields of text more."""
    item = file_of("shop/item.proto")
    add_field(item.message_type.add(name="Item"), 1, "name", STRING)
    order = file_of("shop/order.proto", "shop/item.proto", "google/protobuf/timestamp.proto")
    add_field(order.message_type.add(name="Payment"), 1, "amount", INT64)
    message = order.message_type.add(name="Order")
    add_field(message, 1, "id", INT64)
    add_field(message, 2, "items", ".shop.Item", repeated=True)
    add_field(message, 3, "at", ".google.protobuf.Timestamp")
    for number, name in enumerate(more, start=4):
        add_field(message, number, name, STRING)
    add_field(message.nested_type.add(name="First"), 1, "text", STRING)
    add_field(message.nested_type.add(name="Line"), 1, "text", STRING)
    return [item, order]


CLASSES: Final = classes_of(*order_files())
ORDER: Final = CLASSES["shop.Order"]
PAYMENT: Final = CLASSES["shop.Payment"]
LINE: Final = CLASSES["shop.Order.Line"]
ITEM: Final = CLASSES["shop.Item"]

"""Compression: values are compressed one by one, where that makes their records smaller.

    COMPRESSION := codec [":" dictionary_id]        ASCII, such as gzip, zstd, zstd:7

    gzip    RFC 1952
    zstd    RFC 8878, one frame, with its checksum; of a frame with a dictionary, the header has the dictionary's id

Records without that header, and those without a value, are as they were. Source: the architecture of metadata,
per-record custom compression.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors.middleware import CompressedValueError, DecompressionLimitError, ExtraMissingError
from statestore.format.binary_columns import is_valid, row_objects
from statestore.format.records.header_bytes import encode_headers
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.interception.passage import PART_BYTES
from statestore.middleware.application import Application, extra, options, value_of, with_header_where
from statestore.middleware.schemas.content_type import CONTENT_TYPE

if TYPE_CHECKING:
    import zstandard
    from typing_extensions import Self

__all__ = ["COMPRESSION_HEADER", "Compression", "ContentTypes", "train_dictionary"]

COMPRESSION_HEADER: Final = "COMPRESSION"
"""The header that says how a value is compressed."""

_GZIP: Final = "gzip"
_ZSTD: Final = "zstd"
_LEVELS: Final = {_GZIP: range(1, 10), _ZSTD: range(-7, 23)}
_DEFAULT_LEVELS: Final = {_GZIP: 6, _ZSTD: 3}
_MARK: Final = re.compile(rb"(gzip|zstd)(?::([0-9]{1,10}))?")
_GZIP_WINDOW: Final = 31  # zlib's largest window, and gzip's frame around it
_MOST_GZIP_MEMBERS: Final = 64
_WINDOW_BYTES: Final = 8 << 20
"""The window that RFC 8878 asks every reader of zstd to have memory for."""
_MOST_DICTIONARY_BYTES: Final = 10 << 20
_COMPRESSED_FORMATS: Final = (
    b"\x1f\x8b",  # gzip
    b"\x28\xb5\x2f\xfd",  # zstd
    b"\x04\x22\x4d\x18",  # lz4
    b"\xff\x06\x00\x00sNaPpY",
    b"\xfd7zXZ\x00",
    b"BZh",
    b"PK\x03\x04",  # zip, and documents that are one
    b"\x89PNG",
    b"\xff\xd8\xff",  # JPEG
    b"GIF8",
)


def looks_compressible(topic: str, headers: Headers, value: bytes) -> bool:
    """Return whether a value does not begin as compressed formats do, such as gzip, zip, PNG or JPEG."""
    return not value.startswith(_COMPRESSED_FORMATS)


class ContentTypes:
    """Chooses values by the content type in a header: `Compression(when=ContentTypes("application/json", "text/*"))`.

    Parameters behind a type (`; charset=utf-8`) and the case of letters don't count. `otherwise` is for records that
    say nothing.
    """

    def __init__(self, *types: str, header: str = CONTENT_TYPE, otherwise: bool = False) -> None:
        """Take types, each whole or all of a kind, as `text/*`. Raises ValueError for what is neither."""
        for each in types:
            if each.count("/") != 1 or "*" in each.removesuffix("/*"):
                raise ValueError(f"a content type is written kind/type or kind/*, not {each!r}")
        whole = [each.lower() for each in types if not each.endswith("/*")]
        self._types: Final = frozenset(each.encode() for each in whole)
        self._kinds: Final = tuple(each.lower()[:-1].encode() for each in types if each.endswith("/*"))
        self._header: Final = header
        self._otherwise: Final = otherwise

    def __call__(self, topic: str, headers: Headers, value: bytes) -> bool:
        """Return whether the value is of one of the types."""
        if (named := value_of(headers, self._header)) is None:
            return self._otherwise
        content_type = named.partition(b";")[0].strip().lower()
        return content_type in self._types or content_type.startswith(self._kinds or (b"\n",))


class Compression(Application):
    """Compresses values on their way out, and decompresses them on their way in.

    Contexts of the codecs are made once in a thread, for all interceptors alike.
    """

    kind = "compression"
    _options = options(STRING="codec", INT="level dictionary min.bytes max.bytes", LIST="dictionaries content.types")
    marks = (COMPRESSION_HEADER,)
    not_after: ClassVar[Mapping[str, str]] = {
        "encryption": "what is encrypted does not get smaller, so compress before you encrypt"
    }

    def __init__(
        self,
        codec: str = _ZSTD,
        *,
        level: int | None = None,
        dictionaries: Mapping[int, bytes] | None = None,
        dictionary: int | None = None,
        min_bytes: int = 64,
        max_bytes: int = 16 << 20,
        when: Callable[[str, Headers, bytes], bool] = looks_compressible,
    ) -> None:
        """Say how values are compressed; gzip and zstd are read in any case.

        Args:
            codec: what values are compressed with, "zstd" or "gzip".
            level: how hard it tries, for zstd -7 to 22, for gzip 1 to 9; None is 3, or 6 for gzip.
            dictionaries: those of zstd that values may have been compressed with, by ids from 1 to 2^31 - 1.
            dictionary: the id of the one to compress with; None for none. To change it, first have all readers know
                the new one, then make it this one, and keep the old one for as long as there are records of it.
            min_bytes: values of fewer bytes are left alone.
            max_bytes: no value of more bytes is made of a compressed one, and none is compressed.
            when: says of topic, headers and value whether to compress that; picklable.

        In a configuration, `dictionaries` has ids and paths of files, as in `7:/etc/dictionaries/orders-7`, and
        `content.types` those of ContentTypes. Raises ValueError for anything else.
        """
        if codec not in _LEVELS:
            raise ValueError(f"codec must be one of {', '.join(sorted(_LEVELS))}, not {codec!r}")
        level = _DEFAULT_LEVELS[codec] if level is None else level
        if level not in _LEVELS[codec]:
            raise ValueError(f"level of {codec} must be from {_LEVELS[codec][0]} to {_LEVELS[codec][-1]}, not {level}")
        if not 0 <= min_bytes <= max_bytes or not 1 <= max_bytes < 2**31:
            raise ValueError(f"0 <= min_bytes <= max_bytes < 2^31 must hold, got {min_bytes} and {max_bytes}")
        self._codec: Final = codec
        self._level: Final = level
        self._dictionaries: Final = _checked_dictionaries(dictionaries or {})
        if dictionary is not None and (codec != _ZSTD or dictionary not in self._dictionaries):
            raise ValueError(f"dictionary {dictionary} must be one of dictionaries, and codec must be {_ZSTD}")
        self._dictionary: Final = None if dictionary is None else self._dictionaries[dictionary]
        self._mark: Final = (codec if dictionary is None else f"{codec}:{dictionary}").encode()
        self._mark_bytes: Final = len(encode_headers([(COMPRESSION_HEADER, self._mark)])) - 1  # without their count
        self._min_bytes: Final = min_bytes
        self._max_bytes: Final = max_bytes
        self._when: Final = when

    @classmethod
    def _configured(
        cls, dictionaries: Iterable[str] = (), content_types: Iterable[str] = (), **arguments: object
    ) -> Self:
        contents = {}
        for each in dictionaries:
            number, _, path = each.partition(":")
            if not number.isdecimal():
                raise ValueError(f"a dictionary is written id:path, not {each!r}")
            contents[int(number)] = _file_content(path)
        if content_types:
            arguments["when"] = ContentTypes(*content_types)
        return cls(dictionaries=contents, **arguments)  # type: ignore[arg-type]

    def init(self, context: object) -> None:
        """Have the codec ready. Raises ExtraMissingError if it is not installed."""
        if self._codec == _ZSTD:
            _zstd_compressor(get_ident(), self._level, self._dictionary)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Compress the value of a record if that makes it smaller."""
        if record.value is None or value_of(record.headers, COMPRESSION_HEADER) is not None:
            return (record,)
        if (compressed := self._compressed(record.topic, record.headers, record.value)) is None:
            return (record,)
        made = record.copy(value=compressed)
        made.headers.add(COMPRESSION_HEADER, self._mark)
        return (made,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Compress the value of each record that it makes smaller."""
        values, headers = records.value.to_pylist(), records.headers.to_pylist()
        topics = [""] * len(values) if records.topic is None else row_objects(records.topic)
        unmarked = np.flatnonzero(~is_valid(records.header(COMPRESSION_HEADER)) & is_valid(records.value))
        rows = []
        for row in unmarked.tolist():
            compressed = self._compressed(topics[row], Headers.from_bytes(headers[row]), values[row])
            if compressed is not None:
                values[row] = compressed
                rows.append(row)
        if not rows:
            return records
        changed = records.with_columns(value=pa.array(values, pa.binary()))
        return with_header_where(changed, _in_rows(len(values), rows), COMPRESSION_HEADER, self._mark)

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Decompress the value of a record that says it is compressed.

        Raises CompressedValueError if it can't be, DecompressionLimitError if it would be too large.
        """
        mark = value_of(record.headers, COMPRESSION_HEADER)
        if mark is None or record.value is None:
            return (record,)
        value = self._decompressed(mark, record.value)
        return (record.copy(value=value, headers=record.headers.copy().remove(COMPRESSION_HEADER)),)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Decompress the value of each record that says it is compressed. Raises what `on_ingest` raises.

        Returns None if the values are large together: the records then go one by one, and on in parts.
        """
        marks = records.header(COMPRESSION_HEADER)
        if marks.null_count == len(marks):
            return records
        values, rows, made_bytes = records.value.to_pylist(), [], 0
        for row, mark in enumerate(marks.to_pylist()):
            if mark is not None and values[row] is not None:
                values[row] = self._decompressed(mark, values[row])
                rows.append(row)
                made_bytes += len(values[row])
                if made_bytes >= PART_BYTES:
                    return None
        plain = records.without_header(COMPRESSION_HEADER).headers
        headers = pc.if_else(_in_rows(len(values), rows), plain, records.headers)
        return records.with_columns(value=pa.array(values, pa.binary()), headers=headers)

    def _compressed(self, topic: str, headers: Headers, value: bytes) -> bytes | None:
        """Return the compressed value; None to leave it alone, also if it and its header would not be smaller."""
        if not self._min_bytes <= len(value) <= self._max_bytes or not self._when(topic, headers, value):
            return None
        if self._codec == _GZIP:
            gzip = zlib.compressobj(self._level, zlib.DEFLATED, _GZIP_WINDOW)
            made = gzip.compress(value) + gzip.flush()
        else:
            made = _zstd_compressor(get_ident(), self._level, self._dictionary).compress(value)
        return made if len(made) + self._mark_bytes < len(value) else None

    def _decompressed(self, mark: bytes, data: bytes) -> bytes:
        if (found := _MARK.fullmatch(mark)) is None:
            raise CompressedValueError(f"can't be read: only {_GZIP} and {_ZSTD} are known", codec="an unknown codec")
        codec, number = found[1].decode(), found[2]
        if codec == _GZIP:
            if number is not None:
                raise CompressedValueError(f"names a dictionary, {int(number)}: it has none", codec=codec)
            return _gunzipped(data, self._max_bytes)
        if number is not None and int(number) not in self._dictionaries:
            raise CompressedValueError(
                f"needs the dictionary {int(number)}, known are {sorted(self._dictionaries)}: add it to dictionaries",
                codec=codec,
            )
        return _unpacked(data, None if number is None else self._dictionaries[int(number)], self._max_bytes)

    def __repr__(self) -> str:
        return f"Compression({self._mark.decode()!r}, level={self._level})"


def train_dictionary(samples: Iterable[bytes], *, size_bytes: int = 16_384) -> bytes:
    """Return a dictionary for values like these, of at most `size_bytes`, from 256 bytes to 10 MiB.

    It pays for values of up to some KB that have much in common, as records of one topic; some hundred samples, of a
    hundred times its size together, make a good one. Raises ValueError if there are too few to make one, and
    ExtraMissingError.
    """
    if not 256 <= size_bytes <= _MOST_DICTIONARY_BYTES:
        raise ValueError(f"size_bytes must be from 256 to {_MOST_DICTIONARY_BYTES}, got {size_bytes}")
    with extra("compression"):
        import zstandard
    try:
        return zstandard.train_dictionary(size_bytes, list(samples)).as_bytes()
    except zstandard.ZstdError as cause:
        raise ValueError(f"no dictionary can be made of these samples ({cause}): take more of them") from cause


def _in_rows(count: int, rows: Sequence[int]) -> pa.BooleanArray:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return pa.array(mask)


def _checked_dictionaries(dictionaries: Mapping[int, bytes]) -> dict[int, bytes]:
    for number, content in dictionaries.items():
        if type(number) is not int or not 1 <= number < 2**31:
            raise ValueError(f"the id of a dictionary must be from 1 to 2^31 - 1, got {number!r}")
        if not isinstance(content, bytes) or not 8 <= len(content) <= _MOST_DICTIONARY_BYTES:
            raise ValueError(f"dictionary {number} must be 8 to {_MOST_DICTIONARY_BYTES} bytes")
    return dict(dictionaries)


def _file_content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_DICTIONARY_BYTES + 1)
    except OSError as cause:
        raise ValueError(f"the dictionary {path!r} can't be read: {cause}") from cause


@lru_cache(maxsize=64)
def _zstd_dictionary(content: bytes) -> zstandard.ZstdCompressionDict:
    import zstandard

    return zstandard.ZstdCompressionDict(content)


@lru_cache(maxsize=64)
def _zstd_compressor(thread: int, level: int, dictionary: bytes | None) -> zstandard.ZstdCompressor:
    """Return a context: of one thread, because two must not use it at once."""
    with extra("compression"):
        import zstandard
    loaded = None if dictionary is None else _zstd_dictionary(dictionary)
    return zstandard.ZstdCompressor(level, dict_data=loaded, write_checksum=True, write_dict_id=False)


@lru_cache(maxsize=64)
def _zstd_decompressor(thread: int, dictionary: bytes | None, max_window_bytes: int) -> zstandard.ZstdDecompressor:
    """Return a context, likewise."""
    with extra("compression"):
        import zstandard
    loaded = None if dictionary is None else _zstd_dictionary(dictionary)
    return zstandard.ZstdDecompressor(loaded, max_window_size=max_window_bytes)


def _unpacked(data: bytes, dictionary: bytes | None, max_bytes: int) -> bytes:
    """Return the content of one frame of zstd; it never makes more than `max_bytes`."""
    window_bytes = max(_WINDOW_BYTES, 1 << (max_bytes - 1).bit_length())
    try:
        context = _zstd_decompressor(get_ident(), dictionary, window_bytes)
    except ExtraMissingError as missing:
        raise CompressedValueError(f"can't be read here: {missing}", codec=_ZSTD) from missing
    import zstandard

    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.window_size > window_bytes:
            raise DecompressionLimitError(codec=_ZSTD, max_bytes=max_bytes)
        if 0 < frame.content_size <= max_bytes:
            return context.decompress(data, allow_extra_data=False)
        if frame.content_size not in (0, zstandard.CONTENTSIZE_UNKNOWN):
            raise DecompressionLimitError(codec=_ZSTD, max_bytes=max_bytes)
        return _streamed(context, data, max_bytes)
    except zstandard.ZstdError as cause:
        raise CompressedValueError(f"can't be read: {cause}", codec=_ZSTD) from cause


def _streamed(context: zstandard.ZstdDecompressor, data: bytes, max_bytes: int) -> bytes:
    """Return the content of a frame that does not say its size: it is counted first, then decompressed again."""
    with context.stream_reader(data) as reader:
        if len(reader.read(max_bytes + 1)) > max_bytes:
            raise DecompressionLimitError(codec=_ZSTD, max_bytes=max_bytes)
    whole = context.decompressobj()
    value = whole.decompress(data)
    if not whole.eof or whole.unused_data:
        raise CompressedValueError("can't be read: it is cut, or something stands behind it", codec=_ZSTD)
    return value


def _gunzipped(data: bytes, max_bytes: int) -> bytes:
    """Return the content of all members of gzip; it never makes more than `max_bytes` and one byte."""
    value = b""
    for _ in range(_MOST_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            value += member.decompress(data, max_bytes + 1 - len(value))
        except zlib.error as cause:
            raise CompressedValueError(f"can't be read: {cause}", codec=_GZIP) from cause
        if len(value) > max_bytes:
            raise DecompressionLimitError(codec=_GZIP, max_bytes=max_bytes)
        if not member.eof:
            raise CompressedValueError("can't be read: it is cut", codec=_GZIP)
        data = member.unused_data
        if not data:
            return value
    raise CompressedValueError(f"can't be read: it has more than {_MOST_GZIP_MEMBERS} members", codec=_GZIP)

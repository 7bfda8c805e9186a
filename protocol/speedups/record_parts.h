/* Where the parts of a record of format v2 lie: its fields in their order, for all compiled code that reads records.
 *
 * What the functions of these names do in record_codec.py, with addresses instead of positions; of headers, which are
 * iterated there, `locate_headers` counts them here and `locate_header` is the next one. Bytes that are no record are only said to be none: which of the fields is wrong, and how, Python's
 * side finds out. What is no matter of a record alone, as which offset it has in its batch, is checked by the callers. */
#ifndef BARNABAS_RECORD_PARTS_H
#define BARNABAS_RECORD_PARTS_H

#include "speedups.h"

/* A size of -1 is null. */
typedef struct {
    int64_t timestamp_delta, offset_delta;
    const uint8_t *key_start;
    int64_t key_size;
    const uint8_t *value_start;
    int64_t value_size;
    const uint8_t *headers_start, *end;
} record_parts;

typedef struct {
    const uint8_t *key_start;
    int64_t key_size;
    const uint8_t *value_start;
    int64_t value_size;
} header_parts;

/* A size and where its bytes begin; where they end, or NULL if they are not there before `limit`. */
static inline const uint8_t *
locate_bytes(const uint8_t *at, const uint8_t *limit, const uint8_t **start, int64_t *size)
{
    uint64_t zigzag;
    if ((at = read_unsigned32(at, limit, &zigzag)) == NULL)
        return NULL;
    *start = at, *size = -1;
    if (zigzag & 1)
        return at;
    *size = (int64_t)(zigzag >> 1);
    return *size > limit - at ? NULL : at + *size;
}

/* The first fields of the record at `at`: where its attributes, which say nothing yet, are, and its timestamp delta. The
 * position behind them, and where the record ends, or NULL if there is none that ends at `limit` or before. */
static inline const uint8_t *locate_front(const uint8_t *at, const uint8_t *limit, const uint8_t **attributes,
                                          int64_t *timestamp_delta, const uint8_t **end)
{
    int64_t length;
    if ((at = read_varint(at, limit, &length)) == NULL || length < MIN_RECORD_SIZE - 1 || length > limit - at)
        return NULL;
    *attributes = at, *end = at + length;
    return read_varlong(at + 1, *end, timestamp_delta);
}

/* Whether a record begins at `at` that ends at `limit` or before; its headers are not looked into. */
static inline int locate_record(const uint8_t *at, const uint8_t *limit, record_parts *found)
{
    const uint8_t *attributes, *end;
    if ((at = locate_front(at, limit, &attributes, &found->timestamp_delta, &end)) == NULL
        || (at = read_varint(at, end, &found->offset_delta)) == NULL
        || (at = locate_bytes(at, end, &found->key_start, &found->key_size)) == NULL
        || (at = locate_bytes(at, end, &found->value_start, &found->value_size)) == NULL)
        return 0;
    found->headers_start = at, found->end = end;
    return at < end;
}

/* How many headers a record has whose headers are at `at`; where the first begins, or NULL for a number that cannot be. */
static inline const uint8_t *locate_headers(const uint8_t *at, const uint8_t *end, int64_t *count)
{
    if ((at = read_varint(at, end, count)) == NULL || *count < 0 || *count > (end - at) / 2)
        return NULL;
    return at;
}

/* The header at `at`; where it ends, which for the last has to be the end of its record, or NULL if it is none. */
static inline const uint8_t *locate_header(const uint8_t *at, const uint8_t *end, header_parts *found)
{
    if ((at = locate_bytes(at, end, &found->key_start, &found->key_size)) == NULL || found->key_size < 0)
        return NULL;
    return locate_bytes(at, end, &found->value_start, &found->value_size);
}

#endif

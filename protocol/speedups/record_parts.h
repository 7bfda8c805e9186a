/* The positions of the fields of a record of format v2, for all compiled code that reads records.
 *
 * The functions correspond to the functions of these names in record_codec.py, with addresses instead of positions.
 * That module iterates over headers; here `locate_headers` counts them and `locate_header` returns the next one.
 * Invalid bytes have no error description: the Python twin determines which field is wrong. Properties that depend on
 * the batch, for example the record's offset, are checked by the callers. */
#ifndef BARNABAS_RECORD_PARTS_H
#define BARNABAS_RECORD_PARTS_H

#include "speedups.h"

/* A size of -1 means null. */
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

/* Read a size and the start of its bytes. Returns their end, or NULL if they exceed `limit`. */
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

/* Find the first fields of the record at `at`: its attributes, which are unused, and its timestamp delta. Returns the
 * position after them and sets the end of the record; NULL if no record that ends at `limit` or before begins here. */
static inline const uint8_t *locate_front(const uint8_t *at, const uint8_t *limit, const uint8_t **attributes,
                                          int64_t *timestamp_delta, const uint8_t **end)
{
    int64_t length;
    if ((at = read_varint(at, limit, &length)) == NULL || length < MIN_RECORD_SIZE - 1 || length > limit - at)
        return NULL;
    *attributes = at, *end = at + length;
    return read_varlong(at + 1, *end, timestamp_delta);
}

/* Return whether a record that ends at `limit` or before begins at `at`; its headers are not checked. */
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

/* Read the number of headers at `at`. Returns the start of the first header, or NULL for an impossible number. */
static inline const uint8_t *locate_headers(const uint8_t *at, const uint8_t *end, int64_t *count)
{
    if ((at = read_varint(at, end, count)) == NULL || *count < 0 || *count > (end - at) / 2)
        return NULL;
    return at;
}

/* Find the parts of the header at `at`. Returns its end, which for the last header is the record's, or NULL. */
static inline const uint8_t *locate_header(const uint8_t *at, const uint8_t *end, header_parts *found)
{
    if ((at = locate_bytes(at, end, &found->key_start, &found->key_size)) == NULL || found->key_size < 0)
        return NULL;
    return locate_bytes(at, end, &found->value_start, &found->value_size);
}

#endif

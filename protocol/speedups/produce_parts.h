/* The parts of produce requests and responses that all compiled code for them reads and writes. */
#ifndef BARNABAS_PRODUCE_PARTS_H
#define BARNABAS_PRODUCE_PARTS_H

#include "speedups.h"

enum { SINCE_TRANSACTIONS = 3, SINCE_LOG_START = 5, SINCE_RECORD_ERRORS = 8, SINCE_FLEXIBLE = 9, SINCE_TOPIC_IDS = 13 };
enum { UUID_SIZE = 16 };

/* The rest of a frame. `at` is NULL after an error, or for a frame that only the general decoder reads. */
typedef struct {
    const uint8_t *at, *end;
    int is_flexible;
} reader;

static inline const uint8_t *take(reader *in, int64_t size)
{
    if (in->at == NULL || size < 0 || size > in->end - in->at)
        return in->at = NULL;
    in->at += size;
    return in->at - size;
}

static inline int16_t take_i16(reader *in)
{
    const uint8_t *at = take(in, 2);
    if (at == NULL)
        return 0;
    return (int16_t)(at[0] << 8 | at[1]);
}

static inline int32_t take_i32(reader *in)
{
    const uint8_t *at = take(in, 4);
    return at == NULL ? 0 : read_i32(at);
}

/* A length or a number of items, -1 for null: a number of `size` bytes, or in flexible versions a varint plus one. */
static inline int64_t take_count(reader *in, int size)
{
    if (!in->is_flexible)
        return size == 2 ? take_i16(in) : take_i32(in);
    uint64_t count = 0;
    if (in->at != NULL)
        in->at = read_unsigned32(in->at, in->end, &count);
    return (int64_t)count - 1;
}

static inline void take_no_tags(reader *in)
{
    const uint8_t *count = in->is_flexible ? take(in, 1) : NULL;
    if (count != NULL && *count)
        in->at = NULL;
}

/* The part of the response that is written; with `at` NULL only its size is counted. Never writes beyond `room`. */
typedef struct {
    uint8_t *at;
    Py_ssize_t size, room;
    int version;
} writer;

static inline void put_bytes(writer *out, const void *data, Py_ssize_t size)
{
    if (out->at != NULL && out->size <= out->room && size <= out->room - out->size)
        memcpy(out->at + out->size, data, (size_t)size);
    out->size += size;
}

static inline void put_number(writer *out, int64_t value, int size)
{
    uint8_t bytes[8];
    write_i64(bytes, value);
    put_bytes(out, bytes + 8 - size, size);
}

/* A length or a number of items, as `take_count`. */
static inline void put_count(writer *out, Py_ssize_t count, int size)
{
    if (out->version < SINCE_FLEXIBLE) {
        put_number(out, count, size);
        return;
    }
    uint64_t rest = (uint64_t)count + 1;
    for (; rest > 0x7F; rest >>= 7)
        put_number(out, (int64_t)(rest & 0x7F) | 0x80, 1);
    put_number(out, (int64_t)rest, 1);
}

static inline void put_no_tags(writer *out)
{
    if (out->version >= SINCE_FLEXIBLE)
        put_number(out, 0, 1);
}

#endif

/* The common part of the compiled twins: big-endian numbers, varints, the columns of `RecordColumns`.
 *
 * Every function works on memory that its caller owns during the call, and checks each position against the end of it.
 * For invalid bytes a function returns a value and raises no exception: the Python code determines the error. The only
 * state between calls is in `send.c` and `sync.c`, whose threads outlive the calls, and in `meter.c`, whose two
 * functions keep the memory that they were created for. */
#ifndef BARNABAS_SPEEDUPS_H
#define BARNABAS_SPEEDUPS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { HEADER_SIZE = 61, LOG_OVERHEAD = 12, MIN_RECORD_SIZE = 7, ROW_SIZE = 44 };
enum {
    SIZE_AT = 8, LEADER_EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_ID_AT = 43, SEQUENCE_AT = 53, COUNT_AT = 57
};
enum {
    CODEC_MASK = 0x07, TIMESTAMP_TYPE_MASK = 0x08, TRANSACTIONAL_MASK = 0x10, CONTROL_MASK = 0x20,
    DELETE_HORIZON_MASK = 0x40
};
enum { NO_TIMESTAMP = -1 };

static inline uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t read_i32(const uint8_t *at) { return (int32_t)read_u32(at); }

static inline int64_t read_i64(const uint8_t *at) { return (int64_t)((uint64_t)read_u32(at) << 32 | read_u32(at + 4)); }

static inline void write_u32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24), at[1] = (uint8_t)(value >> 16), at[2] = (uint8_t)(value >> 8), at[3] = (uint8_t)value;
}

static inline void write_i64(uint8_t *at, int64_t value)
{
    write_u32(at, (uint32_t)((uint64_t)value >> 32)), write_u32(at + 4, (uint32_t)value);
}

/* Add with a wrap at 64 bits, as the Python twin does. */
static inline int64_t add_wrapping(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Read the varlong at `at` without undoing its zigzag. Returns its end, or NULL if it is cut off or exceeds 64 bits. */
const uint8_t *read_long_unsigned(const uint8_t *at, const uint8_t *end, uint64_t *value);

/* The same, with a fast path for one or two bytes. */
static inline const uint8_t *read_unsigned(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    if (at < end && at[0] < 0x80) {
        *value = at[0];
        return at + 1;
    }
    if (end - at > 1 && at[1] < 0x80) {
        *value = (uint64_t)(at[0] & 0x7F) | (uint64_t)at[1] << 7;
        return at + 2;
    }
    uint64_t longer = 0; /* keeps `value` in a register */
    at = read_long_unsigned(at, end, &longer);
    *value = longer;
    return at;
}

static inline int64_t from_zigzag(uint64_t value) { return (int64_t)(value >> 1 ^ (0 - (value & 1))); }

static inline const uint8_t *read_varlong(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint64_t zigzag = 0;
    at = read_unsigned(at, end, &zigzag);
    *value = from_zigzag(zigzag);
    return at;
}

/* A varint, of 32 bits and at most five bytes, still zigzag; NULL as `read_unsigned`. After NULL `value` is 0. */
static inline const uint8_t *read_unsigned32(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    const uint8_t *next = read_unsigned(at, end, value);
    if (next != NULL && next - at <= 5 && !(*value >> 32))
        return next;
    *value = 0; /* callers calculate with it before they look at the reader: 2^63 minus one would overflow */
    return NULL;
}

static inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint64_t zigzag = 0;
    at = read_unsigned32(at, end, &zigzag);
    *value = from_zigzag(zigzag);
    return at;
}

static inline uint64_t to_zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }

enum { LONGEST_VARLONG = 10 };

/* Write a varlong in as many bytes as it needs; returns its end. */
static inline uint8_t *write_varlong(uint8_t *at, int64_t value)
{
    uint64_t zigzag = to_zigzag(value);
    for (; zigzag > 0x7F; zigzag >>= 7)
        *at++ = (uint8_t)(zigzag | 0x80);
    *at++ = (uint8_t)zigzag;
    return at;
}

typedef struct {
    int64_t *offsets, *timestamps;
    int32_t *starts, *key_starts, *key_sizes, *value_starts, *value_sizes, *header_starts, *ends;
    Py_ssize_t capacity;
} columns;

/* Return false, with an exception, if the block is too small for `capacity` rows. */
static inline int columns_of(const Py_buffer *block, Py_ssize_t capacity, columns *out)
{
    if (capacity < 0 || capacity > block->len / ROW_SIZE) {
        PyErr_SetString(PyExc_ValueError, "columns are larger than their memory");
        return 0;
    }
    uint8_t *at = block->buf;
    int32_t *ints = (int32_t *)(at + 16 * capacity);
    *out = (columns){
        (int64_t *)at, (int64_t *)(at + 8 * capacity), ints, ints + capacity, ints + 2 * capacity, ints + 3 * capacity,
        ints + 4 * capacity, ints + 5 * capacity, ints + 6 * capacity, capacity,
    };
    return 1;
}

/* CRC-32C. `crc32c_prepare` must be called once before. */
void crc32c_prepare(void);
uint32_t crc32c(const uint8_t *data, size_t size);

/* MD5 of `count` byte strings, at most MD5_MOST, into 16 bytes each. */
enum { MD5_MOST = 32 };
void md5_many(const uint8_t *const *keys, const int32_t *sizes, int count, uint8_t (*digests)[16]);

/* The rules of a topic for records: timestamps within limits, and keys. */
typedef struct {
    int64_t earliest, latest;
    int needs_keys, may_be_marker;
} record_rules;

/* Get the rules of (earliest, latest, needs keys, may be a marker); false with an exception. */
int rules_of(PyObject *tuple, record_rules *rules);

/* Return whether a batch is valid. Its records are `plain`, or inside the batch if `plain` is NULL. */
int check_batch(const uint8_t *batch, int64_t size, const Py_buffer *plain, const record_rules *rules);

PyObject *scan_batches(PyObject *module, PyObject *args);
PyObject *header_columns(PyObject *module, PyObject *args);
PyObject *scan_records(PyObject *module, PyObject *args);
PyObject *validate_and_stamp(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *decode_records(PyObject *module, PyObject *args);
PyObject *encode_records(PyObject *module, PyObject *args);
PyObject *batch_of_pairs(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *index_batches(PyObject *module, PyObject *args);
PyObject *check_replicated_batches(PyObject *module, PyObject *args);
PyObject *zeroed(PyObject *module, PyObject *args);
PyObject *put_many(PyObject *module, PyObject *args);
PyObject *get_many(PyObject *module, PyObject *args);
PyObject *filter_batches(PyObject *module, PyObject *args);
PyObject *read_produce(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *write_produced(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *group_produce_requests(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *join_accepted_produces(PyObject *module, PyObject *args);
PyObject *locate_batches(PyObject *module, PyObject *args);
PyObject *begin_sending(PyObject *module, PyObject *dict);
PyObject *finish_sending(PyObject *module, PyObject *dict);
PyObject *is_sending(PyObject *module, PyObject *dict);
PyObject *open_syncer(PyObject *module, PyObject *wake);
PyObject *make_folders(PyObject *module, PyObject *list);
PyObject *rename_all(PyObject *module, PyObject *list);
PyObject *watch(PyObject *module, PyObject *parts);
PyObject *stopwatch(PyObject *module, PyObject *unused);
PyObject *set_mallopt(PyObject *module, PyObject *args);
PyObject *trim_heap(PyObject *module, PyObject *args);

#endif

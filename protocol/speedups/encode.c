/* Encodes keys and values as the records of a batch, and as a whole batch. */
#include "speedups.h"

typedef struct {
    PyObject *keys, *values; /* lists of bytes and None; keys may be None itself */
    int64_t timestamp_delta;
    const char *headers;
    Py_ssize_t headers_size;
} record_run;

static int varlong_size(int64_t value)
{
    uint64_t zigzag = to_zigzag(value);
    int size = 1;
    for (; zigzag > 0x7F; zigzag >>= 7)
        size++;
    return size;
}

/* Get the data and size of bytes; for None the size is -1. Returns 0 with an exception for other types. */
static int bytes_of(PyObject *item, char **data, Py_ssize_t *size)
{
    *data = NULL, *size = -1;
    return item == Py_None || (item != NULL && PyBytes_AsStringAndSize(item, data, size) == 0);
}

/* The same for one item of a list; None in place of the list is a list of None. */
static int item_of(PyObject *list, Py_ssize_t index, char **data, Py_ssize_t *size)
{
    return bytes_of(list == Py_None ? Py_None : PyList_GetItem(list, index), data, size);
}

static int64_t body_size(const record_run *run, int64_t delta, Py_ssize_t key_size, Py_ssize_t value_size)
{
    return 1 + varlong_size(run->timestamp_delta) + varlong_size(delta) + varlong_size(key_size)
        + (key_size > 0 ? key_size : 0) + varlong_size(value_size) + (value_size > 0 ? value_size : 0)
        + run->headers_size;
}

static uint8_t *write_bytes(uint8_t *at, const char *data, Py_ssize_t size)
{
    at = write_varlong(at, size);
    if (size <= 0)
        return at;
    memcpy(at, data, (size_t)size);
    return at + size;
}

/* `encode_record` of record_codec.py. Returns the end of the record, or NULL if it does not fit before `end`. */
static inline uint8_t *write_record(uint8_t *at, const uint8_t *end, const record_run *run, int64_t delta,
                                    const char *key, Py_ssize_t key_size, const char *value, Py_ssize_t value_size)
{
    int64_t body = body_size(run, delta, key_size, value_size);
    if (varlong_size(body) + body > end - at)
        return NULL;
    at = write_varlong(at, body);
    *at++ = 0; /* attributes */
    at = write_varlong(write_varlong(at, run->timestamp_delta), delta);
    at = write_bytes(write_bytes(at, key, key_size), value, value_size);
    memcpy(at, run->headers, (size_t)run->headers_size);
    return at + run->headers_size;
}

/* Return the number of records from `first` on that fit into `room`, and their size; -1 with an exception. */
static Py_ssize_t measure(const record_run *run, Py_ssize_t first, int64_t delta, int64_t room, int64_t *total)
{
    Py_ssize_t count = PyList_Size(run->values), key_size, value_size, i = first;
    char *key, *value;
    for (*total = 0; i < count; i++, delta++) {
        if (!item_of(run->keys, i, &key, &key_size) || !item_of(run->values, i, &value, &value_size))
            return -1;
        int64_t body = body_size(run, delta, key_size, value_size), size = varlong_size(body) + body;
        if (room >= 0 && size > room - *total)
            break;
        *total += size;
    }
    return i - first;
}

PyObject *encode_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    record_run run;
    Py_ssize_t first, key_size, value_size;
    long long delta, timestamp_delta, room;
    int64_t total;
    char *key, *value;
    if (!PyArg_ParseTuple(args, "OO!y#(nLL)L:encode_records", &run.keys, &PyList_Type, &run.values, &run.headers,
                          &run.headers_size, &first, &delta, &timestamp_delta, &room))
        return NULL;
    run.timestamp_delta = timestamp_delta;
    if (first < 0 || (run.keys != Py_None
                      && (!PyList_Check(run.keys) || PyList_Size(run.keys) != PyList_Size(run.values)))) {
        PyErr_SetString(PyExc_ValueError, "no such record, or not a key for each value");
        return NULL;
    }
    Py_ssize_t count = measure(&run, first, delta, room, &total);
    PyObject *records = count < 0 ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (records == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(records);
    const uint8_t *end = at + total;
    for (Py_ssize_t i = first; at != NULL && i < first + count; i++, delta++)
        at = item_of(run.keys, i, &key, &key_size) && item_of(run.values, i, &value, &value_size)
            ? write_record(at, end, &run, delta, key, key_size, value, value_size)
            : NULL;
    if (at == end)
        return Py_BuildValue("Nn", records, count);
    Py_DECREF(records);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "the lists changed while their records were encoded");
    return NULL;
}

static void write_u16(uint8_t *at, long long value) { at[0] = (uint8_t)(value >> 8), at[1] = (uint8_t)value; }

/* Return the size of a list of (key, value), each bytes or None, as records, and write them between `at` and `end`
 * unless `at` is NULL; -1 with an exception. */
static Py_ssize_t write_pairs(PyObject *pairs, uint8_t *at, const uint8_t *end)
{
    static const record_run plain = {NULL, NULL, 0, "", 1}; /* the headers' bytes: a count of 0 */
    Py_ssize_t key_size, value_size, total = 0, count = PyList_Size(pairs);
    char *key, *value;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        if (pair == NULL || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "a key and a value are wanted");
            return -1;
        }
        if (!bytes_of(PyTuple_GetItem(pair, 0), &key, &key_size) || !bytes_of(PyTuple_GetItem(pair, 1), &value, &value_size))
            return -1;
        int64_t body = body_size(&plain, i, key_size, value_size);
        total += varlong_size(body) + body;
        if (at != NULL && (at = write_record(at, end, &plain, i, key, key_size, value, value_size)) == NULL) {
            PyErr_SetString(PyExc_RuntimeError, "the pairs changed while their records were encoded");
            return -1;
        }
    }
    return total;
}

PyObject *batch_of_pairs(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    long long numbers[4]; /* timestamp, attributes, producer id, producer epoch */
    if (count != 5 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "batch_of_pairs takes a list and four numbers");
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        numbers[i] = PyLong_AsLongLong(args[i + 1]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_ssize_t size = write_pairs(args[0], NULL, NULL), records = PyList_Size(args[0]);
    if (size < 0)
        return NULL;
    if (records < 1 || size > INT32_MAX - HEADER_SIZE || (int16_t)numbers[1] != numbers[1]
        || (int16_t)numbers[3] != numbers[3]) {
        PyErr_SetString(PyExc_ValueError, "no records or too many, or a number that has no room");
        return NULL;
    }
    PyObject *batch = PyByteArray_FromStringAndSize(NULL, HEADER_SIZE + size);
    if (batch == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyByteArray_AsString(batch);
    write_i64(at, 0);
    write_u32(at + SIZE_AT, (uint32_t)(HEADER_SIZE - LOG_OVERHEAD + size));
    write_u32(at + LEADER_EPOCH_AT, UINT32_MAX); /* -1: set by the leader */
    at[MAGIC_AT] = 2;
    write_u16(at + ATTRIBUTES_AT, numbers[1]);
    write_u32(at + LAST_DELTA_AT, (uint32_t)(records - 1));
    write_i64(at + BASE_TIMESTAMP_AT, numbers[0]);
    write_i64(at + MAX_TIMESTAMP_AT, numbers[0]);
    write_i64(at + PRODUCER_ID_AT, numbers[2]);
    write_u16(at + PRODUCER_ID_AT + 8, numbers[3]);
    write_u32(at + SEQUENCE_AT, UINT32_MAX); /* -1: none */
    write_u32(at + COUNT_AT, (uint32_t)records);
    if (write_pairs(args[0], at + HEADER_SIZE, at + HEADER_SIZE + size) != size) {
        Py_DECREF(batch);
        return NULL;
    }
    write_u32(at + CRC_AT, crc32c(at + ATTRIBUTES_AT, (size_t)(HEADER_SIZE - ATTRIBUTES_AT + size)));
    return batch;
}

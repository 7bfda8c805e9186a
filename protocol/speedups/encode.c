/* Keys and values as the records of a batch. */
#include "speedups.h"

typedef struct {
    PyObject *keys, *values; /* lists of bytes and None; keys may be None itself */
    int64_t timestamp_delta;
    const char *headers;
    Py_ssize_t headers_size;
} record_run;

static int varlong_size(int64_t value)
{
    uint64_t zigzag = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int size = 1;
    for (; zigzag > 0x7F; zigzag >>= 7)
        size++;
    return size;
}

static uint8_t *write_varlong(uint8_t *at, int64_t value)
{
    uint64_t zigzag = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    for (; zigzag > 0x7F; zigzag >>= 7)
        *at++ = (uint8_t)(zigzag & 0x7F) | 0x80;
    *at++ = (uint8_t)zigzag;
    return at;
}

/* One of a list of bytes and None, -1 for the size of None; 0 with an exception for anything else. */
static int item_of(PyObject *list, Py_ssize_t index, char **data, Py_ssize_t *size)
{
    *data = NULL, *size = -1;
    PyObject *item = list == Py_None ? Py_None : PyList_GetItem(list, index);
    return item == Py_None || (item != NULL && PyBytes_AsStringAndSize(item, data, size) == 0);
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

/* How many records from `first` on fit into `room`, and their bytes; -1 with an exception. */
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

PyObject *encode_records(PyObject *module, PyObject *args)
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
    for (Py_ssize_t i = first; i < first + count; i++, delta++) {
        if (!item_of(run.keys, i, &key, &key_size) || !item_of(run.values, i, &value, &value_size)) {
            Py_DECREF(records);
            return NULL;
        }
        at = write_varlong(at, body_size(&run, delta, key_size, value_size));
        *at++ = 0; /* attributes */
        at = write_varlong(write_varlong(at, timestamp_delta), delta);
        at = write_bytes(write_bytes(at, key, key_size), value, value_size);
        memcpy(at, run.headers, (size_t)run.headers_size);
        at += run.headers_size;
    }
    return Py_BuildValue("Nn", records, count);
}

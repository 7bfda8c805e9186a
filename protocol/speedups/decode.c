/* Records of a batch as Python objects. */
#include "speedups.h"

typedef struct {
    int64_t base_offset, base_timestamp;
    PyObject *append_time; /* the timestamp of all, or None */
    PyTypeObject *record_type;
    PyObject *no_headers;
} record_maker;

/* So many bytes, or None for a negative size; NULL with an exception. */
static PyObject *bytes_or_none(const uint8_t *at, int64_t size)
{
    if (size >= 0)
        return PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
    Py_INCREF(Py_None);
    return Py_None;
}

/* A size and where its bytes begin; where they end, or NULL if they are not there. */
static const uint8_t *read_bytes(const uint8_t *at, const uint8_t *end, const uint8_t **start, int64_t *size)
{
    if ((at = read_varint(at, end, size)) == NULL || *size > end - at)
        return NULL;
    *start = at;
    return *size > 0 ? at + *size : at;
}

/* The headers that are all there is up to `end`: a list, or NULL, with an exception or without. */
static PyObject *read_headers(const uint8_t *at, const uint8_t *end)
{
    int64_t count, name_size, value_size;
    const uint8_t *name_at, *value_at;
    if ((at = read_varint(at, end, &count)) == NULL || count < 0 || count > (end - at) / 2)
        return NULL;
    PyObject *headers = PyList_New(0);
    for (; headers != NULL && count; count--) {
        if ((at = read_bytes(at, end, &name_at, &name_size)) == NULL || name_size < 0
            || (at = read_bytes(at, end, &value_at, &value_size)) == NULL)
            break;
        PyObject *name = PyUnicode_DecodeUTF8((const char *)name_at, (Py_ssize_t)name_size, "replace");
        PyObject *value = name == NULL ? NULL : bytes_or_none(value_at, value_size);
        PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, name, value);
        if (header == NULL || PyList_Append(headers, header) < 0)
            at = NULL;
        Py_XDECREF(name), Py_XDECREF(value), Py_XDECREF(header);
        if (at == NULL)
            break;
    }
    if (at != end)
        Py_CLEAR(headers);
    return headers;
}

/* The record at `*at`, which is moved behind it; NULL, with an exception or without, if it is none. */
static PyObject *read_record(const record_maker *maker, const uint8_t **at, const uint8_t *limit)
{
    int64_t size, stamp, delta, key_size, value_size, offset, timestamp = 0;
    const uint8_t *key_at, *value_at, *here = read_varint(*at, limit, &size);
    if (here == NULL || size < MIN_RECORD_SIZE - 1 || size > limit - here)
        return NULL;
    const uint8_t *end = *at = here + size;
    if ((here = read_varlong(here + 1, end, &stamp)) == NULL || (here = read_varint(here, end, &delta)) == NULL
        || (here = read_bytes(here, end, &key_at, &key_size)) == NULL
        || (here = read_bytes(here, end, &value_at, &value_size)) == NULL || here >= end
        || __builtin_add_overflow(maker->base_offset, delta, &offset)
        || (maker->append_time == Py_None && __builtin_add_overflow(maker->base_timestamp, stamp, &timestamp)))
        return NULL;
    PyObject *fields[5] = {NULL}, *record = NULL;
    if (*here == 0 && here + 1 == end)
        Py_INCREF(fields[4] = maker->no_headers);
    else
        fields[4] = read_headers(here, end);
    if (fields[4] != NULL) {
        fields[0] = PyLong_FromLongLong(offset);
        if (maker->append_time != Py_None)
            Py_INCREF(fields[1] = maker->append_time);
        else
            fields[1] = PyLong_FromLongLong(timestamp);
        fields[2] = bytes_or_none(key_at, key_size), fields[3] = bytes_or_none(value_at, value_size);
        if (fields[0] != NULL && fields[1] != NULL && fields[2] != NULL && fields[3] != NULL)
            record = PyType_GenericAlloc(maker->record_type, 5);
    }
    for (Py_ssize_t i = 0; i < 5; i++) {
        if (record != NULL)
            PyTuple_SetItem(record, i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    }
    return record;
}

PyObject *decode_records(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t position, count;
    long long base_offset, base_timestamp;
    PyObject *type, *records = NULL;
    record_maker maker = {0};
    if (!PyArg_ParseTuple(args, "y*nnLLOO!:decode_records", &data, &position, &count, &base_offset, &base_timestamp,
                          &maker.append_time, &PyType_Type, &type))
        return NULL;
    maker.base_offset = base_offset, maker.base_timestamp = base_timestamp;
    maker.record_type = (PyTypeObject *)type;
    maker.no_headers = PyTuple_New(0);
    if (!PyType_IsSubtype(maker.record_type, &PyTuple_Type) || position < 0 || position > data.len)
        PyErr_SetString(PyExc_ValueError, "no type of records, or no such position");
    else
        records = maker.no_headers == NULL ? NULL : PyList_New(0);
    const uint8_t *at = (const uint8_t *)data.buf + position, *limit = (const uint8_t *)data.buf + data.len;
    for (; records != NULL && count > 0; count--) {
        PyObject *record = read_record(&maker, &at, limit);
        if (record == NULL || PyList_Append(records, record) < 0)
            Py_CLEAR(records);
        Py_XDECREF(record);
    }
    position = at - (const uint8_t *)data.buf;
    PyBuffer_Release(&data);
    Py_XDECREF(maker.no_headers);
    if (records != NULL)
        return Py_BuildValue("Nn", records, position);
    return PyErr_Occurred() ? NULL : Py_BuildValue("");
}

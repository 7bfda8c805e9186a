/* Records of a batch as Python objects. */
#include "record_parts.h"

typedef struct {
    int64_t base_offset, base_timestamp;
    PyObject *append_time; /* the common timestamp, or None */
    PyTypeObject *record_type;
    PyObject *no_headers;
} record_maker;

/* Return `size` bytes, or None for a negative size; NULL with an exception. */
static PyObject *bytes_or_none(const uint8_t *at, int64_t size)
{
    if (size >= 0)
        return PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
    Py_INCREF(Py_None);
    return Py_None;
}

/* Return the headers that fill the bytes up to `end`; NULL, with or without an exception, if they are invalid. */
static PyObject *read_headers(const record_maker *maker, const uint8_t *at, const uint8_t *end)
{
    int64_t count;
    header_parts found;
    if ((at = locate_headers(at, end, &count)) == NULL)
        return NULL;
    if (count == 0)
        return at == end ? Py_NewRef(maker->no_headers) : NULL;
    PyObject *headers = PyList_New(0);
    for (; headers != NULL && count; count--) {
        if ((at = locate_header(at, end, &found)) == NULL)
            break;
        PyObject *key = PyUnicode_DecodeUTF8((const char *)found.key_start, (Py_ssize_t)found.key_size, "replace");
        PyObject *value = key == NULL ? NULL : bytes_or_none(found.value_start, found.value_size);
        PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, key, value);
        if (header == NULL || PyList_Append(headers, header) < 0)
            at = NULL;
        Py_XDECREF(key), Py_XDECREF(value), Py_XDECREF(header);
        if (at == NULL)
            break;
    }
    if (at != end)
        Py_CLEAR(headers);
    return headers;
}

/* Return the record at `*at` and advance `*at` past it; NULL, with or without an exception, if it is invalid. */
static PyObject *read_record(const record_maker *maker, const uint8_t **at, const uint8_t *limit)
{
    int64_t offset, timestamp = 0;
    record_parts found;
    if (!locate_record(*at, limit, &found) || __builtin_add_overflow(maker->base_offset, found.offset_delta, &offset)
        || (maker->append_time == Py_None
            && __builtin_add_overflow(maker->base_timestamp, found.timestamp_delta, &timestamp)))
        return NULL;
    *at = found.end;
    PyObject *fields[5] = {NULL}, *record = NULL;
    if ((fields[4] = read_headers(maker, found.headers_start, found.end)) != NULL) {
        fields[0] = PyLong_FromLongLong(offset);
        if (maker->append_time != Py_None)
            Py_INCREF(fields[1] = maker->append_time);
        else
            fields[1] = PyLong_FromLongLong(timestamp);
        fields[2] = bytes_or_none(found.key_start, found.key_size);
        fields[3] = bytes_or_none(found.value_start, found.value_size);
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

PyObject *decode_records(PyObject *Py_UNUSED(module), PyObject *args)
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
